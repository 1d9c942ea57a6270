"""Expressions of collections as text, in Dask's own form, with bounded work."""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from dask.utils import funcname

from dask_strata.recorder.pipeline.redact import redact_text
from dask_strata.recorder.pipeline.text import clip

#: Longest recorded text of an expression, in characters.
_LIMIT = 20_000

#: Most lines of an expression; Dask prints a part again for each use of it.
_LINES = 500

#: Most items of an operand that is printed as a whole.
_ITEMS = 100

#: Types whose size is known; that of a graph would have to be computed.
_SIZED = (str, bytes, dict, list, tuple, set, frozenset)

_SHORT = reprlib.Repr()
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxset = _SHORT.maxfrozenset = _SHORT.maxdict = 10
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 200


def expression_of(collection: Any) -> Any:
    """Return the expression of a collection; None if it has a graph instead.

    The class decides: an instance of `Delayed` has any attribute.
    """
    if not hasattr(type(collection), "expr"):
        return None
    expr = collection.expr
    return expr if is_expression(expr) else None


def is_expression(value: Any) -> bool:
    """Return whether a value is one of Dask's expressions."""
    module = sys.modules.get("dask._expr")  # without it, no expression exists
    return module is not None and isinstance(value, module.Expr)


def expression_text(expressions: Iterable[Any]) -> str | None:
    """Return expressions as Dask prints them, redacted; None if there are none.

    Large operands and expressions are shortened. Nothing is optimised or computed.
    """
    lines: list[str] = []
    for expr in (part for each in expressions for part in _members(each)):
        lines.extend(_lines(expr, _LINES - len(lines)))
    return clip(redact_text("\n".join(lines)), _LIMIT) if lines else None


def _members(expr: Any) -> list[Any]:
    """Return the expressions in one of Dask's containers, or the expression itself."""
    is_container = type(expr).__name__.startswith("_") and all(map(is_expression, expr.operands))
    return expr.operands if is_container else [expr]


def _lines(expr: Any, room: int) -> list[str]:
    """Return the lines of an expression, at most about `room` of them."""
    if room <= 0:
        return []
    try:
        if _n_lines(expr, {}) <= room and all(map(_is_small, _operands(expr))):
            lines = expr._tree_repr_lines()  # noqa: SLF001  the lines of `pprint`
            if isinstance(lines, list):
                return lines
    except Exception:  # noqa: BLE001, S110  an operand's repr may do anything: print it in short
        pass
    return _short_lines(expr, room)


def _n_lines(expr: Any, known: dict[str, int]) -> int:
    """Return the number of lines that Dask prints for an expression; too many count as many."""
    stack = [expr]
    while stack:
        node = stack[-1]
        parts = [_name(part) for part in node.dependencies()]
        missing = [part for part in node.dependencies() if _name(part) not in known]
        if missing and len(known) <= _LINES:
            stack.extend(missing)
            continue
        stack.pop()
        inner = node.operand("exprs") if _is_fused(node) else ()
        known[_name(node)] = 1 + len(inner) + sum(known.get(part, _LINES) for part in parts)
    return known[_name(expr)]


def _name(node: Any) -> str:
    return node._name  # type: ignore[no-any-return]  # noqa: SLF001  Dask's own name of it


def _is_fused(node: Any) -> bool:
    return "exprs" in node._parameters  # noqa: SLF001  the names of the operands


def _operands(expr: Any) -> Iterator[Any]:
    for node in expr.walk():
        inner = node.operand("exprs") if _is_fused(node) else ()
        for operand in chain(node.operands, *(each.operands for each in inner)):
            if operand is not inner and not is_expression(operand):
                yield operand


def _is_small(value: Any, depth: int = 3) -> bool:
    """Return whether the text of an operand is short and quickly made."""
    if value is None or isinstance(value, (bool, int, float, type)):
        return True
    if isinstance(value, (str, bytes)):
        return len(value) <= _LIMIT // 4
    if isinstance(value, (dict, list, tuple, set, frozenset)):
        if depth <= 0 or len(value) > _ITEMS:
            return False
        items = [*value, *value.values()] if isinstance(value, dict) else value
        return all(_is_small(item, depth - 1) for item in items)
    return not hasattr(value, "layers")  # a graph


def _short_lines(expr: Any, room: int) -> list[str]:
    lines: list[str] = []
    stack = [(expr, 0)]
    while stack:
        if len(lines) >= room:
            lines.append("… (more lines)")
            break
        node, indent = stack.pop()
        lines.append(" " * indent + _short_line(node))
        stack.extend((part, indent + 2) for part in reversed(node.dependencies()))
    return lines


def _short_line(node: Any) -> str:
    """Return the name and operands of a node, like Dask, with long operands shortened."""
    line = f"{funcname(type(node))}:"
    names, defaults = type(node)._parameters, type(node)._defaults  # noqa: SLF001
    for i, operand in enumerate(node.operands):
        if is_expression(operand):
            continue
        name = names[i] if i < len(names) else ""
        if _is_small(operand):
            try:
                text = _SHORT.repr(operand)
                if name in defaults and text == _SHORT.repr(defaults[name]):
                    continue
            except Exception:  # noqa: BLE001  an operand's repr may do anything
                text = f"<{type(operand).__name__}>"
        else:
            size = f" of {len(operand):,}" if isinstance(operand, _SIZED) else ""
            text = f"<{type(operand).__name__}{size}>"
        line += f" {name}={text}" if name else f" {text}"
    return line
