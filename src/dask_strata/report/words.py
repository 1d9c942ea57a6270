"""Numbers, units and untrusted text in a form for people."""

from __future__ import annotations

import math
import re

from dask_strata.analysis.words import count, percent

__all__ = ["count", "duration", "number", "percent", "rate", "size", "visible"]

_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)

_KIB = 1024

#: Numbers below are written with an exponent.
_TINY = 1e-9

#: Numbers from here on are written with an exponent, too.
_HUGE = 1e15

_MINUTE = 60
_HOUR_MINUTES = 60

#: Durations in seconds below which milliseconds, and from which minutes, are shown.
_MILLISECONDS_BELOW = 0.1
_MINUTES_FROM = 100


def visible(text: str, *, keep_lines: bool = False) -> str:
    r"""Return a text with its control characters replaced by escape sequences.

    Parameters
    ----------
    text : str
        Any text of a run.
    keep_lines : bool, optional
        Keep line breaks and tabs.

    Examples
    --------
    >>> visible("a\x1b[31mb\nc")
    'a\\x1b[31mb\\nc'
    """
    text = _CONTROL.sub(lambda m: m.group().encode("unicode_escape").decode(), text)
    return text if keep_lines else text.replace("\n", "\\n").replace("\t", "\\t")


def duration(seconds: float | None) -> str:
    """Return a duration in its largest fitting unit; an en dash if it is unknown.

    >>> duration(0.00042), duration(3.21), duration(192), duration(7320)
    ('0.42 ms', '3.2 s', '3 min 12 s', '2 h 2 min')
    """
    if seconds is None:
        return "–"
    if seconds < _MILLISECONDS_BELOW:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < _MINUTES_FROM:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), _MINUTE)
    if minutes < _HOUR_MINUTES:
        return f"{minutes} min {rest} s"
    return f"{minutes // _HOUR_MINUTES} h {minutes % _HOUR_MINUTES} min"


def number(value: float) -> str:
    """Return a number with 3 significant digits and all digits before the point.

    Very small and very large numbers have an exponent.

    >>> number(0.0000512), number(32.9722), number(1234567.8), number(2.0), number(1e300)
    ('0.0000512', '33', '1234568', '2', '1e+300')
    """
    if value == 0 or not _TINY < abs(value) < _HUGE:
        return f"{value:.3g}"
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def size(nbytes: float | None) -> str:
    """Return a number of bytes in its largest fitting unit; an en dash if it is unknown.

    >>> size(512), size(1536), size(5 * 2**30)
    ('512 B', '1.5 KiB', '5.0 GiB')
    """
    if nbytes is None:
        return "–"
    if nbytes < _KIB:
        return f"{nbytes:.0f} B"
    units = ["TiB", "GiB", "MiB", "KiB"]
    nbytes /= _KIB
    while nbytes >= _KIB and len(units) > 1:
        nbytes /= _KIB
        units.pop()
    return f"{nbytes:.1f} {units[-1]}"


def rate(nbytes: float | None, seconds: float | None) -> str:
    """Return bytes in a time as a rate; an en dash if either is unknown.

    >>> rate(5 * 2**20, 2)
    '2.5 MiB/s'
    """
    if nbytes is None or not seconds:
        return "–"
    return f"{nbytes / seconds / _KIB**2:.3g} MiB/s"
