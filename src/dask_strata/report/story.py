"""The story of one task, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from rich.text import Text

from dask_strata.analysis.story import Event, Story
from dask_strata.report.words import count, duration, size, visible

if TYPE_CHECKING:
    from rich.console import Console

#: Most dependencies, and most dependents, that are listed.
_NEIGHBOURS = 5


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
    yield count(facts["n_attempts"], "attempt")
    if facts["compute_seconds"] is not None:
        yield f"compute {duration(facts['compute_seconds'])}"
    if facts["nbytes"] is not None:
        yield f"result {size(facts['nbytes'])}"


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
            "dependencies": story.dependencies,
            "dependents": story.dependents,
            "events": [vars(event) for event in story.events],
        },
        default=lambda v: v.isoformat() if hasattr(v, "isoformat") else str(v),
        ensure_ascii=False,
        indent=1,
    )
