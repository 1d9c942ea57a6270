"""Counts and shares as words, for findings, insights and reports."""

from __future__ import annotations


def count(n: int, thing: str) -> str:
    """Return a number with its noun, in the plural unless the number is 1.

    >>> count(1, "task"), count(1200, "task")
    ('1 task', '1,200 tasks')
    """
    return f"{n:,} {thing}" + ("" if n == 1 else "s")


def percent(share: float, digits: int = 0) -> str:
    """Return a share, 0 to 1, in percent.

    >>> percent(0.553), percent(0.0123, 1)
    ('55 %', '1.2 %')
    """
    return f"{100 * share:.{digits}f} %"
