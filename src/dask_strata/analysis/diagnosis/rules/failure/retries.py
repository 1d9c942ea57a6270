"""Attempts that failed and were tried again."""

from __future__ import annotations

from collections.abc import Iterator

from dask_strata.analysis.diagnosis.claims import Finding
from dask_strata.analysis.diagnosis.evidence import Evidence
from dask_strata.analysis.failures import without_addresses
from dask_strata.analysis.words import count, duration

_RETRIED = """
    select coalesce(prefix, '(unknown)') as prefix, exception, count(*) as n,
           count(distinct _key) as n_tasks, count(distinct worker) as n_workers,
           sum(compute_seconds) as seconds, any_value(key) as key
    from attempts where outcome = 'retried' group by 1, 2 order by n desc, 1, 2
"""

#: Most exceptions in a sentence, and longest exception.
_MOST, _LONGEST = 3, 120


def find(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding on retries, by exception.

    Parameters
    ----------
    evidence : Evidence
        Facts of the run.
    """
    kinds: dict[str, dict[str, float]] = {}
    example = None
    for row in evidence.run.rows(_RETRIED):
        text = row["exception"] or "unknown exception"
        kind = without_addresses(text, row["key"]).split("(")[0] if row["exception"] else text
        total = kinds.setdefault(kind, {"n": 0, "seconds": 0.0})
        total["n"] += row["n"]
        total["seconds"] += row["seconds"] or 0.0
        example = example or row
    if example is None:
        return
    n, seconds = (sum(kind[name] for kind in kinds.values()) for name in ("n", "seconds"))
    main = sorted(kinds, key=lambda kind: -kinds[kind]["n"])
    parts = ", ".join(f"{int(kinds[kind]['n']):,} × {kind[:_LONGEST]}" for kind in main[:_MOST])
    yield Finding(
        "retries",
        f"{count(int(n), 'attempt')} failed and {'was' if n == 1 else 'were'} repeated: {parts}",
        f"they computed for {duration(seconds)}; mostly `{example['prefix']}` on "
        f"{count(example['n_workers'], 'worker')}: {(example['exception'] or '')[:_LONGEST]}",
        "mend the cause of the exception; retries= repeats the whole task",
        "query RUN \"select key, worker, exception from attempts where outcome = 'retried'\"",
        claims=evidence.fates.retried,
        always=True,
    )
