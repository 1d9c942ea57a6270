"""Workers that were requested or started and never registered with the scheduler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dask_strata.analysis.words import count

if TYPE_CHECKING:
    from dask_strata.run import Run

#: Most workers that a sentence names.
_NAMES = 4

_WORDS = {
    "refused": "refused by the scheduler",
    "start failed": "its nanny could not start it",
    "job pending": "its job is pending",
    "job never started": "its job never started",
    "job ended": "its job ended before",
    "requested": "requested, and no sign of it",
}

#: Causes, as in the table ``absent_workers``.
CAUSES = frozenset(_WORDS)


@dataclass(frozen=True)
class AbsentWorkers:
    """Workers that never arrived for one cause and reason.

    Attributes
    ----------
    cause : str
        As in the table ``absent_workers``.
    reason : str or None
        The reason on record.
    n_workers : int
        Number of these workers.
    names : tuple of str
        Their names, each once.
    """

    cause: str
    reason: str | None
    n_workers: int
    names: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """Number, names, and why they are missing."""
        why = _WORDS[self.cause] + (f" ({self.reason})" if self.reason else "")
        names = ", ".join(self.names[:_NAMES])
        if (rest := len(self.names) - _NAMES) > 0:
            names += f" and {rest:,} more"
        return f"{count(self.n_workers, 'worker')} never arrived ({names}): {why}"


def absent_workers(run: Run) -> tuple[AbsentWorkers, ...]:
    """Return the workers that never arrived, by cause and reason, the most first.

    Parameters
    ----------
    run : Run
        The run.
    """
    rows = run.rows("""
        with shortened as (
            select *, case when reason = 'name taken, ' || name then 'name taken' else reason end
                          as general
            from absent_workers
        )
        select cause, case when count(distinct reason) = 1 then any_value(reason)
                           when count(distinct general) = 1 then any_value(general) end as reason,
               count(*) as n_workers,
               list(distinct coalesce(name, worker, 'unnamed')
                    order by coalesce(name, worker, 'unnamed')) as names
        from shortened group by cause, case when job is null then general end
        order by n_workers desc, cause, reason
    """)
    return tuple(AbsentWorkers(**{**row, "names": tuple(row["names"])}) for row in rows)
