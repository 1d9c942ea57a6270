"""Claimed inputs: the files and ranges that task definitions name.

Users add an extractor with `register`, in the scheduler's process; packages add theirs with an
entry point in the group ``dask_strata.extractors``.
"""

from dask_strata.recorder.inputs.extractors import register

__all__ = ["register"]
