"""Tasks that ran much longer than others of their prefix, and the data that they had."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from dask_strata.analysis.diagnosis.evidence import Evidence

#: Least number of siblings, least ratio to their median, and least excess in seconds.
_LEAST_SIBLINGS = 3
_LEAST_RATIO = 2.0
_LEAST_EXCESS = 0.25

#: Ratio of the size of data to the median from which the size explains the time.
_LARGE = 1.5

#: Size from which more data can explain more time.
_LEAST_BYTES = 10_000

_SIBLINGS = """
    with chosen as (
        select attempt, _key, coalesce(prefix, '(unknown)') as prefix, compute_seconds, nbytes,
               read_bytes, cpu_seconds
        from attempts where coalesce(prefix, '(unknown)') in (select unnest($1::varchar[]))
          and compute_seconds is not null and outcome not in ('running', 'lost', 'released')
    ), sizes as (
        select _key, max(nbytes) as nbytes from attempts where nbytes is not null group by _key
    ), inputs as (
        select e._key, sum(s.nbytes) as input_bytes
        from (select distinct _key, _dependency from graph_edges
              where _key in (select _key from chosen)) e
        join sizes s on s._key = e._dependency group by e._key
    )
    select prefix, count(*) as n, median(compute_seconds) as median_seconds,
           median(nbytes) as nbytes, median(input_bytes) as input_bytes,
           median(read_bytes) as read_bytes, median(cpu_seconds) as cpu_seconds
    from chosen left join inputs using (_key) group by prefix
"""

_INPUTS = """
    with sizes as (
        select _key, max(nbytes) as nbytes from attempts where nbytes is not null group by _key
    )
    select e._key, sum(s.nbytes)::double as input_bytes
    from (select distinct _key, _dependency from graph_edges
          where _key in (select unnest($1::bigint[]))) e
    join sizes s on s._key = e._dependency group by e._key
"""


class Straggler(NamedTuple):
    """An attempt on the path that ran much longer than its siblings.

    Attributes
    ----------
    attempt : dict
        Its row of `Evidence.attempts`.
    median_seconds : float
        Median of its siblings.
    n : int
        Attempts of its prefix.
    data : str or None
        The kind of data of which it had more than others: nbytes, input_bytes, read_bytes, or
        cpu_seconds of a partition; None if none.
    data_ratio : float
        How many times the median that is.
    segments : list of int
        Its segments.
    """

    attempt: dict[str, Any]
    median_seconds: float
    n: int
    data: str | None
    data_ratio: float
    segments: list[int]

    @property
    def excess_seconds(self) -> float:
        """Seconds above the median."""
        return float(self.attempt["compute_seconds"]) - self.median_seconds


def stragglers_on_path(evidence: Evidence) -> list[Straggler]:
    """Return the attempts on the path that took much longer than others of their prefix.

    Parameters
    ----------
    evidence : Evidence
        Facts of the run.
    """
    segments: dict[int, list[int]] = {}
    for index, runner in evidence.runners.items():
        segments.setdefault(runner.attempt, []).append(index)
    late = []
    for number in segments:
        row = evidence.attempts.get(number)
        stats = evidence.prefixes.get(row["prefix"]) if row else None
        if row is None or stats is None or row["compute_seconds"] is None:
            continue
        excess = row["compute_seconds"] - stats["median_seconds"]
        if (
            stats["n"] > _LEAST_SIBLINGS
            and row["compute_seconds"] > _LEAST_RATIO * stats["median_seconds"]
            and excess > _LEAST_EXCESS
        ):
            late.append(row)
    if not late:
        return []
    prefixes = sorted({row["prefix"] for row in late})
    stats_of = {row["prefix"]: row for row in evidence.run.rows(_SIBLINGS, prefixes)}
    inputs = evidence.run.rows(_INPUTS, sorted({row["_key"] for row in late}))
    input_bytes = {row["_key"]: row["input_bytes"] for row in inputs}
    found = []
    for row in late:
        stats = stats_of[row["prefix"]]
        row = {**row, "input_bytes": input_bytes.get(row["_key"])}  # noqa: PLW2901  with its inputs
        ratios = {
            kind: row[kind] / stats[kind]
            for kind in ("nbytes", "input_bytes", "read_bytes")
            if row[kind] and stats[kind]
        }
        data = max(ratios, key=lambda kind: ratios[kind]) if ratios else None
        large = data is not None and ratios[data] >= _LARGE and row[data] >= _LEAST_BYTES
        if not large and row["key_type"] == "tuple" and row["cpu_seconds"] and stats["cpu_seconds"]:
            # A partition of a collection may have its data only while its function runs.
            data, ratios["cpu_seconds"] = "cpu_seconds", row["cpu_seconds"] / stats["cpu_seconds"]
            large = ratios["cpu_seconds"] >= _LEAST_RATIO
        found.append(
            Straggler(
                row,
                stats["median_seconds"],
                stats["n"],
                data if large else None,
                ratios[data] if large and data else 1.0,
                segments[row["attempt"]],
            )
        )
    return found
