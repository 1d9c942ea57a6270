"""Names of workers on the page: a worker that is restarted keeps its name and has a new address."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dask_strata.run import Run

_WORKERS = """
    select worker, any_value(name) as name from workers where worker is not null group by worker
"""


def worker_names(run: Run) -> dict[str, str]:
    """Return a name for each address of a worker, with the address where others share the name.

    Parameters
    ----------
    run : Run
        The run.
    """
    rows = run.rows(_WORKERS)
    n = Counter(row["name"] for row in rows)
    return {row["worker"]: _name(row["worker"], row["name"], n[row["name"]]) for row in rows}


def _name(worker: str, name: str | None, n: int) -> str:
    if not name:
        return worker
    return name if n == 1 else f"{name} · {worker.rsplit('://', maxsplit=1)[-1]}"
