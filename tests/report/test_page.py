"""The page's columns, colours and HTML, without a browser."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from distributed.utils import color_of as color_in_dask
from hypothesis import given
from hypothesis import strategies as st

from dask_strata import open_run
from dask_strata.analysis.timeline.timeline import timeline
from dask_strata.report.page.colors import color_of
from dask_strata.report.page.columns import Container, few_digits
from dask_strata.report.page.page import make_page, story_html
from dask_strata.run.duckdb_session import connect
from tests.support.synthetic import T0, Process, life, moves, new_run, small_run


def unpacked(container: Container) -> dict[str, tuple[dict, bytes]]:
    """Return the header and bytes of each column."""
    data = zlib.decompress(base64.b64decode(container.text()))
    at = 4 + int.from_bytes(data[:4], "little")
    found = {}
    for column in json.loads(data[4:at]):
        found[column["name"]] = column, data[at : at + column["bytes"]]
        at += column["bytes"]
    assert at == len(data)
    return found


def ints(column: dict, data: bytes) -> list[int]:
    """Decode a column of integers as the page's script does."""
    n, width = column["n"], column["width"]
    raw = [sum(data[p * n + i] << 8 * p for p in range(width)) for i in range(n)]
    values = [-(v + 1) // 2 if v % 2 else v // 2 for v in raw]
    return np.cumsum(values).tolist() if column["delta"] else values


@given(st.lists(st.integers(-(2**50), 2**50), max_size=50), st.booleans())
def test_integers_come_back(values: list[int], delta) -> None:
    """Integers are equal after encoding and decoding."""
    made = Container()
    made.ints("x", np.array(values, np.int64), delta=delta)
    assert ints(*unpacked(made)["x"]) == values


def test_tokens_are_kept_once_and_as_bytes() -> None:
    """A token is stored as 16 bytes, once for all keys that contain it."""
    token = "0123456789abcdef" * 2
    keys = [f"('x-{token}', {n})" for n in range(1000)]
    made = Container()
    made.texts("key", keys)
    columns = unpacked(made)
    text = columns["key"][1].decode()
    assert columns["key.tokens"][1] == bytes.fromhex(token)
    assert [t.replace("\x01", token) for t in text.split("\x00")] == keys
    assert len(made.text()) < 4 * len(keys)


@given(
    st.lists(st.integers(0, 2**50), min_size=1, max_size=50), st.integers(2, 20), st.integers(0, 8)
)
def test_few_digits_are_close(values: list[int], digits: int, power: int) -> None:
    """Rounded integers have few digits, and are as close as these allow."""
    for value, found in zip(
        values, few_digits(np.array(values, np.int64), digits, 1 << power).tolist(), strict=True
    ):
        unit = min(1 << max(value.bit_length() - digits, 0), 1 << power)
        assert abs(found - value) * 2 <= unit
        assert found % unit == 0


def test_tokens_beyond_the_limit_are_shortened() -> None:
    """Tokens that need more bytes than allowed keep their first bytes, at least three each."""
    tokens = [f"{n:032x}"[::-1] for n in range(1, 101)]
    for most, size in ((1600, 16), (1599, 15), (500, 5), (1, 3)):
        made = Container()
        assert made.texts("key", [f"a-{token}" for token in tokens], most=most) == size
        column, data = unpacked(made)["key.tokens"]
        assert column["size"] == size
        assert data.hex() == "".join(token[: 2 * size] for token in tokens)


@given(st.lists(st.text("abcdef0123456789\x00\x01-", max_size=70), max_size=12))
def test_texts_are_the_same_in_blocks_of_any_size(keys: list[str]) -> None:
    """Tokens are found in each block of texts, and a separator in a text is replaced."""
    made = []
    for size in (1, 3, 100):
        with mock.patch("dask_strata.report.page.columns._BLOCK", size):
            made.append(Container())
            made[-1].texts("key", keys)
    assert made[0].text() == made[1].text() == made[2].text()
    columns = unpacked(made[0])
    used = iter(ints(*columns["key.used"]))
    tokens = columns["key.tokens"][1].hex()
    text = re.sub("\x01", lambda _: tokens[32 * next(used) :][:32], columns["key"][1].decode())
    assert text == "\x00".join(re.sub("[\x00\x01]", "\ufffd", key) for key in keys)


@given(st.text(max_size=20))
def test_colors_are_those_of_dasks_dashboard(prefix: str) -> None:
    """The palette and the hash are Dask's own."""
    assert color_of(prefix) == color_in_dask(prefix)


def test_a_page_needs_nothing_else(tmp_path: Path) -> None:
    """The only address is the namespace of SVG, and the policy forbids loading anything."""
    page = make_page(open_run(small_run(tmp_path / "r")))
    assert set(re.findall(r"https?://[^\"'\s)]+", page)) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<(link|img|iframe|object|embed)\b|\bsrc=|@import|url\(", page)
    assert "default-src 'none'" in page
    assert len(page) < 300_000


def test_two_pages_of_a_run_are_the_same(tmp_path: Path) -> None:
    """The page does not depend on the time of its creation."""
    run = open_run(small_run(tmp_path / "r"))
    assert make_page(run) == make_page(open_run(tmp_path / "r"))


@pytest.mark.long
def test_the_command_writes_the_page(tmp_path: Path, strata) -> None:
    """The page is written to the given file; a missing folder is an error in one sentence."""
    small_run(tmp_path / "r")
    done = strata("report", "r", check=True)
    assert (tmp_path / "r.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert "r.html" in done.stderr
    strata("report", "r", "-o", "other.html", check=True)
    assert (tmp_path / "other.html").stat().st_size == (tmp_path / "r.html").stat().st_size
    failed = strata("report", "r", "-o", "nowhere/x.html")
    assert failed.returncode == 1
    assert "cannot be written" in failed.stderr


def test_a_page_starts_with_html(tmp_path: Path) -> None:
    """The page begins with its doctype: otherwise browsers use quirks mode."""
    assert make_page(open_run(small_run(tmp_path / "r"))).startswith("<!doctype html>")


def test_the_timeline_is_in_rows_by_thread(tmp_path: Path) -> None:
    """Bars are in order of row and start; one without an execution is as long as its attempt."""
    folder = new_run(tmp_path / "r")
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1")
    rows = [
        *life("a-1", 1, 5, "tcp://w:1"),
        *moves("b-1", (1, "waiting", "processing"), (3, "processing", "released")),
    ]
    scheduler.write("scheduler_transitions", sorted(rows, key=lambda r: r["time"]))
    scheduler.end()
    drawn = timeline(open_run(folder))
    assert [(row.worker, row.thread) for row in drawn.rows] == [
        ("tcp://w:1", 1),
        ("(unknown)", None),
    ]
    assert drawn.origin == T0
    assert (drawn.bars.start / 1e9).tolist() == [1, 1]
    assert (drawn.bars.stop / 1e9).tolist() == [5, 3]
    assert drawn.bars.ran.tolist() == [1, 0]


def test_a_story_is_a_fragment_that_escapes(tmp_path: Path) -> None:
    """Keys and exceptions of tasks are escaped as text."""
    folder = new_run(tmp_path / "r")
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1")
    bad = "<script>x</script>"
    rows = moves(bad, (1, "waiting", "processing"), (2, "processing", "erred"), exception=bad)
    scheduler.write("scheduler_transitions", rows)
    scheduler.end()
    told = story_html(open_run(folder), bad)
    assert "<script" not in told
    assert "&lt;script&gt;" in told
    assert "processing → erred" in told


@pytest.mark.parametrize("what", ["run", "task", "table", "query"])
def test_notebooks_get_html(tmp_path: Path, what: str) -> None:
    """Runs, tasks and tables have HTML without scripts for notebooks."""
    run = open_run(small_run(tmp_path / "r"))
    shown = {
        "run": run,
        "task": run.task("a-1"),
        "table": run.tasks,
        "query": run.sql("select '<b>' as \"<i>\""),
    }
    html = shown[what]._repr_html_()
    assert "<script" not in html
    expected = {
        "run": ["All tasks succeeded.", "<svg", "dask-strata report"],
        "task": ["a-1", "released → waiting"],
        "table": ["2 rows, one per life of a key", "a-1"],
        "query": ["&lt;b&gt;", "&lt;i&gt;"],
    }
    assert [part for part in expected[what] if part not in html] == []


@pytest.mark.long
def test_a_notebook_shows_them(tmp_path: Path) -> None:
    """In a real kernel, the last value of a cell is shown as HTML."""
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient")
    small_run(tmp_path / "r")
    cells = [
        "import dask_strata; run = dask_strata.open_run('r'); run",
        "run.task('a-1')",
        "run.tasks",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
    client.NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    shown = [cell.outputs[0]["data"] for cell in notebook.cells]
    assert all("text/html" in data and "text/plain" in data for data in shown)
    assert "All tasks succeeded." in shown[0]["text/html"]


def test_no_progress_bar_is_among_our_answers() -> None:
    """DuckDB's progress bar is off: it would print on standard output in a long query."""
    assert connect().execute("select current_setting('enable_progress_bar')").fetchone() == (False,)
