"""The story of one task, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.text import Text

from dask_strata.analysis.story import LEAST_OTHER_CPU_SECONDS, Event, Story
from dask_strata.analysis.worker_ends import words_of
from dask_strata.report.lineage import evidence_of, part_of, place_words
from dask_strata.report.words import count, duration, size, visible

if TYPE_CHECKING:
    from rich.console import Console

#: Most dependencies, most dependents and most files that are listed.
_NEIGHBOURS = 5
_FILES = 10
#: Most attempts whose worker's end has a line.
_ENDS = 10


def print_story(story: Story, out: Console) -> None:
    """Print all events of one task.

    Parameters
    ----------
    story : Story
        The story of the task.
    out : Console
        The console.
    """
    out.print(Text(plain_story(story)), soft_wrap=True)


def plain_story(story: Story) -> str:
    """Return the story of one task as plain text.

    Parameters
    ----------
    story : Story
        The story of the task.
    """
    lines = [f"{visible(story.key)}  ({story.key_type})"]
    if story.facts:
        lines.append("  " + " · ".join(_facts(story)))
    if place := place_of(story):
        lines.append(f"  {place}")
    lines += [f"  {line}" for line in end_lines(story)]
    lines += [f"  {line}" for line in file_lines(story)]
    for name, keys in (("depends on", story.dependencies), ("needed by", story.dependents)):
        if keys:
            rest = len(keys) - _NEIGHBOURS
            more = f" and {rest} more" if rest > 0 else ""
            lines.append(f"  {name} {', '.join(visible(k) for k in keys[:_NEIGHBOURS])}{more}")
    previous: datetime | None = None
    for event in story.events:
        lines += _event(event, previous)
        previous = event.time or previous
    return "\n".join(lines)


def _facts(story: Story) -> Iterator[str]:
    facts = story.facts
    if facts["state"]:
        yield visible(facts["state"])
    if facts["prefix"]:
        yield f"prefix {visible(facts['prefix'])}"
    if facts["function"]:
        yield visible(facts["function"])
    yield (
        "finished before the recording"
        if facts["finished_before"]
        else count(facts["n_attempts"], "attempt")
    )
    if facts["compute_seconds"] is not None:
        yield f"compute {duration(facts['compute_seconds'])}"
    yield from cpu_words(facts)
    if facts["nbytes"] is not None:
        yield f"result {size(facts['nbytes'])}"


def cpu_words(facts: dict[str, Any]) -> Iterator[str]:
    """Yield the CPU time of a task and that of other threads, as far as they are known.

    Parameters
    ----------
    facts : dict
        A row of the table ``tasks``.
    """
    if facts.get("cpu_seconds") is not None:
        yield f"CPU {duration(facts['cpu_seconds'])}"
    if (facts.get("other_cpu_seconds") or 0) >= LEAST_OTHER_CPU_SECONDS:
        yield f"other threads {duration(facts['other_cpu_seconds'])} of CPU"


def place_of(story: Story) -> str:
    """Return the place of the task's last attempt in words; empty if it is unknown."""
    parts = [*place_words(story.facts.get("worker"), story.host, story.pid)]
    if story.thread is not None:
        parts.append(f"thread {story.thread}")
    return " · ".join(parts)


def end_lines(story: Story) -> Iterator[str]:
    """Yield a line for each attempt that ended with its worker, and how the worker ended."""
    for end in story.worker_ends[:_ENDS]:
        yield f"attempt {end['nth']} of {end['n_attempts']}: {visible(words_of(end))}"
    if (rest := len(story.worker_ends) - _ENDS) > 0:
        yield f"and {count(rest, 'more attempt')} that ended with a worker"


def file_lines(story: Story) -> Iterator[str]:
    """Yield a line for each file of the task, and one for the files that are left out."""
    for file in story.files[:_FILES]:
        yield file_line(file)
    if (rest := len(story.files) - _FILES) > 0:
        yield f"and {count(rest, 'more file')} or ranges: --format json shows all"
    named = {(file["uri"], file["first"], file["last"]) for file in story.files}
    for chunk in story.chunks[:_FILES]:
        if (chunk["uri"], chunk["first"], chunk["last"]) not in named:
            facts = {**chunk, "unit": "entries", "nbytes": None, "claimed": False, "seen": False}
            yield f"chunk of {visible(chunk['uri'] or 'an unnamed file')}  " + " · ".join(
                _file_facts(facts)
            )


def file_line(file: dict[str, Any]) -> str:
    """Return a file of a task in one line: its use, part, events and bytes.

    Parameters
    ----------
    file : dict
        A row of `Task.files`.
    """
    return (
        f"{_USES.get(file['mode'], 'uses')} {visible(file['uri'])}  {' · '.join(_file_facts(file))}"
    )


_USES = {"read": "reads", "write": "writes", "update": "reads and writes"}


def _file_facts(file: dict[str, Any]) -> Iterator[str]:
    if (part := part_of(file)) != "–":
        yield part
    if file["events"] is not None:
        yield count(file["events"], "event")
    if file["read_bytes"] is not None:
        yield f"{size(file['read_bytes'])} read ({_SOURCES[file['bytes_from']]})"
    elif file["nbytes"] is not None:
        yield size(file["nbytes"])
    if evidence := evidence_of(file):
        yield evidence


#: Sources of bytes read, see `dask_strata.analysis.lineage.FileUse`.
_SOURCES = {
    "library": "counted by the library",
    "thread": "by its thread, counted by the kernel",
    "darshan": "traced by Darshan",
}


def _event(event: Event, previous: datetime | None) -> Iterator[str]:
    when = f"{event.time:%Y-%m-%d %H:%M:%S.%f}" if event.time else "time unknown".ljust(26)
    gap = (event.time - previous).total_seconds() if previous and event.time else 0.0
    head = f"{when}  {f'+{duration(gap)}':>10}  {event.layer:<9}  {visible(event.what)}"
    yield f"{head}  [{visible(event.where)}]" if event.where else head
    if event.detail:
        for line in visible(event.detail, keep_lines=True).splitlines():
            yield " " * 40 + line


def story_json(story: Story) -> str:
    """Return the story of one task as JSON, with times in ISO 8601.

    Parameters
    ----------
    story : Story
        The story of the task.
    """
    return json.dumps(
        {
            "key": story.key,
            "key_type": story.key_type,
            "facts": story.facts,
            "host": story.host,
            "pid": story.pid,
            "thread": story.thread,
            "files": story.files,
            "chunks": story.chunks,
            "worker_ends": story.worker_ends,
            "dependencies": story.dependencies,
            "dependents": story.dependents,
            "events": [vars(event) for event in story.events],
        },
        default=lambda v: v.isoformat() if hasattr(v, "isoformat") else str(v),
        ensure_ascii=False,
        indent=1,
    )
