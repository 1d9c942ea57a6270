"""Dependencies between keys, in numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dask_strata.analysis.series.columns import Ints, columns

if TYPE_CHECKING:
    from dask_strata.run import Run

_EDGES = "select _key::bigint as task, _dependency::bigint as needs from graph_edges"


def dependencies(run: Run) -> tuple[Ints, Ints]:
    """Return the ids of keys and those of the keys that they depend on, each pair once.

    Parameters
    ----------
    run : Run
        The run. Several of its submissions may contain the same dependency.
    """
    found = columns(run, _EDGES, narrow=("task", "needs"))
    order = np.lexsort((found["needs"], found["task"]))
    task, needs = found.pop("task")[order], found.pop("needs")[order]
    new = np.ones(len(order), np.bool_)
    new[1:] = (task[1:] != task[:-1]) | (needs[1:] != needs[:-1])
    return task[new], needs[new]
