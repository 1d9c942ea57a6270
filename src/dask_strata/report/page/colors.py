"""Colours of the page: those of Dask's dashboard, and more where the dashboard has none.

Dask assigns one of 18 colours to a prefix by a hash of its name. Palette and hash are copied
from `distributed.utils`, so that reading a run does not import it; a test compares both.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import md5

_PALETTE = (
    *("#440154", "#471669", "#472A79", "#433C84", "#3C4D8A", "#355D8C"),
    *("#2E6C8E", "#287A8E", "#23898D", "#1E978A", "#20A585", "#2EB27C"),
    *("#45BF6F", "#64CB5D", "#88D547", "#AFDC2E", "#D7E219", "#FDE724"),
)

#: Phases as in Dask's task stream; ``other`` is any other action.
PHASES = {
    "transfer": "#ff0000",
    "deserialize": "#808080",
    "disk-read": "#ffa500",
    "disk-write": "#ffa500",
    "other": "#a0a0a0",
}

ERRED = "#000000"

#: Kinds of thread-seconds; in bars, compute has the colours of its prefixes.
KINDS = {
    "compute": "#20A585",
    "transfer": "#ff0000",
    "deserialize": "#808080",
    "spill": "#ffa500",
    "waiting to fetch": "#f4a3a3",
    "waiting for a resource": "#17a2b8",
    "paused worker": "#d63384",
    "blocked event loop": "#6f42c1",
    "silent worker": "#5c677d",
    "other clients": "#8d99ae",
    "idle": "#c9ced6",
}

#: Causes on the critical path.
CAUSES = {
    "compute": "#20A585",
    "transfer": "#ff0000",
    "waiting to fetch": "#f4a3a3",
    "deserialize": "#808080",
    "I/O": "#3b7dd8",
    "spill": "#ffa500",
    "waiting for a worker": "#b07cd6",
    "other clients": "#8d99ae",
    "waiting for a resource": "#17a2b8",
    "paused worker": "#d63384",
    "blocked event loop": "#6f42c1",
    "silent worker": "#5c677d",
    "scheduler": "#8c564b",
    "graph": "#9467bd",
    "scatter": "#bcbd22",
    "gather": "#7fb3d5",
    "client": "#e377c2",
    "nothing submitted": "#c9ced6",
    "not on record": "#9aa0a6",
}

#: Limits of Dask's memory management, from the first that a worker reaches to the last.
LIMITS = {"target": "#3b7dd8", "spill": "#ffa500", "pause": "#d63384", "terminate": "#d62728"}


def color_of(prefix: str) -> str:
    """Return the colour of a prefix in Dask's dashboard.

    >>> color_of("inc")
    '#45BF6F'
    """
    digest = md5(prefix.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()
    return _PALETTE[int(digest[:8], 16) % len(_PALETTE)]


#: Patterns of bars: solid, and kinds of stripes (`STRIPES` in `drawing.js`).
_PATTERNS = 6


def patterns(prefixes: Iterable[str]) -> list[int]:
    """Return a pattern for each prefix, such that prefixes of similar colours differ in it.

    >>> patterns(["inc", "dec", "sum", "inc2"])
    [0, 0, 0, 0]
    """
    used: dict[int, list[int]] = {}
    found = []
    for prefix in prefixes:
        at = _PALETTE.index(color_of(prefix))
        same = used.get(at, [])
        near = [p for place in (at - 1, at + 1) for p in used.get(place, [])]
        pattern = min(range(_PATTERNS), key=lambda p: (same.count(p), near.count(p)))
        used.setdefault(at, []).append(pattern)
        found.append(pattern)
    return found


def colors_apart(prefixes: Iterable[str]) -> dict[str, str]:
    """Return colours of prefixes, each its own: that of `color_of`, or the next one that is free.

    >>> list(colors_apart(["load", "combine"]).values())
    ['#433C84', '#23898D']
    """
    found: dict[str, str] = {}
    for prefix in prefixes:
        first = _PALETTE.index(color_of(prefix))
        # Steps of 5 lead through all of the palette, and far from neighbours that look alike.
        order = [_PALETTE[(first + 5 * i) % len(_PALETTE)] for i in range(len(_PALETTE))]
        used = set(found.values())
        found.setdefault(prefix, next((c for c in order if c not in used), order[0]))
    return found
