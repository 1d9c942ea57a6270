"""A comparison as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from dask_strata.analysis.compare.compare import Comparison
from dask_strata.analysis.compare.gate import Judgement
from dask_strata.analysis.compare.tables import TABLES
from dask_strata.report.comparison.lines import STATUS


def comparison_json(found: Comparison, judged: Sequence[Judgement]) -> str:
    """Return a comparison as JSON; an infinite number is null.

    Parameters
    ----------
    found : Comparison
        The comparison.
    judged : sequence of Judgement
        Limits that were checked.
    """
    facts = {
        "fair": found.fairness.is_fair,
        "fairness": found.fair,
        "groups": [
            {
                "name": group.name,
                "runs": [run.name for run in group.runs],
                "excluded": [run.name for run in group.excluded],
            }
            for group in found.groups
        ],
        "verdicts": [
            {
                "first": contrast.first.name,
                "second": contrast.second.name,
                "sentence": contrast.sentence,
                "difference_seconds": contrast.split.difference_seconds,
                "causes": contrast.split.causes,
            }
            for contrast in found.contrasts
        ],
        "limits": [
            {
                "limit": judgement.limit.text,
                "first": judgement.first,
                "second": judgement.second,
                "status": judgement.status,
                "result": STATUS[judgement.status],
                "evidence": judgement.evidence,
            }
            for judgement in judged
        ],
        "schedules": [{"group": each.group, **vars(each.schedule)} for each in found.variability],
        **{name: _finite(found.to_arrow(name).to_pylist()) for name in TABLES},
    }
    return json.dumps(facts, ensure_ascii=False, indent=1)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list) else value
