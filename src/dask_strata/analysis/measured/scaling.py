"""Decisions of adaptive scaling: how often, when and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dask_strata.analysis.words import count

if TYPE_CHECKING:
    from dask_strata.run import Run

#: Most decisions that a sentence names: those that changed the number of workers most.
_NAMED = 3

_DECISIONS = """
    select d.*, (epoch_ns(d.time) - epoch_ns(b.first)) / 1e9 as seconds
    from adaptive_decisions d cross join _bounds b order by d.time
"""


@dataclass(frozen=True)
class Scaling:
    """Decisions of adaptive scaling.

    Attributes
    ----------
    n_up, n_down : int
        Numbers of decisions.
    largest : tuple of str
        The decisions that changed the number of workers most, in words, in order of time.
    """

    n_up: int
    n_down: int
    largest: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """How often the cluster was scaled, and the largest decisions."""
        n = self.n_up + self.n_down
        return f"{count(n, 'decision')}: {self.n_up:,} up, {self.n_down:,} down; {self.named}"

    @property
    def named(self) -> str:
        """The largest decisions."""
        more = self.n_up + self.n_down - len(self.largest)
        return "; ".join(self.largest) + (f"; and {more:,} more" if more else "")


def summarize_scaling(run: Run) -> Scaling | None:
    """Return the decisions of adaptive scaling; None if none is on record.

    Parameters
    ----------
    run : Run
        The run.
    """
    found = run.rows(_DECISIONS)
    if not found:
        return None
    up = sum(row["status"] == "up" for row in found)
    largest = sorted(range(len(found)), key=lambda i: (-_size(found[i]), i))[:_NAMED]
    return Scaling(up, len(found) - up, tuple(_words(found[i]) for i in sorted(largest)))


def _before(row: dict[str, Any]) -> int | None:
    """Return the number of workers before a decision."""
    planned: int | None = row["n_plan"] if row["n_plan"] is not None else row["n_workers"]
    return planned


def _size(row: dict[str, Any]) -> int:
    before, target = _before(row), row["target"]
    return 0 if before is None or target is None else abs(target - before)


def _words(row: dict[str, Any]) -> str:
    """Return a decision in words: when, from how many workers to how many, and why."""
    before = "–" if _before(row) is None else f"{_before(row):,}"
    target = "–" if row["target"] is None else count(row["target"], "worker")
    reason = _REASONS.get(row["reason"])
    why = f" ({reason.format(**_values(row))})" if reason is not None else ""
    return f"{row['status']} {before} → {target} at {row['seconds']:.1f} s{why}"


def _values(row: dict[str, Any]) -> dict[str, str]:
    share = "–"
    if row["memory_limit_bytes"]:
        share = f"{100 * (row['results_bytes'] or 0) / row['memory_limit_bytes']:.0f} %"
    waiting = sum(row[name] or 0 for name in ("queued", "no_worker"))
    assigned = row["processing"] or 0
    return {
        "work": _seconds(row["occupancy_seconds"]),
        "aim": _seconds(row["target_seconds"]),
        "waiting": f"{count(waiting, 'task')} waited"
        + (f", {assigned:,} were assigned" if assigned else ""),
        "wanted": "–" if row["wanted"] is None else f"{row['wanted']:,}",
        "share": share,
    }


def _seconds(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds:.3g} s"


#: Reasons, in words.
_REASONS = {
    "work": "{waiting}: {work} of work assigned, target {aim}",
    "maximum": "the maximum; {wanted} wanted: {waiting}",
    "minimum": "the minimum; {wanted} wanted",
    "memory": "results filled {share} of the memory limits",
    "idle": "workers had nothing to do",
}
