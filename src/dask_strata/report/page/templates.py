"""The environment of the page's templates: filters, functions and constants that they use."""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from dask_strata.analysis.breakdown import MEANINGS, PREFIX_KINDS
from dask_strata.analysis.critical_path.walk import CAUSES, Segment
from dask_strata.analysis.idleness import REASONS
from dask_strata.analysis.measured.memory import LIMITS
from dask_strata.report.chunks import headline as chunks_headline
from dask_strata.report.io import io_lines
from dask_strata.report.page import colors
from dask_strata.report.profile import profile_lines
from dask_strata.report.story import cpu_words, file_lines, place_of
from dask_strata.report.summary import headline, io_sentence, nothing_stands_out, unknown_note
from dask_strata.report.words import count, duration, number, percent, rate, size, visible
from dask_strata.schema import FORMAT_VERSION

if TYPE_CHECKING:
    from jinja2 import Environment

#: Most rows of a table of the page; the page counts the others.
_ROWS = 200

_ASSETS = Path(__file__).parent / "assets"


@cache
def asset(name: str) -> str:
    """Return the text of an asset of the page.

    Parameters
    ----------
    name : str
        Name of the file in the folder ``assets``.
    """
    return (_ASSETS / name).read_text(encoding="utf-8")


def occupant_text(segment: Segment) -> str:
    """Return who held what a segment of the critical path waited for.

    Parameters
    ----------
    segment : Segment
        The segment.
    """
    occupant = segment.occupant
    if occupant is None:
        return "–"
    if occupant.kind == "gil":
        return f"the GIL on {occupant.worker}, tasks such as {occupant.prefix}"
    thread = f", thread {occupant.thread or segment.thread}" if occupant.attempt is not None else ""
    where = f" on {occupant.worker or segment.worker}{thread}" if thread else ""
    if occupant.kind == "gc":
        begun = f", begun by task {occupant.name}{where}" if occupant.name else ""
        return f"garbage collection{begun}"
    return f"{occupant.kind} {occupant.name or ''}".strip() + where


def code(text: str) -> Markup:
    """Return a text as HTML, with the names in backticks as code.

    >>> code("`a<b` is slow")
    Markup('<code>a&lt;b</code> is slow')
    """
    return Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", str(escape(visible(text)))))  # noqa: S704


@cache
def environment() -> Environment:
    """Return the Jinja environment: it escapes all values and rejects undefined names."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(_ASSETS),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "code": code,
        "count": count,
        "duration": duration,
        "number": number,
        "percent": percent,
        "size": size,
        "visible": lambda text: visible(str(text), keep_lines=True),
        "moment": lambda time: f"{time:%Y-%m-%d %H:%M:%S}" if time else "unknown",
    }
    made.globals |= {
        "CAUSES": CAUSES,
        "LIMITS": LIMITS,
        "MEANINGS": MEANINGS,
        "PREFIX_KINDS": PREFIX_KINDS,
        "REASONS": REASONS,
        "ROWS": _ROWS,
        "color_of": colors.color_of,
        "kind_colors": colors.KINDS,
        "cause_colors": colors.CAUSES,
        "limit_colors": colors.LIMITS,
        "headline": lambda s: " · ".join(str(headline(s)).split("  ")),
        "io_lines": io_lines,
        "io_sentence": io_sentence,
        "unknown_note": unknown_note,
        "nothing_stands_out": nothing_stands_out,
        "occupant_text": occupant_text,
        "profile_lines": profile_lines,
        "chunks_headline": chunks_headline,
        "rate": rate,
        "file_lines": file_lines,
        "place_of": place_of,
        "cpu_words": cpu_words,
        "format_version": FORMAT_VERSION,
        "our_version": version("dask-strata"),
    }
    return made
