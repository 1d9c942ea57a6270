"""Numbers and foreign text, as a person reads them."""

from __future__ import annotations

import re

from dask_strata.analysis.words import count

__all__ = ["count", "duration", "rate", "size", "visible"]

_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def visible(text: str, *, keep_lines: bool = False) -> str:
    r"""Return the text with everything that would steer a terminal spelled out.

    >>> visible("a\x1b[31mb\nc")
    'a\\x1b[31mb\\nc'
    """
    text = _CONTROL.sub(lambda m: m.group().encode("unicode_escape").decode(), text)
    return text if keep_lines else text.replace("\n", "\\n").replace("\t", "\\t")


def duration(seconds: float | None) -> str:
    """Return a duration.

    >>> duration(0.00042), duration(3.21), duration(192), duration(7300)
    ('0.42 ms', '3.2 s', '3 min 12 s', '2 h 2 min')
    """
    if seconds is None:
        return "–"
    if seconds < 0.1:  # noqa: PLR2004
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 100:  # noqa: PLR2004
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:  # noqa: PLR2004
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def size(nbytes: float | None) -> str:
    """Return a number of bytes.

    >>> size(512), size(1536), size(5 * 2**30)
    ('512 B', '1.5 KiB', '5.0 GiB')
    """
    if nbytes is None:
        return "–"
    if nbytes < 1024:  # noqa: PLR2004
        return f"{nbytes:.0f} B"
    units = ["TiB", "GiB", "MiB", "KiB"]
    nbytes /= 1024
    while nbytes >= 1024 and len(units) > 1:  # noqa: PLR2004
        nbytes /= 1024
        units.pop()
    return f"{nbytes:.1f} {units[-1]}"


def rate(nbytes: float | None, seconds: float | None) -> str:
    """Return bytes in a time as bytes a second.

    >>> rate(5_000_000, 2)
    '2.5 MB/s'
    """
    if nbytes is None or not seconds:
        return "–"
    return f"{nbytes / seconds / 1e6:.3g} MB/s"
