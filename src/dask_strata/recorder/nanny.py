"""The path of the nanny's recorder that the pickled plugins of early schedulers import."""

from dask_strata.recorder.roles.nanny import NannyRecorder

__all__ = ["NannyRecorder"]
