"""The story of one task, as plain text."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from rich.text import Text

from dask_strata.analysis.story import Story
from dask_strata.report.words import count, duration, size, visible

if TYPE_CHECKING:
    from rich.console import Console


def print_story(told: Story, out: Console) -> None:
    """Print everything about one task."""
    out.print(Text(plain_story(told)), soft_wrap=True)


def plain_story(told: Story) -> str:
    """Return the story of one task as plain text."""
    facts = told.facts
    lines = [f"{visible(told.key)}  ({told.key_type})"]
    if facts:
        lines.append(
            "  "
            + " · ".join(
                filter(
                    None,
                    (
                        facts["state"] and visible(facts["state"]),
                        f"prefix {visible(facts['prefix'])}" if facts["prefix"] else "",
                        facts["function"] and visible(facts["function"]),
                        count(facts["n_attempts"], "attempt"),
                        f"compute {duration(facts['compute_seconds'])}"
                        if facts["compute_seconds"] is not None
                        else "",
                        f"result {size(facts['nbytes'])}" if facts["nbytes"] is not None else "",
                    ),
                )
            )
        )
    for name, keys in (("needs", told.dependencies), ("needed by", told.dependents)):
        if keys:
            more = f" and {len(keys) - 5} more" if len(keys) > 5 else ""  # noqa: PLR2004
            lines.append(f"  {name} {', '.join(visible(k) for k in keys[:5])}{more}")
    previous: datetime | None = None
    for event in told.events:
        when = f"{event.time:%Y-%m-%d %H:%M:%S.%f}" if event.time else "time unknown".ljust(26)
        gap = (event.time - previous).total_seconds() if previous and event.time else 0.0
        previous = event.time or previous
        head = f"{when}  {f'+{duration(gap)}':>10}  {event.layer:<9}  {visible(event.what)}"
        if event.where:
            head += f"  [{visible(event.where)}]"
        lines.append(head)
        if event.detail:
            detail = visible(event.detail, keep_lines=True)
            lines += [" " * 40 + line for line in detail.splitlines()]
    return "\n".join(lines)
