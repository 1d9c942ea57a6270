"""The lineage of a task or file, on a terminal and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.console import Console  # noqa: TC002  rich is loaded anyway
from rich.text import Text

from dask_strata.analysis.lineage import FileUse, Related, RelatedTask, Trace
from dask_strata.report.terminal.text_table import print_texts
from dask_strata.report.words import count, size, visible

#: Most results in a sentence.
_RESULTS = 5


def print_trace(trace: Trace, out: Console) -> None:
    """Print the tasks and files that a task or file is made from, and those made of it.

    Parameters
    ----------
    trace : Trace
        The lineage.
    out : Console
        The console.
    """
    kind = f"  ({trace.key_type})" if trace.key_type else ""
    out.print(Text.assemble((visible(trace.name), "bold"), kind), soft_wrap=True)
    if trace.task is not None:
        out.print(Text(f"  {' · '.join(_task_facts(trace.task))}"), soft_wrap=True)
    if trace.subject == "file":
        _print_side("read by", trace.read_by, out, "")
        if trace.made_from.tasks:
            _print_side("written by, and made from", trace.made_from, out, "read")
    else:
        _print_side("made from", trace.made_from, out, "read")
    _print_side("made of it", trace.made_of_it, out, "written")


def _task_facts(task: RelatedTask) -> Iterator[str]:
    if task.state:
        yield visible(task.state)
    if task.prefix:
        yield f"prefix {visible(task.prefix)}"
    if task.nbytes is not None:
        yield f"result {size(task.nbytes)}"
    yield from place_words(task.worker, task.host, task.pid)


def place_words(worker: str | None, host: str | None, pid: int | None) -> Iterator[str]:
    """Yield the known parts of a place in words: worker, host and pid."""
    if worker:
        yield f"worker {visible(worker)}"
    if host:
        yield f"host {visible(host)}"
    if pid is not None:
        yield f"pid {pid}"


def _print_side(title: str, side: Related, out: Console, done: str) -> None:
    n_tasks = len(side.tasks) + side.left_out_tasks
    heading = count(n_tasks, "task") if n_tasks else "no task"
    if done:
        n_files = len({use.uri for use in side.files})
        more = "at least " if side.left_out_files else ""
        heading += f", {more}{count(n_files, 'file')} {done}" if n_files else f", no file {done}"
    out.print()
    out.print(Text.assemble((title, "bold"), f"  {heading}"), soft_wrap=True)
    if side.results:
        keys = ", ".join(visible(key) for key, _ in side.results[:_RESULTS])
        n = len(side.results) + side.left_out_results
        more = f" and {n - _RESULTS:,} more" if n > _RESULTS else ""
        out.print(Text(f"  requested by a client: {keys}{more}"), soft_wrap=True)
    if side.files:
        _print_files(side.files, out)
    if side.left_out_files:
        out.print(Text(f"  {_left_out(side.left_out_files, 'file or range')}", style="dim"))
    if side.tasks and done:
        _print_tasks(side.tasks, out)
    if side.left_out_tasks:
        out.print(Text(f"  {_left_out(side.left_out_tasks, 'task')}", style="dim"))


def _left_out(n: int, thing: str) -> str:
    things = thing if n == 1 else {"task": "tasks"}.get(thing, "files or ranges")
    return f"{n:,} more {things}: --limit 0 without --depth shows all"


def part_of(use: FileUse | dict[str, Any]) -> str:
    """Return the part of a file that a task uses, in words; an en dash if it is unknown."""
    facts = use if isinstance(use, dict) else vars(use)
    parts = [visible(facts[name]) for name in ("dataset", "tree") if facts[name]]
    if facts["first"] is not None or facts["last"] is not None:
        first, last = (
            "…" if facts[name] is None else f"{facts[name]:,}" for name in ("first", "last")
        )
        parts.append(f"{visible(facts['unit'] or 'range')} {first} to {last}")
    return ", ".join(parts) or "–"


def evidence_of(use: FileUse | dict[str, Any]) -> str:
    """Return how a file of a task is known: from the definition, from opening it, or both."""
    facts = use if isinstance(use, dict) else vars(use)
    found = [name for name, known in (("claimed", "claimed"), ("opened", "seen")) if facts[known]]
    return ", ".join(found)


def _print_files(files: tuple[FileUse, ...], out: Console) -> None:
    columns = {
        "file": False, "part": False, "events": True, "bytes": True, "mode": False,
        "known by": False, "steps": True, "key": False, "worker": False, "host": False,
        "pid": True,
    }  # fmt: skip
    rows = [
        [
            visible(use.uri),
            part_of(use),
            "–" if use.events is None else f"{use.events:,}",
            size(use.read_bytes if use.read_bytes is not None else use.nbytes),
            visible(use.mode),
            evidence_of(use),
            f"{use.steps}",
            visible(use.key),
            *_place(use),
        ]
        for use in files
    ]
    important = ("file", "key", "bytes", "mode", "known by", "part", "worker", "steps")
    print_texts(columns, rows, out, important, indent=2)


def _print_tasks(tasks: tuple[RelatedTask, ...], out: Console) -> None:
    columns = {
        "steps": True, "key": False, "prefix": False, "state": False,
        "result": True, "worker": False, "host": False, "pid": True,
    }  # fmt: skip
    rows = [
        [
            f"{task.steps}",
            visible(task.key),
            visible(task.prefix or "–"),
            visible(task.state or "–"),
            size(task.nbytes),
            *_place(task),
        ]
        for task in tasks
    ]
    important = ("steps", "key", "state", "result", "worker", "prefix")
    print_texts(columns, rows, out, important, indent=2)


def _place(row: FileUse | RelatedTask) -> tuple[str, str, str]:
    pid = "–" if row.pid is None else f"{row.pid}"
    return visible(row.worker or "–"), visible(row.host or "–"), pid


def trace_json(trace: Trace) -> str:
    """Return the lineage of a task or file as JSON.

    Parameters
    ----------
    trace : Trace
        The lineage.
    """
    return json.dumps(asdict(trace), ensure_ascii=False, indent=1)
