"""Import the CSV files of the Mofka-Dask coupler as a run."""
