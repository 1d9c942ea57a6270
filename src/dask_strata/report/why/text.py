"""Why workers ended: one screen of text, and JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.text import Text

from dask_strata.analysis.why.attempts import CodeLine, EndedAttempt, EndedAttempts
from dask_strata.analysis.why.ends import WorkerEnd, planned_counts
from dask_strata.analysis.why.logs import Logs
from dask_strata.analysis.why.lost import Lost
from dask_strata.analysis.why.memory import Memory, MemorySample
from dask_strata.analysis.why.why import PostMortem, Why
from dask_strata.report.words import count, duration, percent, size, visible

if TYPE_CHECKING:
    from datetime import datetime

    from rich.console import Console

#: Most ends in the list below the post-mortems.
_LISTED = 8

#: Of so many attempts, also those are shown that waited on the worker.
_FEW = 3

#: Most characters of a line of code or of a log, and width of the labels.
_CLIPPED, _LABEL = 110, 11

#: Width without a terminal.
_WIDTH = 100

#: Outcomes of attempts that ended with a worker, and what became of the task.
_OUTCOMES = {
    "lost": "assigned to another worker",
    "erred": "failed: Dask gave the task up",
    "released": "its task was no longer needed",
    "running": "nothing later is on record",
}


class ShownWhy(Why):
    """Why workers ended; ``print`` shows it."""

    def __str__(self) -> str:
        return plain_why(self)

    __repr__ = __str__


def print_why(found: Why, out: Console) -> None:
    """Print why workers ended.

    Parameters
    ----------
    found : Why
        The answer.
    out : Console
        The console.
    """
    width = out.width if out.is_terminal else _WIDTH
    out.print(Text(plain_why(found, width)), soft_wrap=True)


def plain_why(found: Why, width: int = _WIDTH) -> str:
    """Return why workers ended as plain text.

    Parameters
    ----------
    found : Why
        The answer.
    width : int, optional
        Longest line, in characters, except keys and paths that do not fit.
    """
    lines = [_headline(found)]
    for post_mortem in found.post_mortems:
        lines += ["", *_post_mortem(post_mortem, width)]
    shown = {id(each.end) for each in found.post_mortems}
    others = [end for end in found.ends if id(end) not in shown]
    if found.worker is None:
        others = [end for end in others if not end.planned]
    if others:
        lines += ["", *_others(others)]
    return "\n".join(lines)


def _headline(found: Why) -> str:
    if found.worker is not None:
        times = "" if len(found.ends) == 1 else f" {len(found.ends)} times"
        return f"worker {visible(found.worker)} ended{times}"
    if not found.ends:
        return "no worker ended before the recording did"
    unexpected = sum(end.ended == "unexpected" for end in found.ends)
    unknown = sum(end.ended is None for end in found.ends)
    planned = planned_counts(found.ends)
    first = (
        f"{count(unexpected, 'worker')} ended unexpectedly"
        if unexpected
        else "no worker ended unexpectedly"
    )
    if unknown:
        first += f"; of {count(unknown, 'end')} it is not on record whether it was planned"
    if not planned:
        return first
    how = "; ".join(f"{n:,} {visible(phrase)}" for phrase, n in planned)
    return f"{first}; {sum(n for _, n in planned):,} as planned: {how}"


def _post_mortem(found: PostMortem, width: int) -> Iterator[str]:
    end = found.end
    yield " · ".join(_place(end))
    parts: list[tuple[str, list[str]]] = [
        ("how", [_how(end)]),
        ("whose act", [end.act]),
        ("memory", list(_memory(found.memory, end))),
        *_attempts(found.attempts, end),
        ("lost", list(_lost(found.lost))),
        *_logs(found.logs, width),
    ]
    if end.advice is not None:
        parts.append(("what to do", [end.advice]))
    for label, texts in parts:
        yield from _labelled(label, texts, width)


def _labelled(label: str, texts: list[str], width: int) -> Iterator[str]:
    head = f"  {label}".ljust(_LABEL + 2)
    for text in texts:
        indent = " " * (len(text) - len(text.lstrip()) + 2 * text.startswith(" "))
        wrapped = textwrap.wrap(
            visible(text), max(width - len(head), 40), break_long_words=False,
            break_on_hyphens=False, subsequent_indent=indent,
        )  # fmt: skip
        for each in wrapped or [""]:
            yield (head + each.rstrip()).rstrip()
            head = " " * len(head)


def _place(end: WorkerEnd) -> Iterator[str]:
    yield f"worker {visible(end.label)}"
    if end.name is not None and end.name != end.worker:
        yield visible(end.worker)
    if end.host is not None:
        yield f"host {visible(end.host)}"
    if end.pid is not None:
        yield f"pid {end.pid}"
    after = "" if end.start is None else f", {_seconds(end.start, end.stop)} after it connected"
    yield f"removed at {end.stop:%Y-%m-%d %H:%M:%S} UTC{after}"


def _seconds(start: datetime, stop: datetime) -> str:
    return duration((stop - start).total_seconds())


def _before_end(time: datetime, end: WorkerEnd) -> str:
    """Return how long before the end a time was; a worker that closes may live a little longer."""
    if time > end.stop:
        return f"{_seconds(end.stop, time)} after its removal"
    return f"{_seconds(time, end.stop)} before the end"


def _how(end: WorkerEnd) -> str:
    if end.planned:
        return f"{end.phrase}; this end was planned"
    return end.phrase + ("" if end.ended else "; whether it was planned is not on record")


def _memory(memory: Memory, end: WorkerEnd) -> Iterator[str]:
    if memory.samples:
        last = memory.samples[-1]
        yield f"{_sample(last, memory.limit_bytes)}, {_before_end(last.time, end)}"
        earlier = ", ".join(
            f"{size(s.rss_bytes)} ({_before_end(s.time, end).removesuffix(' the end')})"
            for s in reversed(memory.samples[:-1])
        )
        if earlier:
            yield f"earlier: {earlier}"
    else:
        yield "no sample is on record"
    limits = [] if memory.limit_bytes is None else [f"Dask's limit {size(memory.limit_bytes)}"]
    limits += [f"{name} at {percent(share)}" for name, share in memory.thresholds.items()]
    if memory.group_limit_bytes is not None:
        limits.append(f"control group {size(memory.group_limit_bytes)}")
    if memory.host_bytes is not None:
        limits.append(f"host {size(memory.host_bytes)}")
    if limits:
        yield ", ".join(limits)


def _sample(sample: MemorySample, limit: int | None) -> str:
    text = size(sample.rss_bytes)
    if limit and sample.rss_bytes is not None:
        text += f" of {size(limit)} ({percent(sample.rss_bytes / limit)})"
    parts = [
        f"{name} {size(value)}"
        for name, value in (
            ("results", sample.managed_bytes),
            ("other", sample.unmanaged_bytes),
            ("spilled", sample.spilled_bytes),
        )
        if value
    ]
    if sample.status not in {None, "running"}:
        parts.append(str(sample.status))
    return f"{text}: {', '.join(parts)}" if parts else text


def _attempts(found: EndedAttempts, end: WorkerEnd) -> Iterator[tuple[str, list[str]]]:
    total = found.running + found.unknown + found.waiting
    if not total:
        yield "tasks", ["no task was on it"]
        return
    kinds = [
        words
        for n, words in (
            (found.running, f"{found.running:,} running"),
            (found.unknown, f"{found.unknown:,} running or about to (the record stops before)"),
            (found.waiting, f"{found.waiting:,} waiting there"),
        )
        if n
    ]
    known = ""
    if found.last_row is not None:
        known = f", as of its last row on record, {_before_end(found.last_row, end)}"
    lines = [", ".join(kinds) + known]
    shown = found.first if total <= _FEW else [a for a in found.first if a.state != "waiting"]
    for attempt in shown or found.first[:1]:
        lines += _attempt(attempt, end)
    yield "tasks", lines


def _attempt(attempt: EndedAttempt, end: WorkerEnd) -> Iterator[str]:
    ran = {
        "running": f"ran for {duration(attempt.seconds)}",
        "unknown": "was assigned to it"
        + ("" if attempt.start is None else f" for {_seconds(attempt.start, end.stop)}"),
        "waiting": "waited there",
    }[attempt.state]
    outcome = _OUTCOMES.get(attempt.outcome, attempt.outcome)
    yield f"{attempt.key}  {ran}; {outcome}"
    for line in attempt.lines:
        yield f"  {_line(line, end)}"


def _line(line: CodeLine, end: WorkerEnd) -> str:
    place = "" if line.file is None else f"{line.file}:{line.line}"
    if line.function:
        place += f" in {line.function}"
    if line.kind == "submitted":
        code = _clipped(_first_line(line.text or ""))
        return f"submitted at {place}: {code}" if place else f"submitted by: {code}"
    when = "" if line.time is None else f", last seen {_before_end(line.time, end)}"
    return f"at {place}" + (f" ({line.text})" if line.text else "") + when


def _first_line(text: str) -> str:
    return next((" ".join(each.split()) for each in text.splitlines() if each.strip()), "")


def _clipped(text: str, most: int = _CLIPPED) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _lost(lost: Lost) -> Iterator[str]:
    if not lost.n_held:
        yield "it held no result"
    elif not lost.n_lost:
        yield f"none of {count(lost.n_held, 'result')}: other workers had copies"
    else:
        held = count(lost.n_held, "result")
        of_them = held if lost.n_lost == lost.n_held else f"{lost.n_lost:,} of {held}"
        keys = ", ".join(lost.keys)
        more = f" and {lost.n_lost - len(lost.keys):,} more" if lost.n_lost > len(lost.keys) else ""
        nbytes = "" if lost.lost_bytes is None else f" ({size(lost.lost_bytes)})"
        yield f"{of_them} that only it held{nbytes}: {keys}{more}"
    if lost.n_scattered:
        what = count(lost.n_scattered, "scattered result")
        yield f"{what} of these cannot be computed again"
    if lost.n_again:
        again = f"{count(lost.n_again, 'task')} had to be computed again for that: "
        if not lost.n_computed:
            yield again + "none was"
        else:
            all_ = lost.n_computed == lost.n_again
            n = "all" if all_ else f"{lost.n_computed:,}"
            yield again + f"{n} were, in {duration(lost.seconds)} of their functions"
    elif lost.n_lost:
        yield "nothing was computed again for that"


def _logs(logs: Logs | None, width: int) -> Iterator[tuple[str, list[str]]]:
    if logs is None:
        return
    if logs.fault is not None:
        yield "fault", [logs.fault, *(f"  {frame}" for frame in logs.frames)]
    lines = []
    for line in logs.last:
        where = " ".join(filter(None, (line.role, line.level, line.logger or line.stream)))
        text = f"{line.time:%H:%M:%S.%f}"[:-3] + f"  {where}: {_first_line(line.message or '')}"
        lines.append(_clipped(text, width - _LABEL - 2))
    if lines or logs.fault is None:
        yield "last lines", lines or ["none is on record"]


def _others(ends: list[WorkerEnd]) -> Iterator[str]:
    yield "other ends  (why RUN PID shows each)"
    for end in ends[:_LISTED]:
        pid = "" if end.pid is None else f", pid {end.pid}"
        yield f"  {end.stop:%H:%M:%S}  worker {visible(end.label)}{pid}: {visible(end.phrase)}"
    if (rest := len(ends) - _LISTED) > 0:
        yield f"  and {rest:,} more: query RUN 'from worker_ends'"


def why_json(found: Why) -> str:
    """Return why workers ended as JSON, with times in ISO 8601.

    Parameters
    ----------
    found : Why
        The answer.
    """
    return json.dumps(
        asdict(found),
        default=lambda v: v.isoformat() if hasattr(v, "isoformat") else str(v),
        ensure_ascii=False,
        indent=1,
    )
