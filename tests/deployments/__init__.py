"""Real deployments on one machine: Slurm, MPI, SSH, dask-gateway, hosts with different folders."""
