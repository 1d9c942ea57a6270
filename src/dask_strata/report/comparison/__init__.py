"""A comparison of runs on a terminal, as Markdown, as JSON and as a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dask_strata.analysis.compare.compare import Comparison
from dask_strata.analysis.compare.gate import Judgement
from dask_strata.errors import StrataError

#: Formats of the output.
FORMATS = ("text", "markdown", "json")


def print_comparison(found: Comparison, judged: Sequence[Judgement], form: str) -> None:
    """Print a comparison.

    Parameters
    ----------
    found : Comparison
        The comparison.
    judged : sequence of Judgement
        Limits that were checked.
    form : str
        One of `FORMATS`.
    """
    if form == "json":
        from dask_strata.report.comparison.as_json import comparison_json
        from dask_strata.report.rows import print_json

        print_json(comparison_json(found, judged))
    elif form == "markdown":
        import click

        from dask_strata.report.comparison.markdown import comparison_markdown

        click.echo(comparison_markdown(found, judged))
    else:
        from dask_strata.report.comparison.text import print_text
        from dask_strata.report.terminal.table import console

        print_text(found, judged, console())


def write_comparison(found: Comparison, judged: Sequence[Judgement], path: Path) -> int:
    """Write the page of a comparison, and return its size in bytes.

    Parameters
    ----------
    found : Comparison
        The comparison.
    judged : sequence of Judgement
        Limits that were checked.
    path : Path
        The file.

    Raises
    ------
    StrataError
        The file cannot be written.
    """
    from dask_strata.report.comparison.page import comparison_page

    page = comparison_page(found, judged)
    try:
        # Names that are not valid Unicode are written as escapes.
        path.write_text(page, encoding="utf-8", errors="backslashreplace")
        return path.stat().st_size
    except OSError as error:
        raise StrataError(f"{path} cannot be written: {error.strerror or error}.") from None
