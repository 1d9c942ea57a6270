"""Why workers ended, on a terminal and as JSON."""

from dask_strata.report.why.text import ShownWhy, plain_why, print_why, why_json

__all__ = ["ShownWhy", "plain_why", "print_why", "why_json"]
