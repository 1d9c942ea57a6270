"""Files that are read or written in many small calls."""

from __future__ import annotations

from collections.abc import Iterator

from dask_strata.analysis.diagnosis.claims import Finding
from dask_strata.analysis.diagnosis.evidence import Evidence
from dask_strata.analysis.diagnosis.file_uses import CALL_SECONDS
from dask_strata.analysis.words import size

#: Least number of calls a second, and largest bytes a call. What a call to storage that is far away
#: costs beyond its CPU time is in the samples.
_LEAST_RATE = 2_000
_SMALL_BYTES = 32 << 10

#: Waits for files, as a multiple of the CPU time of calls, from which the waits are the cause.
_MOST_WAITS = 10

_ADVICE = {
    "read": "read in blocks of megabytes: buffering=…, read-ahead, larger chunks of the file, "
    "columns that lie together",
    "write": "write in blocks of megabytes: buffering=…, larger chunks, records joined",
}


def find(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding on the prefix with most small calls.

    Parameters
    ----------
    evidence : Evidence
        Facts of the run.
    """
    for use in evidence.file_uses:
        for verb, calls, nbytes in (
            ("read", use.read_calls, use.read_bytes),
            ("write", use.write_calls, use.write_bytes),
        ):
            rate = calls / use.compute_seconds
            if rate < _LEAST_RATE or nbytes / calls > _SMALL_BYTES:
                continue
            share = min(rate * CALL_SECONDS, 1.0)
            if sum(use.waits.values()) > _MOST_WAITS * share * sum(use.segments.values()):
                continue  # each call waits for long: the storage is slow, or the data are synced
            claims = {
                index: max(seconds * share, use.waits.get(index, 0.0))
                for index, seconds in use.segments.items()
            }
            # All tasks of the prefix, as elsewhere on the screen; the path has some of them.
            sums = evidence.prefixes.get(use.prefix, {})
            n_calls = sums.get(f"{verb}_calls") or calls
            total = sums.get(f"{verb}_bytes") or nbytes
            yield Finding(
                f"small-{verb}s",
                f"small {verb}s: `{use.prefix}` {'read' if verb == 'read' else 'wrote'} "
                f"{size(total)} in {n_calls:,} calls, {size(total / n_calls)} each",
                f"{rate:,.0f} calls a second in the tasks on the critical path",
                _ADVICE[verb],
                f"tasks RUN --prefix {use.prefix} --sort compute_seconds",
                claims=claims,
            )
