"""Transfers between each two workers, as a matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dask_strata.run import Run

#: Most workers with a row and a column of their own: those with the most bytes.
MOST_WORKERS = 32

#: Of what is not a worker, or not on record; as in `traffic.pairs`.
_UNKNOWN, _CLIENT = "(unknown)", "a client"

_ENDS = """
    with ends as (
        select coalesce(source, $1) as worker, total_bytes as nbytes from transfers
        union all select coalesce(destination, $2), total_bytes from transfers
    ), names as (select worker, any_value(name) as name from workers group by worker)
    select worker, any_value(name) as name, coalesce(sum(nbytes), 0)::bigint as nbytes
    from ends left join names using (worker)
    group by worker order by nbytes desc, worker
"""

_CELLS = """
    with places as (select unnest($3) as worker, generate_subscripts($3, 1) - 1 as place)
    select coalesce(s.place, $4)::bigint as source, coalesce(d.place, $4)::bigint as destination,
           count(*) as n, sum(n_keys)::bigint as n_keys, sum(total_bytes)::bigint as nbytes,
           sum((epoch_ns(stop) - epoch_ns(start)) / 1e9) as seconds
    from transfers t left join places s on s.worker = coalesce(t.source, $1)
    left join places d on d.worker = coalesce(t.destination, $2)
    group by 1, 2 order by 1, 2
"""


@dataclass(frozen=True)
class End:
    """A worker, or what else sent or received results; the name of a worker is None if unknown."""

    worker: str
    name: str | None


@dataclass(frozen=True)
class Cell:
    """All transfers from one end to another one, by their places in the matrix.

    Bytes, results and seconds are None if they are unknown for all of the transfers. Seconds are
    the sum of all transfers; several are on their way at once.
    """

    source: int
    destination: int
    n: int
    n_keys: int | None
    nbytes: int | None
    seconds: float | None


@dataclass(frozen=True)
class TransferMatrix:
    """Transfers between each two ends.

    Attributes
    ----------
    ends : tuple of End
        The ends, by name. Cells of the place after the last one are of all others.
    cells : tuple of Cell
        Pairs with transfers, by source and destination.
    n_others : int
        Ends without a place of their own.
    """

    ends: tuple[End, ...]
    cells: tuple[Cell, ...]
    n_others: int


def transfer_matrix(run: Run) -> TransferMatrix:
    """Return the transfers between each two workers.

    Parameters
    ----------
    run : Run
        The run.
    """
    rows = run.rows(_ENDS, _UNKNOWN, _CLIENT)
    ends = [End(row["worker"], row["name"]) for row in rows[:MOST_WORKERS]]
    if not ends:
        return TransferMatrix((), (), 0)
    ends.sort(key=_order)
    workers = [end.worker for end in ends]
    cells = run.rows(_CELLS, _UNKNOWN, _CLIENT, workers, len(workers))
    return TransferMatrix(
        tuple(ends), tuple(Cell(**row) for row in cells), len(rows) - len(workers)
    )


def _order(end: End) -> tuple[bool, int, str, str]:
    """Return the place of an end among others: workers by number or name, then the others."""
    name = end.name or ""
    number = int(name) if name.isdecimal() and len(name) < 10 else 0  # noqa: PLR2004  fits in 32 bits
    return end.worker in {_UNKNOWN, _CLIENT}, number, name, end.worker
