"""Runs imported from the coupler's files, and questions to them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from dask_strata import Run, open_run
from dask_strata.cli import cli
from dask_strata.importers.mofka.importer import ImportedRun, find_files, import_files
from tests.conftest import rows
from tests.support import coupler_files as coupler
from tests.support.coupler_files import (
    COLUMNS,
    T0,
    W1,
    W2,
    added,
    life,
    put,
    transfer,
    worker,
    write,
)

X, Y = ("x", 0), "y-1"

#: Seconds by which the clock of W2 is behind; `middle` of its outgoing transfers shows them.
SHIFT = 2.0


def executed(key: Any, start: float, stop: float, where: str) -> list[coupler.Row]:
    """Return a worker's rows of a task that it executed."""
    return [
        worker(key, "ready", "executing", start, where),
        worker(key, "executing", "memory", stop, where),
    ]


def sent(**more: Any) -> coupler.Row:
    """Return W2's row of sending X to W1; `middle` shows that its clock is `SHIFT` behind."""
    start, stop = T0 + 12, T0 + 12.5
    row = {
        "type": "outgoing_transfer",
        "called_from": W2,
        "who": W1,
        "middle": (start + stop) / 2 - SHIFT,
        "compressed": 50,
        "time": stop + 0.25 - SHIFT,
    }
    return transfer({X: 100}, start, stop, **(row | more))


def received(**more: Any) -> coupler.Row:
    """Return W1's row of the same transfer."""
    return transfer({X: 100}, T0 + 12, T0 + 12.5, **more)


def example_files() -> dict[str, list[coupler.Row]]:
    """Return rows of all files: X ran on W2 and went to W1, where Y needed it."""
    return {
        "scheduler_transition": [
            *life(X, T0 + 10, T0 + 11, W2),
            *life(Y, T0 + 12, T0 + 12.5, W1),
        ],
        "worker_transition": [
            *executed(X, T0 + 10 - SHIFT, T0 + 11 - SHIFT, W2),
            *executed(Y, T0 + 12.5, T0 + 12.625, W1),
        ],
        "worker_transfer": [received(), sent(), sent(time=T0 + 20), received(time=T0 + 21)],
        "worker": [added(W1, T0), added(W2, T0 + 0.5)],
        "client": [{"client": "Client-1", "action": "add", "time": T0 + 1}],
        "graph": [
            {
                "client": "Client-1",
                "keys": str({Y}),
                "dependencies": str({X: set(), Y: {X}}),
                "time": T0 + 2,
            }
        ],
    }


def import_folder(folder: Path, **options: Any) -> ImportedRun:
    """Import a folder into the folder `runs` next to it."""
    return import_files(find_files(folder), folder.parent / "runs", name=folder.name, **options)


def imported_run(folder: Path, *, align: bool = True) -> Run:
    """Import a folder and open the run."""
    return open_run(import_folder(folder).path, align=align)


def run_of(tmp_path: Path, **by_role: Iterable[coupler.Row]) -> Run:
    """Import some files and open the run."""
    return imported_run(write(tmp_path / "csv", by_role))


def invoke(*arguments: object) -> Result:
    """Call the command in this process."""
    return CliRunner().invoke(cli, [str(a) for a in arguments])


def findings(run: Run) -> list[str]:
    """Return the findings of `check`, each as one line with its severity."""
    return [f"{f.severity} {f.process}: {f.text}" for f in run.check().findings]


def finding(run: Run, *words: str) -> str:
    """Return the only finding of `check` that contains all these words."""
    (found,) = (line for line in findings(run) if all(word in line for word in words))
    return found


def one(run: Run, query: str) -> Any:
    """Return the only value in the result of a query."""
    (row,) = rows(run, query)
    (value,) = row.values()
    return value


def seconds(run: Run, query: str) -> list[float]:
    """Return the column `time` of a query in seconds since T0."""
    return [row["time"].timestamp() - T0 for row in rows(run, query)]


COMMANDS = [
    ["show"],
    ["map"],
    ["tasks"],
    ["tasks", "--sort", "compute_seconds"],
    ["check"],
    ["query", "select count(*) from tasks"],
]

ROLES = list(COLUMNS)


def consumer(folder: Path, *lines: str) -> Path:
    """Write a consumer's output with these lines between others."""
    return put(folder / "consumer.o", "\n" + "".join(lines) + "\nTotal time taken = 152.74s\n")
