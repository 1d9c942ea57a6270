"""Numbers of things, in findings and everywhere else."""

from __future__ import annotations


def count(n: int, thing: str) -> str:
    """Return a number of things.

    >>> count(1, "task"), count(1200, "task")
    ('1 task', '1,200 tasks')
    """
    return f"{n:,} {thing}" + ("" if n == 1 else "s")
