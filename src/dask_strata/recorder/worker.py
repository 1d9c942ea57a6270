"""The path of the worker's recorder that the pickled plugins of early schedulers import."""

from dask_strata.recorder.roles.worker import WorkerRecorder

__all__ = ["WorkerRecorder"]
