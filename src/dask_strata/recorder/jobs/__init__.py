"""Batch jobs of a cluster: their states, from the commands of the batch system."""

from __future__ import annotations


def job_topic(run_id: str) -> str:
    """Return the topic of the events with which workers report their batch jobs.

    >>> job_topic("0a1b2c3d")
    'dask-strata-0a1b2c3d-job'
    """
    return f"dask-strata-{run_id}-job"
