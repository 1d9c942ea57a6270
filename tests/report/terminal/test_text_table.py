"""Tables of texts at several widths."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from dask_strata.report.terminal.text_table import print_texts

COLUMNS = {"key": False, "worker": False, "seconds": True, "bytes": True}
ROWS = [
    ["('random_sample-0f3c9a17', 0, 12)", "tcp://10.20.30.40:40123", "-0.722 s", "1.5 KiB"],
    ["界" * 30, "–", "0 ms", Text("–", "bold red")],
]


@pytest.mark.parametrize("width", [30, 40, 60, 80, 120])
@pytest.mark.parametrize("indent", [0, 2])
def test_rows_are_lines_and_numbers_are_whole(width: int, indent: int) -> None:
    """What does not fit is shortened in its middle, or a column that is named."""
    out = Console(file=StringIO(), width=width, markup=False)
    print_texts(COLUMNS, ROWS, out, ("key", "seconds"), indent)
    head, first, second, *rest = out.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert all(cell_len(line) <= width for line in (head, first, second))
    assert "-0.722 s" in first
    assert first.strip().startswith("('rand")
    assert first[:indent].isspace() or not indent
    hidden = " ".join(rest).partition("not shown: ")[2].partition(" (")[0].split(", ")
    for name in COLUMNS:
        assert (name in head.split()) != (name in hidden), name


def test_wide_terminals_have_everything() -> None:
    """Nothing is shortened, and nothing is reported as hidden."""
    out = Console(file=StringIO(), width=120, markup=False)
    print_texts(COLUMNS, ROWS, out)
    text = out.file.getvalue()  # type: ignore[attr-defined]
    assert all(str(cell) in text for row in ROWS for cell in row)
    assert "not shown" not in text
