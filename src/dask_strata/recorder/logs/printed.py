"""Whether the process itself makes the text of a log record, and whether that text is harmless.

A record that no handler takes stays without a text, and so do the user's objects in it.
"""

from __future__ import annotations

import logging
from typing import Any

#: Types and modules of objects whose texts run no code of the user.
_TYPES = frozenset({str, int, float, complex, bool, bytes, type(None), type})
_MODULES = frozenset({"numpy", "pathlib", "datetime", "decimal", "uuid"})

#: Containers of such objects, how many objects they may have, and how deep.
_CONTAINERS = (tuple, list, set, frozenset, dict)
_MOST, _DEEPEST = 100, 3


def is_printed(logger: logging.Logger, record: logging.LogRecord) -> bool:
    """Return whether a handler takes a record, as in `logging.Logger.callHandlers`.

    Parameters
    ----------
    logger : logging.Logger
        The logger.
    record : logging.LogRecord
        Its record.
    """
    has_handlers, present = False, logger
    while present is not None:
        for handler in present.handlers:
            has_handlers = True
            if record.levelno >= handler.level and not isinstance(handler, logging.NullHandler):
                return True
        if not present.propagate:
            break
        present = present.parent  # type: ignore[assignment]  # None for the root
    last = logging.lastResort
    return not has_handlers and last is not None and record.levelno >= last.level


def is_plain(value: Any, depth: int = _DEEPEST) -> bool:
    """Return whether the text of an object runs no code of the user.

    Parameters
    ----------
    value : object
        The object, or the arguments of a record.
    depth : int, optional
        Depth to which containers are searched.

    Examples
    --------
    >>> is_plain(("a", 1, [2.5])), is_plain((object(),))
    (True, False)
    """
    kind = type(value)
    if kind in _TYPES or kind.__module__ in _MODULES:
        return True
    if kind not in _CONTAINERS or not depth or len(value) > _MOST:
        return False
    parts = [*value, *value.values()] if kind is dict else value
    return all(is_plain(part, depth - 1) for part in parts)
