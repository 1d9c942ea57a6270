"""Partitions or groups that have much more data than others."""

from __future__ import annotations

from collections.abc import Iterator

from dask_strata.analysis.diagnosis.claims import Finding
from dask_strata.analysis.diagnosis.evidence import Evidence
from dask_strata.analysis.diagnosis.rules.parallelism.stragglers import stragglers_on_path
from dask_strata.analysis.words import duration, number, size

#: The evidence for a partition whose data are not on record.
_PARTITION = "it is a partition of a collection, and its function computed in proportion"

_DATA = {"nbytes": "result", "input_bytes": "input", "read_bytes": "file"}


def find(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding on tasks that took longer because they had more data.

    Parameters
    ----------
    evidence : Evidence
        Facts of the run.
    """
    late = [s for s in stragglers_on_path(evidence) if s.data is not None]
    if not late:
        return
    claims: dict[int, float] = {}
    uses: dict[int, float] = {}
    for straggler in late:
        left = straggler.excess_seconds
        for index in sorted(straggler.segments, reverse=True):
            seconds = min(evidence.segments[index].seconds, left)
            left -= seconds
            uses[index] = seconds
            claims[index] = seconds * evidence.idle_shares[index]
    worst = max(late, key=lambda s: s.excess_seconds)
    row, kind = worst.attempt, worst.data or "nbytes"
    what = f"its {_DATA[kind]} has {size(row[kind])}" if kind in _DATA else _PARTITION
    much = "data" if kind in _DATA else "CPU time"
    yield Finding(
        "skew",
        f"skewed data: one `{row['prefix']}` took {duration(row['compute_seconds'])}, "
        f"{number(row['compute_seconds'] / worst.median_seconds)} times the median, with "
        f"{number(worst.data_ratio)} times the {much}, while other threads were idle: "
        f"{row['key']}",
        f"{what}; the median of {worst.n:,} `{row['prefix']}` took "
        f"{duration(worst.median_seconds)}",
        "divide the large part: repartition(partition_size=…), rechunk(…), split_out=… in "
        "groupby, or another key for the shuffle",
        f"tasks RUN --prefix {row['prefix']} --sort nbytes",
        claims=claims,
        uses=uses,
    )
