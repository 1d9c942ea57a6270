"""The values of a run that are compared with those of others, beside its summary."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PrefixValues:
    """Sums over the tasks or the attempts of one prefix; None if no value is on record.

    Attributes
    ----------
    tasks, attempts : int
        Number of tasks, and of attempts at them that ran.
    compute_seconds, transfer_seconds, cpu_seconds : float or None
        Sums over attempts: in the tasks' functions, until dependencies had arrived, CPU time.
    read_bytes : float or None
        Bytes that the threads of the attempts read.
    """

    tasks: int
    attempts: int
    compute_seconds: float | None
    transfer_seconds: float | None
    cpu_seconds: float | None
    read_bytes: float | None


@dataclass(frozen=True)
class PathPart:
    """Time of the critical path with one cause, one prefix and one occupant, on one host.

    Attributes
    ----------
    cause : str
        Cause of the time, see `CAUSES`.
    prefix, host, worker : str or None
        Of the task that the rest of the run waited for; the worker by its name.
    occupant : str or None
        Prefix of the task that held what was waited for.
    nanoseconds : int
        The time.
    """

    cause: str
    prefix: str | None
    occupant: str | None
    host: str | None
    worker: str | None
    nanoseconds: int


@dataclass(frozen=True)
class Place:
    """Durations of the executions of one prefix on one worker, as sums of their logarithms.

    Attributes
    ----------
    prefix, host, worker : str or None
        The prefix, and the worker by its name.
    n : int
        Number of attempts that took time.
    seconds, log_sum, log_squares : float
        Sums of their seconds, of the logarithms and of the logarithms' squares.
    """

    prefix: str
    host: str | None
    worker: str | None
    n: int
    seconds: float
    log_sum: float
    log_squares: float


@dataclass(frozen=True)
class SizeSums:
    """Sums over the tasks of one prefix of x = log(1 + input bytes) and y = log(seconds)."""

    prefix: str
    n: int
    x: float
    y: float
    xx: float
    xy: float
    yy: float


@dataclass(frozen=True)
class Sample:
    """Some tasks, the same ones in every run of a script: where and in which order they ran.

    Attributes
    ----------
    ids : tuple of int
        Hashes of the tasks' names, ascending: of keys without the hashes that Dask puts in them.
    workers : tuple of int
        Number of the worker of each task, from 0.
    order : tuple of int
        Place of each task among these by its start, from 0.
    """

    ids: tuple[int, ...] = ()
    workers: tuple[int, ...] = ()
    order: tuple[int, ...] = ()


@dataclass(frozen=True)
class Inputs:
    """Files that the tasks read.

    Attributes
    ----------
    n : int
        Number of files.
    nbytes : int or None
        Sum of the sizes; None if no size is known.
    digest : str
        Hash of names without folders, and sizes, of all.
    """

    n: int = 0
    nbytes: int | None = None
    digest: str = ""


@dataclass(frozen=True)
class Comparable:
    """Values of a run that are compared by name.

    Attributes
    ----------
    facts : dict of str to str or None
        What a run was made of: script, arguments, commit, hosts, CPU models, environment, tags.
    settings : dict of str to str or None
        Settings of the scheduler, without those of dask-strata.
    packages : dict of str to str or None
        Versions of packages, and of Python.
    prefixes : dict of str to PrefixValues
        Sums by prefix.
    path : tuple of PathPart
        The parts of the critical path, which add up to the makespan.
    startup_seconds : float or None
        From the first moment on record to the first submission.
    lost_workers : int
        Workers that ended unexpectedly.
    places : tuple of Place
        Durations by prefix and worker.
    sizes : tuple of SizeSums
        Durations against input sizes.
    sample : Sample
        Where and in which order some tasks ran.
    inputs : Inputs
        Files that were read.
    """

    facts: dict[str, str | None]
    settings: dict[str, str | None]
    packages: dict[str, str | None]
    prefixes: dict[str, PrefixValues]
    path: tuple[PathPart, ...]
    startup_seconds: float | None
    lost_workers: int
    places: tuple[Place, ...]
    sizes: tuple[SizeSums, ...]
    sample: Sample
    inputs: Inputs
