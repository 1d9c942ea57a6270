"""The findings of `check`, on a terminal and as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.text import Text

from dask_strata.analysis.check import MISSING, WHOLE, WHOLE_FOR_TASKS, Check
from dask_strata.report.words import count, visible

if TYPE_CHECKING:
    from rich.console import Console


def print_check(check: Check, out: Console, *, verbose: bool) -> None:
    """Print the findings of a check and its verdict.

    Parameters
    ----------
    check : Check
        The outcome of the check.
    out : Console
        The console.
    verbose : bool
        Print complete parts of the record, too, if others are incomplete.
    """
    marks = {
        "ok": ("ok      ", "green"),
        "note": ("note    ", "cyan"),
        "cut": ("CUT     ", "yellow"),
        "missing": ("MISSING ", "bold red"),
    }
    for finding in check.findings:
        if verbose or finding.severity != "ok" or check.grade == WHOLE:
            out.print(
                Text.assemble(
                    marks[finding.severity],
                    visible(finding.process or "–"),
                    "  ",
                    visible(finding.text),
                ),
                soft_wrap=True,
            )
    n = len(check.cut)
    n_cut = f"{n:,} process{'' if n == 1 else 'es'}"
    verdicts = {
        WHOLE: ("The record is complete.", "bold green"),
        WHOLE_FOR_TASKS: (
            f"The record is complete for every task; cut off: {n_cut}.",
            "bold yellow",
        ),
        MISSING: (
            f"The record is incomplete: {count(len(check.missing), 'finding')}.",
            "bold red",
        ),
    }
    out.print(Text(*verdicts[check.grade]))


def check_json(check: Check) -> str:
    """Return the outcome of a check as JSON.

    Parameters
    ----------
    check : Check
        The outcome.
    """
    return json.dumps(
        {
            "ok": check.ok,
            "grade": check.grade,
            "findings": [asdict(finding) for finding in check.findings],
        },
        indent=1,
    )
