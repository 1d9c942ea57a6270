"""The answer of `dask-strata doctor`: processes, places of the record, problems with remedies."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Versions:
    """The versions in one process; each is None if it is unknown or the package is missing.

    Attributes
    ----------
    dask_strata, python, dask : str or None
        Versions of dask-strata, Python and Dask.distributed.
    """

    dask_strata: str | None = None
    python: str | None = None
    dask: str | None = None


@dataclass(frozen=True)
class ProcessState:
    """One process of a cluster.

    Attributes
    ----------
    role : str
        scheduler, worker, nanny or client.
    address : str or None
        Its address in Dask; None for a process that a script would start.
    host : str or None
        Name of its host.
    recorded : bool or None
        Whether it is recorded, or would be; None if that is unknown.
    versions : Versions
        Its versions.
    writes : str or None
        How its rows reach the run: ``files`` or ``connection`` (over Dask's connections).
    note : str or None
        Why it is not recorded, or why that is unknown.
    """

    role: str
    address: str | None
    host: str | None
    recorded: bool | None
    versions: Versions
    writes: str | None = None
    note: str | None = None


@dataclass(frozen=True)
class Place:
    """The folder that runs are, or would be, recorded into.

    Attributes
    ----------
    folder : str
        The run's folder, or the folder of runs if no run is being recorded.
    run_id : str or None
        Id of the run that is being recorded.
    host : str or None
        Host of the scheduler, which creates the folder.
    visible_here : bool or None
        Whether this process sees the same folder; None if that is unknown.
    writable_there : bool or None
        Whether the scheduler's process can write to it; None if that is unknown.
    """

    folder: str
    run_id: str | None
    host: str | None
    visible_here: bool | None
    writable_there: bool | None


@dataclass(frozen=True)
class Problem:
    """One reason why something is not recorded.

    Attributes
    ----------
    text : str
        The problem.
    remedy : str
        What to do.
    """

    text: str
    remedy: str


@dataclass(frozen=True)
class GivenSetting:
    """A setting that concerns recording and differs from its default.

    Attributes
    ----------
    name, value : str
        Its name in Dask's configuration, and its value as JSON, without secrets.
    source : str
        The environment variable or file that sets it.
    """

    name: str
    value: str
    source: str


@dataclass(frozen=True)
class Diagnosis:
    """The answer of `dask-strata doctor`.

    Attributes
    ----------
    cluster : str or None
        Address of the scheduler; None if the subject is this environment.
    recorded : bool
        Whether every process of the cluster is recorded, or would be. The client does not count.
    places : tuple of Place
        Where the record is written, one entry per run that is being recorded.
    processes : tuple of ProcessState
        The processes.
    problems : tuple of Problem
        What prevents recording, the most important first.
    settings : tuple of GivenSetting
        Settings of this environment that concern recording.
    """

    cluster: str | None
    recorded: bool
    places: tuple[Place, ...]
    processes: tuple[ProcessState, ...]
    problems: tuple[Problem, ...]
    settings: tuple[GivenSetting, ...] = ()
