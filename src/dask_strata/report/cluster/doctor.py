"""The answer of `dask-strata doctor`, on a terminal and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from io import StringIO
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dask_strata.report.words import visible

if TYPE_CHECKING:
    from dask_strata.recorder.doctor.diagnosis import Diagnosis, Place, ProcessState

#: Most rows of processes: workers with the same facts share one.
_MAX_ROWS = 12

_WRITES = {"files": "files", "connection": "Dask's connection"}
_RECORDED = {True: ("yes", "green"), False: ("no", "bold red"), None: ("unknown", "yellow")}


def diagnosis_json(found: Diagnosis) -> str:
    """Return the answer as JSON.

    Parameters
    ----------
    found : Diagnosis
        The answer.
    """
    return json.dumps(asdict(found), indent=1)


def plain_diagnosis(found: Diagnosis) -> str:
    """Return the answer as plain text, 100 characters wide.

    Parameters
    ----------
    found : Diagnosis
        The answer.
    """
    text = StringIO()
    print_diagnosis(found, Console(file=text, width=100, markup=False, highlight=False))
    return text.getvalue().rstrip("\n")


def print_diagnosis(found: Diagnosis, out: Console) -> None:
    """Print the answer on one screen.

    Parameters
    ----------
    found : Diagnosis
        The answer.
    out : Console
        The console.
    """
    out.print(_verdict(found), soft_wrap=True)
    for place in found.places:
        out.print(Text.assemble(("folder   ", "bold"), visible(_place(place))), soft_wrap=True)
    out.print()
    out.print(_table(found))
    if found.settings:
        out.print()
    for setting in found.settings:
        text = visible(f"{setting.name} = {setting.value}")
        source = visible(f"  ({setting.source})")
        out.print(Text.assemble(("setting  ", "bold"), text, (source, "dim")), soft_wrap=True)
    for problem in found.problems:
        out.print()
        out.print(Text.assemble(("problem  ", "bold red"), visible(problem.text)), soft_wrap=True)
        out.print(Text.assemble(("to do    ", "bold"), visible(problem.remedy)), soft_wrap=True)


def _verdict(found: Diagnosis) -> Text:
    subject, verb = f"The cluster at {found.cluster}", "is"
    if found.cluster is None:
        subject, verb = "A cluster that a script starts here", "would be"
    style = "bold green" if found.recorded else "bold red"
    without = [p for p in found.processes if p.role != "client" and not p.recorded]
    if found.recorded:
        text = f"{subject} {verb} recorded."
    elif found.places and found.places[0].run_id is not None:
        text = f"{subject} {verb} recorded{_except_for(without)}."
    else:
        text = f"{subject} {verb.replace('be', 'NOT be').replace('is', 'is NOT')} recorded."
    return Text(visible(text), style=style)


def _except_for(without: list[ProcessState]) -> str:
    """Return how many processes are not recorded, or not known to be."""
    missing = sum(p.recorded is False for p in without)
    unknown = len(without) - missing
    text = ""
    if missing:
        are = "1 process is" if missing == 1 else f"{missing:,} processes are"
        text = f" in part: {are} not"
    if unknown:
        of = "1 process" if unknown == 1 else f"{unknown:,} processes"
        text += f", but of {of} this is unknown"
    return text


def _place(place: Place) -> str:
    host = f" on {place.host}" if place.host else ""
    parts = [f"{place.folder}{host}"]
    if place.run_id is not None:
        parts.append("visible from here" if place.visible_here else "NOT visible from here")
    if place.writable_there is False:
        parts.append("NOT writable there")
    if place.run_id is None:
        parts.append("runs would be created in it")
    return ", ".join(parts)


def _table(found: Diagnosis) -> Table:
    shown = Table(box=None, pad_edge=False, header_style="bold")
    titles: tuple[str, ...] = (
        "process",
        "recorded",
        "writes to",
        "dask-strata",
        "Python",
        "Dask",
        "host",
    )
    if found.cluster is None:
        titles = titles[:2] + titles[3:6]
    notes = any(p.note for p in found.processes)
    for title in (*titles, "") if notes else titles:
        shown.add_column(title, overflow="fold")
    rows = list(_rows(found.processes))
    for number, state in rows[:_MAX_ROWS]:
        cells = [
            Text(state.role if number == 1 else f"{number:,} {state.role.replace('nny', 'nnie')}s"),
            Text(*_RECORDED[state.recorded]),
            Text(_WRITES.get(state.writes or "", "–")),
            Text(visible(state.versions.dask_strata or "–")),
            Text(visible(state.versions.python or "–")),
            Text(visible(state.versions.dask or "–")),
            Text(visible(state.host or "–")),
        ]
        if found.cluster is None:
            cells = cells[:2] + cells[3:6]
        shown.add_row(*cells, *([Text(visible(state.note or ""))] if notes else []))
    if len(rows) > _MAX_ROWS:
        shown.add_row(Text(f"… {len(rows) - _MAX_ROWS:,} more rows: --format json"))
    return shown


def _rows(processes: tuple[ProcessState, ...]) -> Iterator[tuple[int, ProcessState]]:
    """Yield one process of those with the same facts, and their number, in the order of roles."""
    groups: dict[tuple[object, ...], list[ProcessState]] = {}
    for p in processes:
        facts = (p.role, p.recorded, p.writes, p.versions, p.host, p.note)
        groups.setdefault(facts, []).append(p)
    for group in groups.values():
        yield len(group), group[0]
