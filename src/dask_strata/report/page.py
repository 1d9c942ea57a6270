"""Stand-in until the page is merged."""

from __future__ import annotations

from dask_strata.run import Run


def make_page(run: Run) -> str:
    """Return a page."""
    return f"<!doctype html><meta http-equiv=Content-Security-Policy><p>{run.state}"
