"""Growth of Yappi's numbers since the previous reading, while Yappi runs.

Growth can be added up, and a process that is killed loses its last interval only. Yappi makes
this hard in three ways:

- Its public functions for statistics pause it, and lose calls that begin or end during the pause.
  Its C module needs no pause if it passes the entries to a method written in C: no other
  thread runs until all entries are read.
- The own time of a function in progress is negative: Yappi subtracts the time of its callees at
  once and adds its total when it returns. Reading replaces the negative time by zero, permanently,
  and counts a call that has not ended. So this module computes the own time: total less total of
  the callees.
- Compiled functions have entries, too, but their own time belongs to the Python function that
  called them. Yappi's share for each caller has the same zeros. So this module divides the
  computed own time of a compiled function in proportion to Yappi's shares.

A function that is unpickled for each call has new code each time, and a new entry in Yappi. Rows
are by the function's definition (file, line, name), so that these entries are one.

Yappi profiles the code of this module as well. Loops over entries therefore call no function.
"""

from __future__ import annotations

import gc
from collections import defaultdict
from typing import Any, NamedTuple


class Thread(NamedTuple):
    """Growth of a thread's numbers; ``context`` is Yappi's number of the thread."""

    context: int
    ident: int
    name: str | None
    total_seconds: float
    scheduled: int


class Function(NamedTuple):
    """Growth of a function's numbers in a thread; ``context`` is Yappi's number of the thread."""

    context: int
    name: str
    module: str
    line: int
    ncall: int
    nactualcall: int
    total_seconds: float
    own_seconds: float


#: Yappi's entry of a function in a thread: name, file, line, calls, calls without recursive ones,
#: whether it is compiled, total and own seconds, number, callees, thread, ...
_Entry = tuple[str, str, int, int, int, int, float, float, int, "list[_Child]", int, Any, Any, Any]
#: A callee: number, calls, calls without recursive ones, total and own seconds.
_Child = tuple[int, int, int, float, float]

#: Calls, calls without recursive ones, total and own seconds.
_Numbers = tuple[int, int, float, float]
#: File, line and name of a function.
_Definition = tuple[str, int, str]

#: Yappi's name of a thread without a name.
_UNNAMED = "N/A"

_ZERO: _Numbers = (0, 0, 0.0, 0.0)


class Readings:
    """Readings of Yappi in this process, each of the growth since the previous one.

    Attributes
    ----------
    entries : int
        Number of Yappi's entries at the last reading.
    """

    def __init__(self) -> None:
        import yappi

        #: Yappi's own file, as in its entries; a user's file may have the same name.
        self._own_file = yappi.start.__code__.co_filename
        self.entries = 0
        self._functions: dict[tuple[int, int], _Numbers] = {}
        self._threads: dict[int, tuple[float, int]] = {}
        #: Thread and number of functions with a call that Yappi counted before it ended.
        self._counted_early: set[tuple[int, int]] = set()
        self._sums: dict[_Definition, _Numbers] = {}

    def read(self) -> tuple[list[Thread], list[Function]]:
        """Return all threads, and the functions that grew since the last call."""
        threads, entries = _entries()
        if len(entries) < self.entries:  # other code cleared them: counting begins again
            self._functions.clear()
            self._counted_early.clear()
        self.entries = len(entries)
        calls = self._calls(entries)
        grown: dict[tuple[int, _Definition], _Numbers] = {}
        for context, definition, growth in self._growths(entries, calls, _own(entries, calls)):
            function = context, definition
            grown[function] = _sum(grown.get(function, _ZERO), growth)
            self._sums[definition] = _sum(self._sums.get(definition, _ZERO), growth)
        return [self._grown(*thread) for thread in threads], [
            Function(context, name, module, line, *numbers)
            for (context, (module, line, name)), numbers in grown.items()
        ]

    def _calls(self, entries: list[_Entry]) -> list[int]:
        """Return the ended calls of each entry."""
        found = [0] * len(entries)
        for number, entry in enumerate(entries):
            _, _, _, ncall, actual, _, _, _, index, children, context, *_ = entry
            function = context, index
            if ncall == 1 and not actual:
                recursive = False
                for child in children:
                    recursive = recursive or child[0] == index
                if not recursive:
                    self._counted_early.add(function)
            found[number] = ncall - (function in self._counted_early)
        return found

    def _growths(
        self, entries: list[_Entry], calls: list[int], own: list[float]
    ) -> list[tuple[int, _Definition, _Numbers]]:
        """Return thread, definition and growth of each Python function that grew."""
        found = []
        for entry, ncall, seconds in zip(entries, calls, own, strict=True):
            name, module, line, _, actual, compiled, total, _, index, _, context, *_ = entry
            if compiled:
                continue
            function = context, index
            before = self._functions[function] if function in self._functions else _ZERO  # noqa: SIM401  no call
            if ncall < before[0]:  # other code cleared them: counting begins again
                before = _ZERO
            # Own time may shrink while a call is in progress; growth is never negative.
            _, _, most, most_own = before
            most = total if total > most else most  # noqa: FURB136  no call
            most_own = seconds if seconds > most_own else most_own  # noqa: FURB136  no call
            now = ncall, actual, most, most_own
            if now != before:
                self._functions[function] = now
                growth = (
                    now[0] - before[0],
                    now[1] - before[1],
                    most - before[2],
                    most_own - before[3],
                )
                found.append((context, (module, line, name), growth))
        return [growth for growth in found if growth[1][0] != self._own_file]

    def _grown(self, name: str, context: int, ident: int, seconds: float, scheduled: int) -> Thread:
        before = self._threads.get(context, (0.0, 0))
        self._threads[context] = seconds, scheduled
        known = None if name == _UNNAMED else name
        return Thread(
            context, ident, known, max(0.0, seconds - before[0]), max(0, scheduled - before[1])
        )

    def as_statistics(self) -> Any:
        """Return the sums of all readings as statistics of Yappi, one for each function."""
        import yappi

        numbers = {definition: number for number, definition in enumerate(self._sums, 1)}
        stats = yappi.YFuncStats()
        called = self._called()
        for (module, line, name), number in numbers.items():
            ncall, actual, total, own = self._sums[module, line, name]
            ncall = max(ncall, 1)  # other tools divide by it: a call that never ended is one
            children = yappi.YChildFuncStats()
            for child, sums in called[module, line, name].items():
                if child in numbers:
                    children.append(_child(yappi, child, numbers[child], sums))
            values = (name, module, line, ncall, actual, False, total, own, number, children)
            full = f"{module}:{line} {name}"
            stats.append(yappi.YFuncStat((*values, 0, "", 0, None, total / ncall, full)))
        return stats

    def _called(self) -> defaultdict[_Definition, dict[_Definition, _Numbers]]:
        """Return the callees of each Python function, without compiled functions."""
        entries = [entry for entry in _entries()[1] if not entry[5]]
        definitions = {e[8]: (e[1], e[2], e[0]) for e in entries}
        found: defaultdict[_Definition, dict[_Definition, _Numbers]] = defaultdict(dict)
        for _, _, _, _, _, _, _, _, number, children, *_ in entries:
            callees = found[definitions[number]]
            for index, *sums in children:
                callee = definitions.get(index)
                if callee is not None:
                    ncall, actual, total, own = sums
                    callees[callee] = _sum(callees.get(callee, _ZERO), (ncall, actual, total, own))
        return found


def _sum(a: _Numbers, b: _Numbers) -> _Numbers:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]


def _own(entries: list[_Entry], calls: list[int]) -> list[float]:
    """Return the own time of each entry, including the time of compiled functions it called."""
    own = _alone(entries, calls)
    parts = _parts(entries, own)
    for number, entry in enumerate(entries):
        for index, _, _, _, charged in entry[9]:
            if index in parts:
                own[number] += charged * parts[index]
    return own


def _alone(entries: list[_Entry], calls: list[int]) -> list[float]:
    """Return the total time of each entry less the total time of its callees."""
    found = [0.0] * len(entries)
    for number, entry in enumerate(entries):
        _, _, _, _, actual, _, total, own, _, children, *_ = entry
        if calls[number] != actual:
            # A recursive function is its own callee: take Yappi's own time.
            found[number] = own
            continue
        for child in children:
            total -= child[3]
        found[number] = total
    return found


def _parts(entries: list[_Entry], alone: list[float]) -> dict[int, float]:
    """Return the factor by which Yappi's shares of each compiled function are corrected.

    Its computed own time is divided by the sum of the shares that Yappi has for its callers.
    """
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


def _child(yappi: Any, callee: _Definition, number: int, sums: _Numbers) -> Any:
    """Return a callee as one of Yappi's statistics."""
    module, line, name = callee
    ncall, actual, total, own = sums
    ncall = max(ncall, 1)
    full = f"{module}:{line} {name}"
    values = (number, ncall, actual, total, own, total / ncall, False, full, module, line, name)
    return yappi.YChildFuncStat(values)


def _entries() -> tuple[list[Any], list[Any]]:
    """Return Yappi's entries of threads and of functions, without a pause."""
    import _yappi

    threads: list[Any] = []
    functions: list[Any] = []
    collecting = gc.isenabled()
    gc.disable()  # a finalizer is Python code, during which other threads can run
    try:
        _yappi.enum_context_stats(threads.append)
        _yappi.enum_func_stats(functions.append, {})
    finally:
        if collecting:
            gc.enable()
    return threads, functions
