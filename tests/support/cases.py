"""Cases of parametrized tests."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def few(cases: Iterable[Any], always: Collection[Any]) -> list[Any]:
    """Return cases of a test of which only a few run before a release.

    Parameters
    ----------
    cases : iterable
        The values of all cases.
    always : collection
        The values of those that always run.
    """
    marks = (pytest.mark.long, pytest.mark.release)
    return [case if case in always else pytest.param(case, marks=marks) for case in cases]
