"""Runs to compare: recorded repeats, and groups made of one of them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import MISSING, fields, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from dask_strata.analysis.compare.runs import ComparedRun, Group
from dask_strata.analysis.overview.comparable import Comparable
from dask_strata.analysis.summary import Summary
from dask_strata.store.summaries.typed_json import from_json, to_json

if TYPE_CHECKING:
    import numpy as np

REPEATS = Path(__file__).parents[1] / "data" / "repeats"
WORKLOADS = ("images", "words")

#: Fields that summaries have since these were recorded, as of a run that has none of their facts.
_DEFAULTS = {f.name: to_json(f.default) for f in fields(Summary) if f.default is not MISSING}


@cache
def repeats(workload: str) -> tuple[ComparedRun, ...]:
    """Return the ten recorded runs of a workload."""
    kept = json.loads(gzip.decompress((REPEATS / f"{workload}.json.gz").read_bytes()))
    return tuple(
        ComparedRun(
            each["name"],
            from_json(Summary, _DEFAULTS | each["summary"]),
            from_json(Comparable, each["compare"]),
        )
        for each in kept
    )


def synthetic(  # noqa: PLR0913
    name: str,
    draws: np.random.Generator,
    *,
    n: int,
    spread: float = 0.05,
    factors: Mapping[str, float] | None = None,
    workload: str = "images",
) -> Group:
    """Return a group of runs that are one recorded run with noise on each prefix, and on its path.

    Parameters
    ----------
    name : str
        Name of the group.
    draws : Generator
        Source of the noise.
    n : int
        Number of runs.
    spread : float
        Standard deviation of the logarithms of the compute seconds of each prefix.
    factors : mapping of str to float, optional
        Planted changes of prefixes.
    workload : str
        The recorded workload.
    """
    template, factors = repeats(workload)[0], factors or {}
    runs = []
    for i in range(n):
        scale = {
            prefix: factors.get(prefix, 1.0) * float(draws.lognormal(0.0, spread))
            for prefix in template.values.prefixes
        }
        prefixes = {
            prefix: replace(used, compute_seconds=(used.compute_seconds or 0.0) * scale[prefix])
            for prefix, used in template.values.prefixes.items()
        }
        path = tuple(
            replace(part, nanoseconds=round(part.nanoseconds * scale.get(part.prefix or "", 1.0)))
            for part in template.values.path
        )
        runs.append(
            replace(
                template,
                name=f"{name}-{i}",
                summary=replace(template.summary, run_id=f"{name}-{i}"),
                values=replace(template.values, prefixes=prefixes, path=path),
            )
        )
    return Group(name, tuple(runs))
