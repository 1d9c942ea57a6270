"""How far the clock of a trace is from that of the tasks: found where they fit best.

Darshan's zero is some milliseconds before the start that its job states, by an amount that it
does not tell. What a thread reads and writes it does within the runs of its tasks, so that the
shift by which most operations are within runs is the right one, or one of those that are as good.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dask_strata.importers.dask_side import Runs

#: Where the shift is looked for, in seconds: Darshan's zero was seen 2 to 59 ms early. Dask's own
#: intervals have another shift in them, of up to hundreds of milliseconds.
_EXACT = (-0.12, 0.03)
_INEXACT = (-1.0, 1.0)

#: How closely is looked, at first and then.
_STEP_SECONDS = 0.0025
_STEPS = 100
_FEWEST = 5

#: A clock that is off by more is believed only if no operation is near a run, and so many fit.
_CONVINCING = 0.8
_NEAR_SECONDS = 1.0

#: Shifts that are almost as good as the best are as good: a share of all operations.
_AS_GOOD = 0.002

#: Dask's own shift is another with each interval, so that the best fit may be one by chance: a
#: shift must fit so much better for each second that it is away from the usual one. And one
#: shift is right for all of them only to so many seconds.
_INEXACT_USUAL = -0.02
_INEXACT_COST = 0.5
_INEXACT_SECONDS = 0.02
_INEXACT_AROUND = 0.06

_MOST = 2000

Seconds = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Sample:
    """Some operations of a log: the middle of each in nanoseconds since the epoch, and thread.

    A thread is 0 where it is not known.
    """

    time: npt.NDArray[np.int64]
    thread: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Shift:
    """What to add to a log's times, give or take, and the share of operations that fit then."""

    seconds: float
    uncertainty_seconds: float
    fit: float


def estimate_shift(sample: Sample, runs: Runs) -> Shift | None:
    """Return the shift by which the operations fit into the runs best; null if too few could."""
    times, starts, stops, apart = _lines(sample, runs)
    if len(times) < _FEWEST or not len(starts):
        return None
    times = times[:: -(-len(times) // _MOST)]
    if _far_off(sample, runs):
        far = _far(times, starts, stops, apart)
        return far if far is not None and far.fit >= _CONVINCING else None
    if runs.exact:
        return _best(times, starts, stops, _EXACT)
    near = _best(times, starts, stops, _INEXACT, _INEXACT_COST)
    return replace(near, uncertainty_seconds=max(near.uncertainty_seconds, _INEXACT_SECONDS))


def _far_off(sample: Sample, runs: Runs) -> bool:
    near = int(_NEAR_SECONDS * 1e9)
    return bool(
        sample.time.max() < runs.start.min() - near or sample.time.min() > runs.stop.max() + near
    )


def _lines(sample: Sample, runs: Runs) -> tuple[Seconds, Seconds, Seconds, float]:
    """Put all threads on one line of time, far apart; return it with the distance."""
    everyone = not sample.thread.any()
    threads = np.unique(runs.thread)
    there = np.ones(len(sample.time), bool) if everyone else np.isin(sample.thread, threads)
    if not there.any() or not len(runs):
        empty = np.zeros(0)
        return empty, empty, empty, 0.0
    zero = min(int(runs.start.min()), int(sample.time.min()))
    end = max(int(runs.stop.max()), int(sample.time.max()))
    apart = (end - zero) / 1e9 * 2 + 10
    place = 0 if everyone else np.searchsorted(threads, sample.thread[there])
    times = (sample.time[there] - zero) / 1e9 + place * apart
    row = 0 if everyone else np.searchsorted(threads, runs.thread)
    starts = (runs.start - zero) / 1e9 + row * apart
    stops = (runs.stop - zero) / 1e9 + row * apart
    order = np.argsort(starts, kind="stable")
    return np.sort(times), starts[order], np.maximum.accumulate(stops[order]), apart


def _fits(times: Seconds, starts: Seconds, stops: Seconds, shift: float) -> float:
    run = np.searchsorted(starts, times + shift, side="right") - 1
    return float(np.mean((run >= 0) & (times + shift <= stops[run])))


def _best(
    times: Seconds,
    starts: Seconds,
    stops: Seconds,
    window: tuple[float, float],
    cost: float = 0.0,
) -> Shift:
    """Return the middle of the best shifts, looked at twice, the second time more closely."""
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
    """Return the best shift of any size: where the beginnings of many runs meet operations."""
    some, others = times[:: -(-len(times) // 500)], starts[:: -(-len(starts) // 500)]
    lines = np.subtract.outer(others // apart, some // apart) if apart else 0
    differences = np.subtract.outer(others, some)[lines == 0].ravel()
    if not len(differences):
        return None
    bins = np.floor(differences / 0.05).astype(np.int64)
    values, counts = np.unique(bins, return_counts=True)
    tries = [
        _best(times, starts, stops, (value * 0.05 - 0.5, value * 0.05 + 0.5))
        for value in values[np.argsort(counts)[-5:]]
    ]
    return max(tries, key=lambda shift: shift.fit)
