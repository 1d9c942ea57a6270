"""Data of the page's panel of resources: numbers of even bins, compressed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_strata.analysis.timeline.bins import Floats
from dask_strata.analysis.timeline.resources import SERIES, Resources
from dask_strata.report.page.columns import Container, Ints, few_digits
from dask_strata.report.words import visible

#: Parts of a unit that the page distinguishes.
_SCALES = {"cores": 1000, "seconds": 1_000_000, "threads": 1000, "tasks": 100}

#: Binary digits of a number: three decimal digits, as the page shows them.
_DIGITS = 11


#: Largest number that the page's script represents exactly.
_MOST = 2**52


@dataclass(frozen=True)
class ResourceData:
    """Data of the panel.

    Attributes
    ----------
    columns : str
        The series, each with the bins of all workers, of each worker, and of the scheduler.
    facts : dict
        Their scales, and the names of the workers, for JSON.
    note : str or None
        A sentence about omitted workers.
    """

    columns: str
    facts: dict[str, Any]
    note: str | None


def resource_data(found: Resources) -> ResourceData:
    """Return the data of the panel of resources.

    Parameters
    ----------
    found : Resources
        The resources.
    """
    made, scales = Container(), {}
    for name, values in found.values.items():
        scales[name] = _SCALES.get(SERIES[name], 1)
        made.ints(name, _stored(values * scales[name]), delta=True)
    facts = {
        "step": found.step / 1000,
        "scales": scales,
        "workers": [[visible(worker), visible(name)] for worker, name in found.names],
    }
    note = None
    if found.n_left_out:
        note = (
            f"{found.n_left_out:,} workers have no lines of their own: those of the "
            "smallest memory. The lines of all workers together count them."
        )
    return ResourceData(made.text(), facts, note)


def _stored(values: Floats) -> Ints:
    """Return whole numbers of few binary digits, one higher; 0 where the value is unknown."""
    flat = values.ravel()
    known = np.round(np.clip(np.nan_to_num(flat, nan=0), 0, _MOST)).astype(np.int64)
    return np.where(np.isnan(flat), 0, few_digits(known, _DIGITS) + 1)
