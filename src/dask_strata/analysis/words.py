"""Numbers as words: counts, shares, sizes, rates and durations, for answers and reports.

Sizes, rates and durations have 3 significant digits, or all digits before the point. The page's
script has the same functions (``numbers.js``).
"""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Decimal

#: An unknown value.
UNKNOWN = "–"

#: Numbers below, and from here on, are written with an exponent.
_TINY, _HUGE = 1e-9, 1e15

_KIB = 1024
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")

_MINUTE, _HOUR = 60, 3600

#: Durations in seconds below which milliseconds, and from which minutes, are shown. A value that
#: would be rounded up to the next unit has this unit already.
_MILLISECONDS_BELOW = 0.09995
_MINUTES_FROM = 99.95


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


def number(value: float) -> str:
    """Return a number with 3 significant digits and all digits before the point.

    Very small and very large numbers have an exponent.

    >>> number(0.0000512), number(32.9722), number(1234567.8), number(2.0), number(1e300)
    ('0.0000512', '33', '1234568', '2', '1e+300')
    """
    if value == 0:
        return "0"
    if not _TINY <= abs(value) < _HUGE:
        return f"{value:.3g}"
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    # As in JavaScript: the exact value decides, and half is rounded up.
    text = f"{Decimal(value).quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_UP):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def duration(seconds: float | None) -> str:
    """Return a duration in its largest fitting units; an en dash if it is unknown.

    >>> duration(0.00042), duration(3.2149), duration(192), duration(7320)
    ('0.42 ms', '3.21 s', '3 min 12 s', '2 h 2 min')
    """
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if seconds < _MILLISECONDS_BELOW:
        return f"{number(seconds * 1e3)} ms"
    if seconds < _MINUTES_FROM:
        return f"{number(seconds)} s"
    minutes, rest = divmod(math.floor(seconds + 0.5), _MINUTE)
    units = "min", "s"
    if minutes * _MINUTE >= _HOUR:
        minutes, rest = divmod(math.floor(seconds / _MINUTE + 0.5), _MINUTE)
        units = "h", "min"
    return f"{minutes} {units[0]}" + (f" {rest} {units[1]}" if rest else "")


def size(nbytes: float | None) -> str:
    """Return a number of bytes in its largest fitting unit; an en dash if it is unknown.

    >>> size(512), size(1536), size(5 * 2**30), size(2**20 - 1)
    ('512 B', '1.5 KiB', '5 GiB', '1 MiB')
    """
    if nbytes is None or not math.isfinite(nbytes):
        return UNKNOWN
    if nbytes < 0:
        return f"-{size(-nbytes)}"
    unit = 0
    # Half below the next unit would be rounded up to 1024.
    while nbytes >= _KIB - 0.5 and unit < len(_UNITS) - 1:
        nbytes /= _KIB
        unit += 1
    return f"{number(nbytes)} {_UNITS[unit]}"


def rate(nbytes: float | None, seconds: float | None) -> str:
    """Return bytes in a time as a rate, always in MiB/s; an en dash if either is unknown.

    >>> rate(5 * 2**20, 2), rate(1, 1)
    ('2.5 MiB/s', '0.000000954 MiB/s')
    """
    if nbytes is None or not seconds or not math.isfinite(nbytes / seconds):
        return UNKNOWN
    return f"{number(nbytes / seconds / _KIB**2)} MiB/s"
