"""The inputs that task definitions name.

`register` adds an extractor in this process; packages add theirs by the entry point
``dask_strata.extractors``.
"""

from dask_strata.recorder.inputs.extractors import register

__all__ = ["register"]
