"""The metadata map: the kinds of facts about a run, by step and layer, with their row counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dask_strata.schema import TABLES

if TYPE_CHECKING:
    from dask_strata.run import Run

STEPS = {1: "Launch", 2: "Submit", 3: "Schedule", 4: "Execute", 5: "Run"}

#: The cells in order: step, layer, level, and the facts that the cell holds.
CELLS = (
    (1, "job", "job", "launcher, machine, network, file systems, limits, command"),
    (1, "job", "config", "Dask's settings and their sources, versions of packages"),
    (2, "workflow system", "client", "script, git, connections, submissions and their lines"),
    (2, "workflow system", "task graph", "tasks, dependencies, layers, annotations"),
    (3, "workflow system", "scheduler", "transitions, workers, stealing, events, load"),
    (
        4,
        "workflow system",
        "worker",
        "transitions, attempts, transfers, P2P shuffles, spills, load",
    ),
    (5, "system", "process", "Darshan's logs; CPU, I/O and memory of processes over time"),
    (5, "system", "thread", "CPU, I/O, memory and files of each execution"),
    (5, "system", "coroutine", "profiles of functions and coroutines, if switched on"),
)

#: Commands that record a level which is not recorded by default, because of its overhead.
BY_CHOICE = {"coroutine": "dask-strata record --yappi wall|cpu SCRIPT"}


@dataclass(frozen=True)
class Cell:
    """One cell of the map.

    Attributes
    ----------
    step : int
        Step of a run, see `STEPS`.
    layer, level : str
        Its place in the software stack.
    promise : str
        The facts that it holds.
    rows : dict
        Number of rows by table.
    imported : tuple of str
        Its tables with rows from files that were imported into the run.
    by_choice : str or None
        Command that records the cell, if it is not recorded by default.
    """

    step: int
    layer: str
    level: str
    promise: str
    rows: dict[str, int]
    imported: tuple[str, ...] = ()
    by_choice: str | None = None

    @property
    def total(self) -> int:
        """Number of rows in all tables of the cell."""
        return sum(self.rows.values())


def metadata_map(run: Run) -> tuple[Cell, ...]:
    """Return the cells of the map with the row counts of recorded and derived tables.

    Parameters
    ----------
    run : Run
        The run.
    """
    cells = []
    for step, layer, level, promise in CELLS:
        names = [
            name
            for name, table in TABLES.items()
            if (table.step, table.layer, table.level) == (step, layer, level)
            and (run.record.imported or not table.imported)
        ]
        rows = {name: run.n_rows(name) for name in names}
        imported = tuple(n for n in names if rows[n] and TABLES[n].added)
        cells.append(Cell(step, layer, level, promise, rows, imported, BY_CHOICE.get(level)))
    return tuple(cells)
