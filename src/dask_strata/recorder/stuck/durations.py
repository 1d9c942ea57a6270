"""Durations of finished executions by prefix, and the duration from which one is too long."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from dask.utils import key_split

#: Number of the last executions of a prefix whose median is its typical duration.
_RECENT = 101

#: Bound on prefixes: functions without names of their own may each have one.
_MAX_PREFIXES = 10_000

#: An execution is too long if it exceeds the typical one, and the longest one, by these factors,
#: and runs for at least so many seconds. The longest one guards against prefixes of many different
#: durations.
_TYPICAL_FACTOR, _LONGEST_FACTOR = 10, 2
LEAST_SECONDS = 5.0

#: With fewer finished executions than this, one is too long after so many seconds at the earliest.
_FEW, _FEW_SECONDS = 5, 30.0

#: Without any finished execution.
_NONE_SECONDS = 300.0


#: Executions below this duration are short: of these, only so many are added in a call.
_SHORT_SECONDS, _SHORT_A_CALL = 0.1, 20


class Usual(NamedTuple):
    """The finished executions of a prefix.

    Attributes
    ----------
    n : int
        Their number, of short ones only those that were added.
    typical, longest : float or None
        The median of the last 101 and the longest, in seconds; None without one.
    """

    n: int
    typical: float | None
    longest: float | None

    @property
    def limit(self) -> float:
        """The duration in seconds from which an execution of the prefix is too long.

        >>> Usual(200, 1.2, 4.0).limit, Usual(200, 0.01, 0.02).limit, Usual(2, 0.1, 0.1).limit
        (12.0, 5.0, 30.0)
        >>> Usual(0, None, None).limit
        300.0
        """
        if self.typical is None or self.longest is None:
            return _NONE_SECONDS
        least = LEAST_SECONDS if self.n >= _FEW else _FEW_SECONDS
        return max(_TYPICAL_FACTOR * self.typical, _LONGEST_FACTOR * self.longest, least)


class _Finished:
    """Finished executions of one prefix."""

    __slots__ = ("longest", "n", "recent")

    def __init__(self) -> None:
        self.n, self.longest = 0, 0.0
        self.recent: deque[float] = deque(maxlen=_RECENT)


class Durations:
    """Durations of finished executions by prefix, as workers reported them.

    `add` is called on the thread that reads the reports, `usual` on any thread.

    Parameters
    ----------
    tasks : mapping
        The scheduler's tasks, which have the prefix of a key.
    """

    def __init__(self, tasks: Mapping[Any, Any]) -> None:
        self._tasks = tasks
        self._by_prefix: dict[str, _Finished] = {}

    def add(self, finished: Sequence[tuple[Any, Mapping[str, Any]]]) -> None:
        """Add executions: each long one, and some of the short ones.

        Parameters
        ----------
        finished : sequence of (key, dict)
            Keys with the messages of workers.
        """
        step = len(finished) // _SHORT_A_CALL + 1
        for i, (key, message) in enumerate(finished):
            intervals = message.get("startstops")
            if not intervals:
                continue
            last = intervals[-1]
            if last["stop"] - last["start"] < _SHORT_SECONDS and i % step:
                continue  # most tasks of a graph of many, on each of which every step costs
            for part in intervals:
                if part["action"] == "compute":
                    self._add(key, part["stop"] - part["start"])

    def _add(self, key: Any, seconds: float) -> None:
        ts, known = self._tasks.get(key), self._by_prefix
        prefix = key_split(key) if ts is None else ts.prefix.name
        of_prefix = known.get(prefix)
        if of_prefix is None:
            if len(known) >= _MAX_PREFIXES:
                del known[next(iter(known))]
            of_prefix = known[prefix] = _Finished()
        of_prefix.n += 1
        of_prefix.longest = max(of_prefix.longest, seconds)
        of_prefix.recent.append(seconds)

    def usual(self, prefix: str) -> Usual:
        """Return what executions of a prefix usually take.

        Parameters
        ----------
        prefix : str
            Dask's name of the prefix.
        """
        of_prefix = self._by_prefix.get(prefix)
        if of_prefix is None:
            return Usual(0, None, None)
        # A copy in one step of the interpreter: the other thread may append meanwhile.
        recent = tuple(of_prefix.recent)
        return Usual(of_prefix.n, median(recent) if recent else None, of_prefix.longest)
