"""Keys of Dask as text that stands for one key and no other."""

from __future__ import annotations

from typing import Any

#: What a text begins with that stands for a key which is no text.
KEY_MARK = "\x00"


def wire_key(key: Any) -> str:
    r"""Return a text that stands for one key of Dask and for no other.

    A text key stands for itself. Any other key is the text that Dask shows for it behind
    a mark with its type, so that ``"('x', 0)"`` and ``('x', 0)`` stay two keys.

    >>> wire_key("inc-1")
    'inc-1'
    >>> wire_key(("x", 0))
    "\x00tuple\x00('x', 0)"
    >>> wire_key("\x00odd")
    '\x00str\x00\x00odd'
    """
    if key.__class__ is str:
        return f"{KEY_MARK}str{KEY_MARK}{key}" if key.startswith(KEY_MARK) else key
    return f"{KEY_MARK}{type(key).__name__}{KEY_MARK}{key}"


def split_wire_key(wire: str) -> tuple[str, str]:
    r"""Return the text that Dask shows for a key, and its type.

    >>> split_wire_key("\x00tuple\x00('x', 0)")
    ("('x', 0)", 'tuple')
    >>> split_wire_key("inc-1")
    ('inc-1', 'str')
    """
    if not wire.startswith(KEY_MARK):
        return wire, "str"
    kind, _, text = wire[1:].partition(KEY_MARK)
    return text, kind
