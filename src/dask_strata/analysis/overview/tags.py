"""The tags of a run: those of its recording, and those that were added to it later."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dask_strata.run import Run

_TAGS = """
    select distinct c.value from config c join processes p using (process)
    where c.name = 'dask_strata.tags' and p.role in ('scheduler', 'client') and c.value <> '[]'
    order by 1
"""


def recorded_tags(run: Run) -> tuple[str, ...]:
    """Return the tags that a run was recorded with: words, or pairs such as ``size=big``.

    Parameters
    ----------
    run : Run
        The run.
    """
    tags: dict[str, None] = {}
    for row in run.rows(_TAGS):
        with suppress(ValueError, TypeError):
            tags.update(dict.fromkeys(map(str, json.loads(row["value"]))))
    return tuple(tags)


def tag_facts(tags: Iterable[str]) -> dict[str, str | None]:
    """Return tags as facts by which runs are grouped: words as ``tag``, pairs as ``tag.NAME``.

    Parameters
    ----------
    tags : iterable of str
        The tags.

    Examples
    --------
    >>> tag_facts(["fast", "size=big", "new", "fast"])
    {'tag': 'fast, new', 'tag.size': 'big'}
    """
    return with_tags({}, tags)


def with_tags(facts: Mapping[str, str | None], tags: Iterable[str]) -> dict[str, str | None]:
    """Return facts with those of further tags, see `tag_facts`.

    Parameters
    ----------
    facts : mapping of str to str or None
        Facts, among them those of other tags.
    tags : iterable of str
        The further tags.

    Examples
    --------
    >>> with_tags({"name": "x", "tag": "fast"}, ["new"])
    {'name': 'x', 'tag': 'fast, new'}
    """
    added: dict[str, list[str]] = {}
    for text in tags:
        name, equals, value = text.partition("=")
        fact = f"tag.{name}" if equals else "tag"
        known = facts.get(fact)
        values = added.setdefault(fact, known.split(", ") if known else [])
        new = value if equals else name
        if new not in values:
            values.append(new)
    return {**facts, **{fact: ", ".join(values) for fact, values in added.items()}}
