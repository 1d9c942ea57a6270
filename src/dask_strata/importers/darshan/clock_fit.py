"""Estimate the shift between the clock of a trace and the clock of the tasks.

A trace counts seconds from a zero some milliseconds before the start in the log's job; the log
does not record the difference. A worker thread reads and writes within executions of tasks.
The estimate is therefore the middle of the shifts that place most operations within executions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dask_strata.importers.dask_processes import Executions

#: Shifts that are tried, in seconds. Darshan's zero was 2 to 59 ms early in measurements. Dask's
#: own intervals contain another shift, of up to hundreds of milliseconds.
_EXACT = (-0.12, 0.03)
_INEXACT = (-1.0, 1.0)

#: Step of the first search in seconds; number of steps of the second, finer search.
_STEP_SECONDS = 0.0025
_STEPS = 100

#: Fewer operations yield no estimate.
_FEWEST = 5

#: A larger shift is searched only if all operations are before the first execution or after the
#: last one, by at least this many seconds.
_NEAR_SECONDS = 1.0
#: A larger shift is accepted only if it fits this share of the operations.
_CONVINCING = 0.8

#: Shifts count as equally good if the shares of operations that fit differ by at most this.
_AS_GOOD = 0.002

#: Dask's own intervals each have a different shift, so the best fit may be a coincidence. A shift
#: must therefore fit better by this share for each second between it and the usual shift, and its
#: uncertainty is at least `_INEXACT_SECONDS`. The second search covers this many seconds on
#: either side of the best shifts.
_INEXACT_USUAL = -0.02
_INEXACT_COST = 0.5
_INEXACT_SECONDS = 0.02
_INEXACT_AROUND = 0.06

#: Operations that are compared at most.
_MOST = 2000

#: Operations and executions that are compared at most to find a shift of any size, the width of
#: the bins of their differences in seconds, and how many of the fullest bins are tried.
_FAR_MOST = 500
_FAR_BIN_SECONDS = 0.05
_FAR_TRIES = 5
_FAR_AROUND_SECONDS = 0.5

Seconds = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Sample:
    """Some operations of a log.

    Attributes
    ----------
    time : numpy.ndarray of int64
        Middle of each operation in nanoseconds since the epoch, on the log's clock.
    thread : numpy.ndarray of int64
        Identity of its thread; 0 where it is not recorded.
    """

    time: npt.NDArray[np.int64]
    thread: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Shift:
    """The estimated shift of a log's clock.

    Attributes
    ----------
    seconds : float
        Seconds to add to the log's times.
    uncertainty_seconds : float
        Half the width of the range of equally good shifts.
    fit : float
        Share of the operations that are within executions after the shift.
    """

    seconds: float
    uncertainty_seconds: float
    fit: float


def estimate_shift(sample: Sample, executions: Executions) -> Shift | None:
    """Return the shift that places most operations within executions.

    Parameters
    ----------
    sample : Sample
        Operations of one process.
    executions : Executions
        Executions in the same process.

    Returns
    -------
    Shift or None
        None if fewer than 5 operations are in threads with executions, or if the clock is far
        off and no shift fits.
    """
    times, starts, stops, apart = _on_one_axis(sample, executions)
    if len(times) < _FEWEST or not len(starts):
        return None
    times = times[:: -(-len(times) // _MOST)]
    if _far_off(sample, executions):
        far = _far(times, starts, stops, apart)
        return far if far is not None and far.fit >= _CONVINCING else None
    if executions.exact:
        return _best(times, starts, stops, _EXACT)
    near = _best(times, starts, stops, _INEXACT, _INEXACT_COST)
    return replace(near, uncertainty_seconds=max(near.uncertainty_seconds, _INEXACT_SECONDS))


def _far_off(sample: Sample, executions: Executions) -> bool:
    """Return whether all operations are long before or long after all executions."""
    near = int(_NEAR_SECONDS * 1e9)
    return bool(
        sample.time.max() < executions.start.min() - near
        or sample.time.min() > executions.stop.max() + near
    )


def _on_one_axis(sample: Sample, executions: Executions) -> tuple[Seconds, Seconds, Seconds, float]:
    """Place all threads one after the other on one time axis.

    Return the operations' times, the executions' starts and stops, and the distance between
    threads, all in seconds. Operations share an axis with all executions if either has no threads.
    """
    no_threads = not sample.thread.any() or not executions.thread.any()
    threads = np.unique(executions.thread)
    usable = np.ones(len(sample.time), bool) if no_threads else np.isin(sample.thread, threads)
    if not usable.any() or not len(executions):
        empty = np.zeros(0)
        return empty, empty, empty, 0.0
    zero = min(int(executions.start.min()), int(sample.time.min()))
    end = max(int(executions.stop.max()), int(sample.time.max()))
    apart = (end - zero) / 1e9 * 2 + 10
    number = 0 if no_threads else np.searchsorted(threads, sample.thread[usable])
    times = (sample.time[usable] - zero) / 1e9 + number * apart
    number = 0 if no_threads else np.searchsorted(threads, executions.thread)
    starts = (executions.start - zero) / 1e9 + number * apart
    stops = (executions.stop - zero) / 1e9 + number * apart
    order = np.argsort(starts, kind="stable")
    return np.sort(times), starts[order], np.maximum.accumulate(stops[order]), apart


def _fits(times: Seconds, starts: Seconds, stops: Seconds, shift: float) -> float:
    """Return the share of operations that are within executions after a shift."""
    execution = np.searchsorted(starts, times + shift, side="right") - 1
    return float(np.mean((execution >= 0) & (times + shift <= stops[execution])))


def _best(
    times: Seconds,
    starts: Seconds,
    stops: Seconds,
    window: tuple[float, float],
    cost: float = 0.0,
) -> Shift:
    """Return the middle of the best shifts in a window: search it coarsely, then finely."""
    low, high = window
    for steps in (round((high - low) / _STEP_SECONDS), _STEPS):
        shifts = np.linspace(low, high, steps + 1)
        fits = np.array([_fits(times, starts, stops, shift) for shift in shifts])
        scores = fits - cost * np.abs(shifts - _INEXACT_USUAL)
        good = scores >= scores.max() - _AS_GOOD
        first = last = int(scores.argmax())
        while first > 0 and good[first - 1]:
            first -= 1
        while last < steps and good[last + 1]:
            last += 1
        step = (high - low) / steps
        found = Shift(
            float(shifts[first] + shifts[last]) / 2,
            float(shifts[last] - shifts[first] + step) / 2,
            float(fits[(first + last) // 2]),
        )
        around, cost = (step, 0.0) if not cost else (_INEXACT_AROUND, 0.0)
        low, high = shifts[first] - around, shifts[last] + around
    return found


def _far(times: Seconds, starts: Seconds, stops: Seconds, apart: float) -> Shift | None:
    """Return the best shift of any size: the one that aligns many starts with operations."""
    operations = times[:: -(-len(times) // _FAR_MOST)]
    begins = starts[:: -(-len(starts) // _FAR_MOST)]
    threads = np.subtract.outer(begins // apart, operations // apart) if apart else 0
    differences = np.subtract.outer(begins, operations)[threads == 0].ravel()
    if not len(differences):
        return None
    bins = np.floor(differences / _FAR_BIN_SECONDS).astype(np.int64)
    values, counts = np.unique(bins, return_counts=True)
    centres = values[np.argsort(counts)[-_FAR_TRIES:]] * _FAR_BIN_SECONDS
    tries = [
        _best(times, starts, stops, (c - _FAR_AROUND_SECONDS, c + _FAR_AROUND_SECONDS))
        for c in centres
    ]
    return max(tries, key=lambda shift: shift.fit)
