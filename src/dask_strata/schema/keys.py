"""Dask's keys as text, without loss: each wire text stands for exactly one key."""

from __future__ import annotations

from typing import Any

#: First character of the wire text of a key that is no text.
KEY_MARK = "\x00"


def wire_key(key: Any) -> str:
    r"""Return the wire text of a key, which stands for this key only.

    A text key stands for itself. The wire text of any other key is a mark, the name of its type
    and the text that Dask shows for it, so that ``"('x', 0)"`` and ``('x', 0)`` stay two keys.

    Parameters
    ----------
    key : object
        A key of Dask.

    Returns
    -------
    str
        Its wire text; see `split_wire_key`.

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
    r"""Return the text that Dask shows for a key, and the name of the key's type.

    Parameters
    ----------
    wire : str
        Wire text of a key; see `wire_key`.

    >>> split_wire_key("\x00tuple\x00('x', 0)")
    ("('x', 0)", 'tuple')
    >>> split_wire_key("inc-1")
    ('inc-1', 'str')
    """
    if not wire.startswith(KEY_MARK):
        return wire, "str"
    kind, _, text = wire[1:].partition(KEY_MARK)
    return text, kind


def recorded_text(text: str) -> str:
    r"""Return a text as the record contains it: what UTF-8 cannot encode is an escape sequence.

    Parameters
    ----------
    text : str
        Any text, such as a command's argument, which may contain bytes that are not UTF-8.

    >>> recorded_text("caf\udce9")
    'caf\\udce9'
    """
    return text.encode("utf-8", "backslashreplace").decode()
