"""Numbers, units and untrusted text in a form for people."""

from __future__ import annotations

import json
import re

from dask_strata.analysis.words import count, duration, number, percent, rate, size

__all__ = [
    "count",
    "duration",
    "escape_in_json",
    "number",
    "percent",
    "rate",
    "size",
    "spreadsheet_text",
    "visible",
]

#: Characters that change a terminal or the order of text, are invisible, or end a line: controls,
#: Unicode's default ignorable code points, and the blank pattern of Braille. The two joiners,
#: U+200C and U+200D, and the variation selectors from U+FE00 are part of words and emoji.
_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e"
    r"\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)

_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?")


def visible(text: str, *, keep_lines: bool = False) -> str:
    r"""Return a text with its control and invisible characters replaced by escape sequences.

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


def escape_in_json(text: str) -> str:
    r"""Return a JSON text whose control characters are JSON's own escape sequences.

    >>> escape_in_json('"\x9b1m"')
    '"\\u009b1m"'
    """
    return _CONTROL.sub(lambda m: json.dumps(m.group())[1:-1], text)


#: First characters of a cell that a spreadsheet may take for a formula.
_FORMULA = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")


def spreadsheet_text(text: str) -> str:
    """Return a text for a cell of a CSV file, such that no spreadsheet takes it for a formula.

    Parameters
    ----------
    text : str
        Any text of a run.

    Returns
    -------
    str
        The text; with an apostrophe in front where it could be a formula and is not a number.

    Examples
    --------
    >>> spreadsheet_text("=cmd|' /C calc'!A0"), spreadsheet_text("-1.5"), spreadsheet_text("sum-1")
    ("'=cmd|' /C calc'!A0", '-1.5', 'sum-1')
    """
    if not text.startswith(_FORMULA) or _NUMBER.fullmatch(text):
        return text
    return f"'{text}"
