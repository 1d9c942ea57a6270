"""Stuck tasks and workers of a run that is being recorded, or that ended too early."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from dask_strata.analysis.words import duration
from dask_strata.schema.measured.stuck import CHECK_SECONDS, NO_ANSWER, place_in, sentence

if TYPE_CHECKING:
    from dask_strata.run import Run

#: Age of the last check, at the scheduler's last sample, up to which its findings are the present.
_RECENT = timedelta(seconds=2.5 * CHECK_SECONDS)

#: Rows of the last check.
_LAST = "select * from stuck where time = (select max(time) from stuck) order by seq"

#: Which of some tasks have ended since a time. The constant time lets DuckDB skip most rows. Tasks
#: that Dask forgot as their client left have not: a script that hangs is ended so.
_ENDED_SINCE = """
    select key, key_type from scheduler_transitions
    where time > ? and finish_state in ('memory', 'erred', 'forgotten')
      and list_contains(?, key)
      and (? or not starts_with(coalesce(stimulus_id, ''), 'remove-client-'))
"""

#: The last sample of an execution that had not ended when its worker fell silent.
_LAST_SAMPLE = """
    select s.key, s.function, s.file, s.line from task_samples s
    left join executions e on e.process = s.process and e.execution = s.execution
    where s.worker = ? and e.execution is null and s.file is not null
    order by s.last desc limit 1
"""

#: Outcomes of runs in which nothing is stuck.
_NOTHING_STUCK = frozenset({"finished", "imported"})

#: Most findings of each kind in words.
_SHOWN = 5

_COLUMNS = (
    "kind",
    "key",
    "key_type",
    "prefix",
    "worker",
    "worker_name",
    "since",
    "seconds",
    "typical_seconds",
    "n_finished",
    "reason",
    "n_others",
    "stack",
)


@dataclass(frozen=True)
class Stuck:
    """Tasks and workers that did not move at the last check.

    Attributes
    ----------
    time : datetime
        Time of the check.
    present : bool
        Whether the run is still being recorded.
    findings : tuple of dict
        Rows of the table ``stuck``, each with ``place``, the innermost frames in words, and
        ``text``, the finding in a sentence.
    """

    time: datetime
    present: bool
    findings: tuple[dict[str, Any], ...]

    def lines(self) -> list[str]:
        """Return the findings in sentences, at most five of each kind."""
        shown: dict[str, int] = {}
        lines = []
        for row in self.findings:
            shown[row["kind"]] = shown.get(row["kind"], 0) + 1
            if shown[row["kind"]] <= _SHOWN:
                lines.append(row["text"])
        if rest := len(self.findings) - len(lines):
            lines.append(f"and {rest:,} more: see the table stuck")
        return lines


def stuck_of(run: Run, outcome: str) -> Stuck | None:
    """Return the stuck tasks and workers of a run, now or at its early end; None without any.

    Also return None if the run was opened for the tasks of one client.

    Parameters
    ----------
    run : Run
        The run.
    outcome : str
        Its outcome, as in the summary. A run that finished or was imported has nothing stuck.
    """
    if outcome in _NOTHING_STUCK or run.client is not None or not run.n_rows("stuck"):
        return None
    rows = run.rows(_LAST)
    time = rows[0]["time"]
    last = run.rows("select max(time) as time from scheduler_samples")[0]["time"]
    if last is None or last - time > _RECENT:
        return None
    keys = [row["key"] for row in rows if row["key"] is not None]
    present = outcome == "recording"
    ended = {(r["key"], r["key_type"]) for r in run.rows(_ENDED_SINCE, time, keys, present)}
    rows = [row for row in rows if (row["key"], row["key_type"]) not in ended]
    if not rows:
        return None
    findings = tuple(_finding(run, row) for row in rows)
    return Stuck(time, present, findings)


def _finding(run: Run, row: dict[str, Any]) -> dict[str, Any]:
    place, text = place_in(row["stack"]), sentence(row, duration)
    if row["kind"] == NO_ANSWER:
        for sample in run.rows(_LAST_SAMPLE, row["worker"]):
            frame = f"{sample['function']} ({sample['file']}:{sample['line']})"
            place = place_in(frame)
            text += f"; the last sample of {sample['key']} was in {place}"
    return {**{name: row[name] for name in _COLUMNS}, "place": place or None, "text": text}
