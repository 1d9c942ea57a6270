"""Which insight each second of the makespan counts for.

Rules claim seconds of segments of the critical path. A second is granted once: to the rule that is
evaluated first, which is the one whose cause is more specific. A claim that is not worth an insight
gives its seconds back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dask_strata.analysis.diagnosis.insight import Insight, Interval

if TYPE_CHECKING:
    from dask_strata.analysis.critical_path.walk import Segment

#: Least cost of an insight: a share of the makespan, and seconds. Starts of processes, imports and
#: the first contact of workers cost some tenths of a second in each run.
LEAST_SHARE = 0.05
LEAST_SECONDS = 0.3

#: Most intervals of an insight.
_INTERVALS = 20


@dataclass(frozen=True)
class Finding:
    """What a rule found, before its seconds are granted.

    Attributes
    ----------
    cause, text, evidence, advice, command, grave
        See `Insight`.
    always : bool
        Whether it is an insight even if it cost little.
    claims : mapping of int to float
        Seconds by the index of the segment of the critical path: what the run would be shorter
        without the cause. Empty for a fault without a cost.
    uses : mapping of int to float
        Seconds of segments that are explained with that, where these are more than the claim: a
        chain explains all of its seconds, and costs the share in which threads were idle.
    """

    cause: str
    text: str
    evidence: str = ""
    advice: str = ""
    command: str = "show RUN"
    grave: bool = False
    always: bool = False
    claims: Mapping[int, float] = field(default_factory=dict)
    uses: Mapping[int, float] = field(default_factory=dict)


class Claims:
    """Seconds of the segments of a critical path that no insight has yet.

    Parameters
    ----------
    segments : iterable of Segment
        The segments.
    """

    def __init__(self, segments: Iterable[Segment]) -> None:
        self._segments = tuple(segments)
        self._left = [segment.seconds for segment in self._segments]
        self._least = max(LEAST_SHARE * sum(self._left), LEAST_SECONDS)

    def left(self, index: int) -> float:
        """Return the seconds of a segment that no insight has."""
        return self._left[index]

    def grant(self, finding: Finding) -> Insight | None:
        """Return the insight of a finding; None if it is not worth one.

        Parameters
        ----------
        finding : Finding
            What a rule found.
        """
        granted, used = {}, {}
        for index, seconds in finding.claims.items():
            wanted = max(finding.uses.get(index, seconds), seconds)
            used[index] = min(wanted, self._left[index])
            if wanted > 0 and used[index] > 0:
                granted[index] = seconds * used[index] / wanted
        cost = sum(granted.values())
        if cost < self._least and not (finding.grave or finding.always):
            return None
        for index, seconds in used.items():
            self._left[index] -= seconds
        return Insight(
            cause=finding.cause,
            text=finding.text,
            seconds=cost if granted else None,
            evidence=finding.evidence,
            advice=finding.advice,
            command=finding.command,
            grave=finding.grave,
            intervals=self._intervals(granted),
        )

    def _intervals(self, granted: Mapping[int, float]) -> tuple[Interval, ...]:
        chosen = sorted(granted, key=lambda i: -granted[i])[:_INTERVALS]
        return tuple(map(_interval, (self._segments[index] for index in chosen)))


def _interval(segment: Segment) -> Interval:
    occupant = segment.occupant
    if occupant is not None and occupant.attempt is not None:
        worker = occupant.worker or segment.worker
        return Interval(
            segment.start,
            segment.stop,
            worker,
            occupant.thread if occupant.thread is not None else segment.thread,
            occupant.name,
        )
    return Interval(segment.start, segment.stop, segment.worker, segment.thread, segment.key)
