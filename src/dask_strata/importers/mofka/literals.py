"""Read cells with the text of a Python set or dict of keys, without evaluating them.

A cell is split into tokens; a token that is not part of a plain literal is an error. Only a single
key in an unusual form is passed to `ast.literal_eval`, after it was split into tokens, with
limits on its size and depth.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator

#: Most characters of a key that is passed to `ast.literal_eval`.
MAX_KEY_CHARACTERS = 1 << 16

#: Most levels of nested brackets.
MAX_DEPTH = 20

_PLAIN = r"'[ !-&(-\[\]-~]*'"  # printable ASCII without quote or backslash, equal to its own repr
_INT = r"(?:0|-?[1-9][0-9]*)"
_TOKEN = re.compile(
    rf"(?P<space>\s+)|(?P<key>{_PLAIN}(?!\s*['\"])|\({_PLAIN}(?:,|(?:, (?:{_INT}|{_PLAIN}))+)\))"
    rf"|(?P<comma>,)|(?P<colon>:)|(?P<empty>set\(\))|(?P<open>[\[({{])|(?P<close>[\])}}])"
    r"|(?P<other>b?'(?:[^'\\\n]|\\.)*'|b?\"(?:[^\"\\\n]|\\.)*\""
    r"|-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|None|True|False)"
    r"|(?P<numpy>np\.\w+\([-+.\w]*\))"
)

_USUAL_KEY = rf"(?:'(?P<text>[ !-&(-\[\]-~]*)'|(?P<pair>\({_PLAIN}(?:,|(?:, {_INT})+)\)))"
_USUAL_ITEM = rf"{_USUAL_KEY}: (?P<nbytes>[0-9]{{1,18}})"
_BARE_ITEM = re.sub(r"\(\?P<\w+>", "(?:", _USUAL_ITEM)

#: Regular expressions for the text of a dict with one usual key, and with one or more. Arrow's
#: engine applies them to whole columns, too. In a match of `ONE_KEY`, the group `text` or `pair`
#: is the key, and `nbytes` its size.
ONE_KEY = rf"^\{{{_USUAL_ITEM}\}}$"
USUAL = rf"^\{{{_BARE_ITEM}(?:, {_BARE_ITEM})*\}}$"

_usual = re.compile(USUAL[1:-1])
_usual_item = re.compile(_USUAL_ITEM)

_PAIRS = {"(": ")", "[": "]", "{": "}"}
_MAX_BYTES = 1 << 63
_DIGITS = re.compile("[0-9]{1,30}")  # Python raises an error for thousands of digits


class LiteralError(ValueError):
    """A cell is not the expected text; the message is the reason."""


def sizes(cell: str) -> list[tuple[str, int]]:
    """Return the keys and sizes in bytes in the text of a dict.

    >>> sizes("{('x', 0): 8, 'y': 16}")
    [("('x', 0)", 8), ('y', 16)]

    Raises
    ------
    LiteralError
        The cell is no text of a dict of keys to bytes.
    """
    if _usual.fullmatch(cell):
        return list({text or pair: int(n) for text, pair, n in _usual_item.findall(cell)}.items())
    found: dict[str, int] = {}
    for key, value in _items(cell, "{"):
        if value is None or not _DIGITS.fullmatch(value) or int(value) >= _MAX_BYTES:
            raise LiteralError("keys is not a dict of keys to bytes")
        found[_key(key)] = int(value)
    if not found:
        raise LiteralError("keys is empty")
    return list(found.items())


def keys(cell: str) -> list[str]:
    """Return the distinct keys in the text of a set, list or tuple.

    >>> keys("{'a', ('b', 1)}")
    ['a', "('b', 1)"]

    Raises
    ------
    LiteralError
        The cell is no text of a set, list or tuple of keys.
    """
    found = []
    for key, value in _items(cell, "{[("):
        if value is not None:
            raise LiteralError("a dict instead of a set of keys")
        found.append(_key(key))
    return list(dict.fromkeys(found))


def dependencies(cell: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each key of a graph with its dependencies, from the text of a dict of sets.

    Raises
    ------
    LiteralError
        The cell is no such text; discard the keys that were yielded before.

    Examples
    --------
    >>> dict(dependencies("{'a': set(), 'b': {'a'}}"))
    {'a': [], 'b': ['a']}
    """
    for key, value in _items(cell, "{"):
        if value is None:
            raise LiteralError("dependencies is not a dict of keys to sets of keys")
        yield _key(key), keys(value)


def _items(cell: str, brackets: str) -> Iterator[tuple[str, str | None]]:
    """Yield the raw text of each item of the outermost bracket: key, and value if it has one."""
    text = cell.strip()
    if text == "set()":
        return
    if not text or text[0] not in brackets:
        raise LiteralError("not the text of a " + ("dict" if brackets == "{" else "set of keys"))
    start = 1
    key: str | None = None
    for mark, at, end in _marks(text):
        part = text[start:at].strip()
        start = end
        if mark == ":":
            if key is not None or not part:
                raise LiteralError("an item is not complete")
            key = part
        elif part:
            yield (part, None) if key is None else (key, part)
            key = None
        elif key is not None or mark == ",":
            raise LiteralError("an item is not complete")


def _marks(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield commas, colons and end of the outermost bracket: the mark, its start and its end."""
    stack = [_PAIRS[text[0]]]
    position = 1
    while stack:
        token = _TOKEN.match(text, position)
        if token is None:
            raise LiteralError(f"unexpected {text[position : position + 20]!r}")
        kind, at, position = token.lastgroup, position, token.end()
        if kind == "open":
            stack.append(_PAIRS[token[0]])
            if len(stack) > MAX_DEPTH:
                raise LiteralError("nested too deeply")
        elif kind == "close" and stack.pop() != token[0]:
            raise LiteralError("brackets do not match")
        if not stack or (len(stack) == 1 and kind in {"comma", "colon"}):
            yield token[0], at, position
    if position != len(text):
        raise LiteralError("something follows the last bracket")


def _key(raw: str) -> str:
    """Return the text that Dask shows for a key, from its literal."""
    token = _TOKEN.fullmatch(raw)
    if token is not None and token.lastgroup == "key":
        return raw if raw[0] == "(" else raw[1:-1]
    if len(raw) > MAX_KEY_CHARACTERS:
        raise LiteralError("a key is too long")
    if "np." in raw and any(t.lastgroup == "numpy" for t in _TOKEN.finditer(raw)):
        return raw  # NumPy's numbers are no Python literals: keep the text of such a key
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes that Python does not know
            value = ast.literal_eval(raw)
        text = str(value)
        text.encode()
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        raise LiteralError("a key is not a literal") from None
    if isinstance(value, (dict, list, set)):
        raise LiteralError("a key is a collection")
    return text
