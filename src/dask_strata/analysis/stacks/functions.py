"""Sums of Dask's statistical profile: by function, module, owner, prefix, worker or time."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dask_strata.analysis.stacks.stacks import Function, StackFilter, stacks
from dask_strata.analysis.tasks import Selection, ordered
from dask_strata.errors import UsageError
from dask_strata.schema.owners import owner_of

if TYPE_CHECKING:
    from dask_strata.run import Run


def _of_owner(function: Function) -> dict[str, Any]:
    return owner_of(function.module or "")._asdict()


#: Columns that identify a row, for sums over functions.
_OF_FUNCTIONS: dict[str, Callable[[Function], dict[str, Any]]] = {
    "function": lambda f: {"name": f.name, "module": f.module, "line": f.line, **_of_owner(f)},
    "module": lambda f: {"module": f.module, **_of_owner(f)},
    "owner": _of_owner,
}

#: Columns of ``stacks`` that identify a row, for the other sums.
_OF_SAMPLES = {"prefix": "prefix", "worker": "worker", "time": "start"}

#: Kinds of sums.
STACK_KINDS = (*_OF_FUNCTIONS, *_OF_SAMPLES)


def select_functions(
    run: Run,
    which: StackFilter,
    *,
    by: str = "function",
    sort: str | None = None,
    limit: int = 0,
) -> Selection:
    """Return sums of the samples of Dask's statistical profile.

    Parameters
    ----------
    run : Run
        The run.
    which : StackFilter
        Which samples.
    by : str, optional
        Kind of rows, see `STACK_KINDS`. Own samples of a function are those in which it was the
        innermost; its others are in functions that it called. The time is that of a cycle of Dask,
        1 s by default.
    sort : str, optional
        Column to sort by, largest first; smallest first if the name begins with ``-``.
    limit : int, optional
        Most rows to return; 0 for all.

    Raises
    ------
    StrataError
        No profile is on record.
    UsageError
        There is no such kind, column, prefix or worker.
    """
    if by not in STACK_KINDS:
        raise UsageError(
            f"Dask's profile has no sums by {by}.", hint=f"There are: {', '.join(STACK_KINDS)}"
        )
    rows = _sums_of_samples(run, which, by) if by in _OF_SAMPLES else _sums(run, which, by)
    table = pa.Table.from_pylist(rows) if rows else pa.table({"n_samples": pa.array([], "i8")})
    if sort:
        table = ordered(table, sort)
    return Selection(table.slice(0, limit) if limit else table, len(table))


def _sums(run: Run, which: StackFilter, by: str) -> list[dict[str, Any]]:
    """Return sums over functions; one that occurs twice in a stack counts once."""
    identity = _OF_FUNCTIONS[by]
    columns: dict[Hashable, dict[str, Any]] = {}
    own: dict[Hashable, list[float]] = {}
    total: dict[Hashable, list[float]] = {}
    n_all = 0
    for stack in stacks(run, which):
        n_all += stack.n_samples
        keys: list[Hashable] = []
        for function in stack.frames:
            named = identity(function)
            keys.append(tuple(named.values()))
            columns.setdefault(keys[-1], named)
        for key in dict.fromkeys(keys):
            _add(total, key, stack.n_samples, stack.seconds)
        if keys:
            _add(own, keys[-1], stack.n_samples, stack.seconds)
    rows = []
    for key, (n, seconds) in total.items():
        own_n, own_seconds = own.get(key, (0, 0.0))
        rows.append({
            **columns[key],
            "own_samples": int(own_n),
            "total_samples": int(n),
            "own_seconds": own_seconds,
            "total_seconds": seconds,
            "own_share": own_n / n_all,
            "total_share": n / n_all,
        })  # fmt: skip
    return sorted(rows, key=lambda r: (-r["own_samples"], -r["total_samples"]))


def _add(sums: dict[Hashable, list[float]], key: Hashable, n: int, seconds: float) -> None:
    pair = sums.setdefault(key, [0, 0.0])
    pair[0] += n
    pair[1] += seconds


def _sums_of_samples(run: Run, which: StackFilter, by: str) -> list[dict[str, Any]]:
    condition, values = which.where(run)
    column = _OF_SAMPLES[by]
    # Cycles of several workers overlap: a row of time is a second.
    shown = "date_trunc('second', start)" if by == "time" else column
    order = "1" if by == "time" else "n_samples desc, 1"
    return run.rows(
        f"""
        select {shown} as {by}, sum(n_samples)::bigint as n_samples,
               sum(estimated_seconds) as estimated_seconds,
               sum(n_samples) / sum(sum(n_samples)) over () as share
        from stacks where {condition} group by 1 order by {order}
        """,  # noqa: S608  names of columns
        *values,
    )
