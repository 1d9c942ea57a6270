"""Batch jobs of a cluster: their states, from the commands of the batch system."""
