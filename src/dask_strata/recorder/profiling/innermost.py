"""Counts of innermost frames in Dask's statistical profile, which Dask itself does not keep.

Dask's worker counts each frame of a sampled stack except the innermost: where a function calls two
others, its profile does not contain how many samples were in which. While a worker of the process
is recorded, `distributed.profile.process` also counts these in the same nodes, under a name that
Dask does not read and does not send.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from types import FunctionType
from typing import Any

#: The count in a node of Dask's profile.
INNERMOST = "strata-innermost"

_lock = threading.Lock()
_users = 0
_original: Callable[..., Any] | None = None
_counting: Callable[..., Any] | None = None


def count_innermost() -> bool:
    """Count innermost frames from now on; return whether this Dask has the expected function."""
    global _users, _original, _counting  # noqa: PLW0603  one function of Dask in each process
    from distributed import profile

    with _lock:
        if _users == 0:
            original = getattr(profile, "process", None)
            if not callable(original):
                return False
            _original, _counting = original, _with_counts(original)
            profile.process = _counting
        _users += 1
    return True


def stop_counting() -> None:
    """Undo one `count_innermost`; the last one gives Dask its own function back."""
    global _users  # noqa: PLW0603  one function of Dask in each process
    from distributed import profile

    with _lock:
        _users -= 1
        if _users == 0 and profile.process is _counting and _original is not None:
            profile.process = _original


def _with_counts(original: Callable[..., Any]) -> Callable[..., Any]:
    recursive = _calling_itself(original)

    @functools.wraps(original)
    def process(frame: Any, child: Any, state: Any, **options: Any) -> Any:
        node = recursive(frame, child, state, **options)
        # Only the worker's sampling calls it with True, and gets the node of the innermost frame.
        if child is True and node is not None:
            node[INNERMOST] = node.get(INNERMOST, 0) + 1
        return node

    return process


def _calling_itself(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a copy of a function of a module that calls the copy where it calls itself.

    Dask's function calls itself for each frame, by its name in the module: without a copy, each
    frame would cost a further call in Python.
    """
    if not isinstance(original, FunctionType):
        return original
    names = dict(original.__globals__)
    copy = FunctionType(
        original.__code__, names, original.__name__, original.__defaults__, original.__closure__
    )
    copy.__kwdefaults__ = original.__kwdefaults__
    names[original.__name__] = copy
    return copy
