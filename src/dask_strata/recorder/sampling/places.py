"""Places in the user's code as columns of rows, without secrets."""

from __future__ import annotations

import functools
import linecache
from typing import Any

from dask_strata.recorder.pipeline.redact import redact_path, redact_text
from dask_strata.recorder.pipeline.text import clip
from dask_strata.recorder.sampling.frames import Place

#: Longest recorded line and name, in characters.
_LINE, _NAME = 1_000, 500

_redacted_path = functools.lru_cache(maxsize=1024)(redact_path)


def place_columns(place: Place) -> dict[str, Any]:
    """Return the columns of a place.

    Parameters
    ----------
    place : Place
        The place.
    """
    return {
        "file": None if place.file is None else _redacted_path(place.file),
        "line": place.line,
        "function": None if place.function is None else clip(place.function, _NAME),
        "calls": None if place.calls is None else clip(place.calls, _NAME),
    }


def code_of(place: Place) -> str | None:
    """Return the text of the user's line; None if it is unknown.

    Parameters
    ----------
    place : Place
        The place.
    """
    if place.file is None or place.line is None:
        return None
    return _redacted_line(linecache.getline(place.file, place.line).strip()) or None


@functools.lru_cache(maxsize=1024)
def _redacted_line(text: str) -> str:
    return clip(redact_text(text), _LINE)
