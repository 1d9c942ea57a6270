"""Tasks that open and look up very many files."""

from __future__ import annotations

from collections.abc import Iterator

from dask_strata.analysis.diagnosis.claims import Finding
from dask_strata.analysis.diagnosis.evidence import Evidence
from dask_strata.analysis.words import count, number, percent

#: Least number of opened files a second, and the time that one takes at least, in seconds.
_LEAST_RATE = 200
_OPEN_SECONDS = 10e-6

#: Bytes of a file up to which opening it takes longer than reading it.
_SMALL_BYTES = 64 << 10

#: Share of the time of tasks from which looking up files is a cause without opening them.
_LEAST_LOOKUPS = 0.2


def find(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding on prefixes that open many files.

    Parameters
    ----------
    evidence : Evidence
        Facts of the run.
    """
    for use in evidence.file_uses:
        rate = use.n_opened / use.compute_seconds
        looked_up = sum(use.lookups.values()) / sum(use.segments.values())
        if rate < _LEAST_RATE and looked_up < _LEAST_LOOKUPS:
            continue
        total = evidence.prefixes.get(use.prefix, {}).get("n_opened") or use.n_opened
        share = min(rate * _OPEN_SECONDS, 1.0)
        small = use.read_bytes + use.write_bytes <= _SMALL_BYTES * use.n_opened
        claims = {}
        for index, seconds in use.segments.items():
            in_calls = use.lookups.get(index, 0.0)
            if small and rate >= _LEAST_RATE:  # to read such a file is to open it
                in_calls += use.openings.get(index, 0.0)
            claims[index] = max(seconds * share, use.waits.get(index, 0.0), in_calls)
        yield Finding(
            "metadata",
            f"a storm of opened files: `{use.prefix}` opened files {count(total, 'time')}"
            if rate >= _LEAST_RATE
            else f"lookups of files: `{use.prefix}` listed folders and looked up files in "
            f"{percent(looked_up)} of its time",
            f"{number(rate)} opened a second in the tasks on the critical path; each costs the "
            "file system a lookup",
            "put small files together (Parquet, Zarr, HDF5, tar), list a folder once in the "
            "client, and keep files open",
            f"tasks RUN --prefix {use.prefix} --sort compute_seconds",
            claims=claims,
        )
