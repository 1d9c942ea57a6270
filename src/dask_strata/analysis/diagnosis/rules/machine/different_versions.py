"""Processes with different versions of packages."""

from __future__ import annotations

from collections.abc import Iterator

from dask_strata.analysis.diagnosis.claims import Finding
from dask_strata.analysis.diagnosis.evidence import Evidence
from dask_strata.analysis.words import count


def find(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for each of the first three packages.

    Parameters
    ----------
    evidence : Evidence
        Facts of the run.
    """
    for row in evidence.run.rows(
        "select name, string_agg(coalesce(version, 'none') || ' (' || n_processes || ')', ', "
        "' order by n_processes desc, version) as versions, count(*) as n from "
        "package_mismatches group by name order by name limit 3"
    ):
        yield Finding(
            "different-versions",
            f"processes have different versions of {row['name']}: {row['versions']}",
            count(row["n"], "version"),
            "install the same environment for client, scheduler and workers",
            "query RUN 'select * from package_mismatches'",
            always=True,
        )
