"""What the tasks of each prefix call, and what Dask fused into them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dask_strata.run import Run

#: Most contents of each prefix: those of the most tasks.
MOST_CONTENTS = 3

#: Most functions, and most layers, of one content.
MOST_NAMES = 20

_CONTENTS = """
    with contents as (
        select coalesce(prefix, '(unknown)') as prefix, function, functions, fused_layers,
               fused_prefixes, count(distinct _key) as n_tasks
        from graph_tasks group by all
    )
    select * from contents
    qualify row_number() over (
        partition by prefix order by fused_layers is null, n_tasks desc,
                                       function, functions, fused_layers) <= $1
    order by prefix, fused_layers is null, n_tasks desc, function, functions, fused_layers
"""


@dataclass(frozen=True)
class Content:
    """What tasks of a prefix consist of.

    Attributes
    ----------
    prefix : str
        The prefix.
    n_tasks : int
        Tasks of this content.
    functions : tuple of str
        Functions that they call, in order; empty for data.
    layers, prefixes : tuple of str
        Layers and prefixes of the tasks that Dask fused into each; empty if it fused none.
    n_left_out : int
        Functions and layers above `MOST_NAMES`.
    """

    prefix: str
    n_tasks: int
    functions: tuple[str, ...]
    layers: tuple[str, ...]
    prefixes: tuple[str, ...]
    n_left_out: int

    @property
    def fused(self) -> bool:
        """Whether Dask fused tasks into them."""
        return bool(self.layers)


def contents(run: Run) -> tuple[Content, ...]:
    """Return what tasks consist of, by prefix, fused ones first.

    Parameters
    ----------
    run : Run
        The run.

    Returns
    -------
    tuple of Content
        At most `MOST_CONTENTS` of each prefix. A prefix without a task on record in a graph, as
        in imported runs, has none.
    """
    return tuple(
        _content(
            row["prefix"],
            row["n_tasks"],
            _names(row["functions"]) or tuple(filter(None, [row["function"]])),
            _names(row["fused_layers"]),
            _names(row["fused_prefixes"]),
        )
        for row in run.rows(_CONTENTS, MOST_CONTENTS)
    )


def _content(
    prefix: str,
    n_tasks: int,
    functions: tuple[str, ...],
    layers: tuple[str, ...],
    prefixes: tuple[str, ...],
) -> Content:
    left_out = sum(max(len(names) - MOST_NAMES, 0) for names in (functions, layers))
    return Content(
        prefix,
        n_tasks,
        functions[:MOST_NAMES],
        layers[:MOST_NAMES],
        prefixes[:MOST_NAMES],
        left_out,
    )


def _names(text: str | None) -> tuple[str, ...]:
    """Return the names of a list in JSON; none if it is damaged."""
    try:
        found = json.loads(text or "[]")
    except ValueError:
        return ()
    return tuple(map(str, found)) if isinstance(found, list) else ()
