"""Yappi's numbers while it runs: how much they grew since they were read before.

Growth can be added up, and a process that is killed loses its last interval only. Three things
about Yappi have to be made up for:

- Its own calls for this pause it, and what begins or ends meanwhile is lost. What its C module
  hands to a method in C needs no pause: nothing else runs before all of it is there.
- What it charges to a function under way is negative: the time of those it called, that will
  be made up for when it returns. Reading sets that to zero for good, and counts a call that has
  not ended. So a function's own time is reckoned here: its total less that of those it called.
- Compiled functions are entries like all others, whose own time belongs to the Python function
  that called them. What of it belongs to which caller, Yappi knows but for the same zeros: so
  it is their part of what was reckoned.

Whoever unpickles a function for each of its calls makes new code each time, and an entry of
Yappi's for each. What is told is by the place of the function in its file, as one. And as Yappi
sees what is called here, too, nothing is called for each entry.
"""

from __future__ import annotations

import gc
from collections import defaultdict
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


#: What Yappi has of a function in a thread: name, file, line, calls, calls without those from
#: within, whether it is compiled, total and own time, number, those it called, thread, ...
_Entry = tuple[str, str, int, int, int, int, float, float, int, "list[_Child]", int, Any, Any, Any]
#: One that it called: number, calls, calls without those from within, total and own time.
_Child = tuple[int, int, int, float, float]

_Numbers = tuple[int, int, float, float]
_Place = tuple[str, int, str]

#: What Yappi calls a thread without a name.
_UNNAMED = "N/A"

_NOTHING: _Numbers = (0, 0, 0.0, 0.0)


class Readings:
    """Reads Yappi again and again.

    Attributes
    ----------
    entries : int
        Entries that Yappi had when it was read last.
    """

    def __init__(self) -> None:
        self.entries = 0
        self._functions: dict[tuple[int, int], _Numbers] = {}
        self._threads: dict[int, tuple[float, int]] = {}
        #: Functions with a call that was counted before it ended, by thread and Yappi's number.
        self._counted_early: set[tuple[int, int]] = set()
        self._sums: dict[_Place, _Numbers] = {}

    def read(self) -> tuple[list[Thread], list[Function]]:
        """Return all threads, and the functions that grew, since the last call."""
        threads, entries = _entries()
        if len(entries) < self.entries:  # somebody cleared them: they begin again
            self._functions.clear()
            self._counted_early.clear()
        self.entries = len(entries)
        calls = self._calls(entries)
        grown: dict[tuple[int, _Place], _Numbers] = {}
        for context, place, growth in self._growths(entries, calls, _own(entries, calls)):
            whole = context, place
            grown[whole] = _sum(grown.get(whole, _NOTHING), growth)
            self._sums[place] = _sum(self._sums.get(place, _NOTHING), growth)
        return [self._grown(*thread) for thread in threads], [
            Function(context, name, module, line, *numbers)
            for (context, (module, line, name)), numbers in grown.items()
        ]

    def _calls(self, entries: list[_Entry]) -> list[int]:
        """Return how often each was called, without a call that has not ended."""
        found = [0] * len(entries)
        for number, entry in enumerate(entries):
            _, _, _, ncall, actual, _, _, _, index, children, context, *_ = entry
            place = context, index
            if ncall == 1 and not actual:
                recursive = False
                for child in children:
                    recursive = recursive or child[0] == index
                if not recursive:
                    self._counted_early.add(place)
            found[number] = ncall - (place in self._counted_early)
        return found

    def _growths(
        self, entries: list[_Entry], calls: list[int], own: list[float]
    ) -> list[tuple[int, _Place, _Numbers]]:
        """Return how much the numbers of those grew that are not compiled, if they did."""
        found = []
        for entry, ncall, seconds in zip(entries, calls, own, strict=True):
            name, module, line, _, actual, compiled, total, _, index, _, context, *_ = entry
            if compiled:
                continue
            place = context, index
            before = self._functions[place] if place in self._functions else _NOTHING  # noqa: SIM401  no call
            if ncall < before[0]:  # somebody cleared them: they begin again
                before = _NOTHING
            # Own time may shrink while a call is under way; what was told once stays told.
            _, _, most, most_own = before
            most = total if total > most else most  # noqa: FURB136  no call
            most_own = seconds if seconds > most_own else most_own  # noqa: FURB136  no call
            now = ncall, actual, most, most_own
            if now != before:
                self._functions[place] = now
                growth = (
                    now[0] - before[0],
                    now[1] - before[1],
                    most - before[2],
                    most_own - before[3],
                )
                found.append((context, (module, line, name), growth))
        return [growth for growth in found if not growth[1][0].endswith("yappi.py")]

    def _grown(self, name: str, context: int, ident: int, seconds: float, scheduled: int) -> Thread:
        before = self._threads.get(context, (0.0, 0))
        self._threads[context] = seconds, scheduled
        known = None if name == _UNNAMED else name
        return Thread(
            context, ident, known, max(0.0, seconds - before[0]), max(0, scheduled - before[1])
        )

    def as_statistics(self) -> Any:
        """Return all that was read as statistics of Yappi's, to be saved: a function is one."""
        import yappi

        numbers = {place: number for number, place in enumerate(self._sums, 1)}
        stats = yappi.YFuncStats()
        called = self._called()
        for (module, line, name), number in numbers.items():
            ncall, actual, total, own = self._sums[module, line, name]
            ncall = max(ncall, 1)  # a call that never ended is one, to other tools
            children = yappi.YChildFuncStats()
            for child, sums in called[module, line, name].items():
                if child in numbers:
                    children.append(_child(yappi, child, numbers[child], sums))
            values = (name, module, line, ncall, actual, False, total, own, number, children)
            full = f"{module}:{line} {name}"
            stats.append(yappi.YFuncStat((*values, 0, "", 0, None, total / ncall, full)))
        return stats

    def _called(self) -> defaultdict[_Place, dict[_Place, _Numbers]]:
        """Return who called whom, by place; compiled functions are left out."""
        entries = [entry for entry in _entries()[1] if not entry[5]]
        places = {e[8]: (e[1], e[2], e[0]) for e in entries}
        found: defaultdict[_Place, dict[_Place, _Numbers]] = defaultdict(dict)
        for _, _, _, _, _, _, _, _, number, children, *_ in entries:
            callees = found[places[number]]
            for index, *sums in children:
                place = places.get(index)
                if place is not None:
                    ncall, actual, total, own = sums
                    callees[place] = _sum(callees.get(place, _NOTHING), (ncall, actual, total, own))
        return found


def _sum(a: _Numbers, b: _Numbers) -> _Numbers:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]


def _own(entries: list[_Entry], calls: list[int]) -> list[float]:
    """Return the own time of each, with that of what is compiled and was called by it."""
    own = _alone(entries, calls)
    parts = _parts(entries, own)
    for number, entry in enumerate(entries):
        for index, _, _, _, charged in entry[9]:
            if index in parts:
                own[number] += charged * parts[index]
    return own


def _alone(entries: list[_Entry], calls: list[int]) -> list[float]:
    """Return the time of each less that of all that it called."""
    found = [0.0] * len(entries)
    for number, entry in enumerate(entries):
        _, _, _, _, actual, _, total, own, _, children, *_ = entry
        if calls[number] != actual:
            # It is recursive, and those it called are partly itself: it is as Yappi has it.
            found[number] = own
            continue
        for child in children:
            total -= child[3]
        found[number] = total
    return found


def _parts(entries: list[_Entry], alone: list[float]) -> dict[int, float]:
    """Return what part is right of the own time that callers of what is compiled have of it."""
    charged = {entry[8]: 0.0 for entry in entries if entry[5]}
    for entry in entries:
        for child in entry[9]:
            if child[0] in charged:
                charged[child[0]] += child[4]
    found = {}
    for entry, seconds in zip(entries, alone, strict=True):
        index = entry[8]
        if index in charged and charged[index] > 0.0:
            part = seconds / charged[index]
            found[index] = min(1.0, max(0.0, part))
    return found


def _child(yappi: Any, place: _Place, number: int, sums: _Numbers) -> Any:
    """Return a function that was called as Yappi has it among those of its caller."""
    module, line, name = place
    ncall, actual, total, own = sums
    ncall = max(ncall, 1)
    full = f"{module}:{line} {name}"
    values = (number, ncall, actual, total, own, total / ncall, False, full, module, line, name)
    return yappi.YChildFuncStat(values)


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
