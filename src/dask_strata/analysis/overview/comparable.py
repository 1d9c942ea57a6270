"""The values of a run that are compared with those of others, beside its summary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dask_strata.run import Run


@dataclass(frozen=True)
class Comparable:
    """Values of a run that are compared by name.

    Attributes
    ----------
    tasks : dict of str to int
        Number of tasks by prefix.
    compute : dict of str to float or None
        Seconds in the functions of tasks, by prefix; None if they are not on record.
    settings : dict of str to str or None
        Settings of the scheduler.
    packages : dict of str to str or None
        Versions of packages.
    """

    tasks: dict[str, int]
    compute: dict[str, float | None]
    settings: dict[str, str | None]
    packages: dict[str, str | None]


def compute_comparable(run: Run) -> Comparable:
    """Return the values of a run that are compared.

    Parameters
    ----------
    run : Run
        The run.
    """
    prefixes = run.rows(_PREFIXES)
    return Comparable(
        tasks={row["prefix"]: row["n"] for row in prefixes},
        compute={row["prefix"]: row["seconds"] for row in prefixes},
        settings=_named(run, _SETTINGS),
        packages=_named(run, _PACKAGES),
    )


_PREFIXES = """
    select coalesce(prefix, '(unknown)') as prefix, count(*) as n,
           sum(compute_seconds) as seconds from tasks where not finished_before group by 1
    order by 1
"""

_SETTINGS = """
    select c.name, any_value(c.value) as value from config c join processes p using (process)
    where p.role = 'scheduler' group by c.name order by c.name
"""

_PACKAGES = """
    select name, string_agg(distinct version, ', ' order by version) as value
    from (select name, version from packages union all
          select 'python' as name, python as version from processes where python is not null)
    group by name order by name
"""


def _named(run: Run, query: str) -> dict[str, str | None]:
    return {row["name"]: row["value"] for row in run.rows(query)}
