"""Tasks that measure how long they are in their functions. Workers import this module."""

from __future__ import annotations

import time

#: Share of the longer of two functions.
SHARE = 0.75


def long(seconds: float) -> float:
    """Compute for some time; return how long it took."""
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        pass
    return time.perf_counter() - start


def short(seconds: float) -> float:
    """Compute for some time; return how long it took."""
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        pass
    return time.perf_counter() - start


def work(seconds: float) -> dict[str, float]:
    """Spend 3/4 of the time in one function and the rest in the other, in small parts."""
    spent = {"long": 0.0, "short": 0.0}
    for _ in range(10):
        spent["long"] += long(seconds * SHARE / 10)
        spent["short"] += short(seconds * (1 - SHARE) / 10)
    return spent


def hold(seconds: float) -> None:
    """Block the thread that calls this."""
    time.sleep(seconds)
