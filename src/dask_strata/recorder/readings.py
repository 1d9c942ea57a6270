"""Yappi's numbers while it runs: how much they grew since they were read before.

Growth can be added up, and a process that is killed loses its last interval only. Two things
about Yappi have to be made up for:

- Its own calls for this pause it, and what begins or ends meanwhile is lost. What its C module
  hands to a method in C needs no pause: nothing else runs before all of it is there.
- What it charges to a function under way is negative: the time of those it called, that will
  be made up for when it returns. Reading sets that to zero for good, and counts a call that has
  not ended. So a function's own time is reckoned here: its total less that of those it called.
"""

from __future__ import annotations

import gc
from collections import Counter, defaultdict
from typing import Any, NamedTuple


class Thread(NamedTuple):
    """A thread by Yappi's number of it, and how much its numbers grew."""

    context: int
    ident: int
    name: str | None
    total_seconds: float
    scheduled: int


class Function(NamedTuple):
    """A function in a thread, and how much its numbers grew."""

    context: int
    name: str
    module: str
    line: int
    ncall: int
    nactualcall: int
    total_seconds: float
    own_seconds: float


_Numbers = tuple[int, int, float, float]
#: What Yappi calls a thread without a name.
_UNNAMED = "N/A"

_NOTHING: _Numbers = (0, 0, 0.0, 0.0)


class Readings:
    """Reads Yappi again and again."""

    def __init__(self) -> None:
        self._functions: dict[tuple[int, int], _Numbers] = {}
        self._threads: dict[int, tuple[float, int]] = {}
        self._places: dict[tuple[int, int], tuple[str, int, str]] = {}
        #: Functions with a call that was counted before it ended, by thread and Yappi's number.
        self._counted_early: set[tuple[int, int]] = set()

    def read(self) -> tuple[list[Thread], list[Function]]:
        """Return all threads, and the functions that grew, since the last call."""
        threads, functions = _entries()
        found = []
        for name, module, line, ncall, actual, _, total, own, index, children, ctx, *_ in functions:
            if module.endswith("yappi.py"):
                continue
            place = ctx, index
            recursive = any(child[0] == index for child in children)
            if ncall == 1 and not actual and not recursive:
                self._counted_early.add(place)
            ncall -= place in self._counted_early  # noqa: PLW2901  it is the same number, put right
            if ncall == actual:  # else it is recursive, and those it called are partly itself
                own = total - sum(child[3] for child in children)  # noqa: PLW2901  as above
            before = self._functions.get(place, _NOTHING)
            if ncall < before[0]:  # somebody cleared them: they begin again
                before = _NOTHING
            # Own time may shrink while a call is under way; what was told once stays told.
            self._places[place] = module, line, name
            now = ncall, actual, max(total, before[2]), max(own, before[3])
            self._functions[place] = now
            if now != before:
                grown = (a - b for a, b in zip(now, before, strict=True))
                found.append(Function(ctx, name, module, line, *grown))
        return [self._grown(*thread) for thread in threads], found

    def _grown(self, name: str, context: int, ident: int, seconds: float, scheduled: int) -> Thread:
        before = self._threads.get(context, (0.0, 0))
        self._threads[context] = seconds, scheduled
        known = None if name == _UNNAMED else name
        return Thread(
            context, ident, known, max(0.0, seconds - before[0]), max(0, scheduled - before[1])
        )

    def corrected(self, stats: Any) -> Any:
        """Return Yappi's own statistics, put right as said above, to be saved."""
        calls: Counter[tuple[str, int, str]] = Counter()
        own: defaultdict[tuple[str, int, str], float] = defaultdict(float)
        for place, numbers in self._functions.items():
            calls[self._places[place]] += numbers[0]
            own[self._places[place]] += numbers[3]
        for stat in stats:
            function = stat.module, stat.lineno, stat.name
            stat.ncall = max(calls[function], 1)  # a call that never ended is one, to other tools
            stat.tsub = own[function]
        return stats


def _entries() -> tuple[list[Any], list[Any]]:
    """Return threads and functions as Yappi has them now, without a pause."""
    import _yappi

    threads: list[Any] = []
    functions: list[Any] = []
    collecting = gc.isenabled()
    gc.disable()  # it might run others' code, and let other threads run
    try:
        _yappi.enum_context_stats(threads.append)
        _yappi.enum_func_stats(functions.append, {})
    finally:
        if collecting:
            gc.enable()
    return threads, functions
