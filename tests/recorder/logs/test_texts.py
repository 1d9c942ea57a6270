"""Lines, bounds and texts of logs, without a cluster."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dask_strata.recorder.logs.budget import (
    BYTES_AT_ONCE,
    ENTRY_LIMIT,
    LINES_AT_ONCE,
    LINES_PER_SECOND,
    Budget,
)
from dask_strata.recorder.logs.lines import LineSplitter
from dask_strata.recorder.logs.texts import TextFilter

KEY = "-----BEGIN PRIVATE KEY-----", "MIIEvAIBADANBgkq", "-----END PRIVATE KEY-----"


@given(st.binary(max_size=300).map(lambda data: data.replace(b"\r", b"")), st.data())
def test_lines_do_not_depend_on_the_blocks(data: bytes, cuts: st.DataObject) -> None:
    """However bytes are cut into blocks, the lines are those of the whole."""
    splitter, found, start = LineSplitter(), [], 0
    while start < len(data):
        stop = cuts.draw(st.integers(start + 1, len(data)))
        found += splitter.feed(data[start:stop])
        start = stop
    *lines, rest = data.split(b"\n")
    assert found == [(line, 0) for line in lines]
    assert splitter.rest() == ((rest, 0) if rest else None)


def test_a_long_line_is_cut_and_its_rest_counted() -> None:
    """A line without end takes a bounded memory; the number of bytes cut off is exact."""
    splitter = LineSplitter()
    for _ in range(100):
        assert splitter.feed(b"x" * 1_000) == []
    assert splitter.feed(b"y\nnext\n") == [
        (b"x" * ENTRY_LIMIT, 100_001 - ENTRY_LIMIT),
        (b"next", 0),
    ]


def test_a_progress_bar_is_its_last_version() -> None:
    """Of a line that is written again and again after carriage returns, the last one counts."""
    splitter = LineSplitter()
    for percent in range(100):
        assert splitter.feed(b"\r%3d %% %s" % (percent, b"#" * 500)) == []
    assert splitter.feed(b"\rdone\r\nafter\r\n") == [(b"done", 0), (b"after", 0)]


def test_the_rate_and_the_bytes_are_bounded_and_the_rest_is_counted() -> None:
    """Recorded and lost entries add up; time gives back what was used."""
    now = [0.0]
    budget = Budget(lambda: now[0])
    assert budget.take([1] * (LINES_AT_ONCE + 5)) == LINES_AT_ONCE
    assert budget.take_lost() == 5
    now[0] = 2.0
    assert budget.take([1] * 10_000) == 2 * LINES_PER_SECOND
    assert budget.take_lost(kept=100) == 10_000 - 2 * LINES_PER_SECOND - 100
    budget.unlose(100)
    assert budget.take_lost() == 0
    now[0] = 100.0
    assert budget.take([BYTES_AT_ONCE // 4] * 5) == 4
    assert budget.take_lost() == 1


def test_secrets_of_lines_are_redacted() -> None:
    """A secret of one line, and a private key of several lines in two parts, are replaced."""
    texts = TextFilter(code=True)
    assert texts.lines(["a", "password=hunter2", "b"]) == ["a", "password=(redacted)", "b"]
    assert texts.lines(["before", *KEY[:2]]) == ["before", "(redacted)", "(redacted)"]
    assert texts.lines([KEY[1], KEY[2], "after"]) == ["(redacted)", "(redacted)", "after"]


def test_source_lines_are_left_out_with_code() -> None:
    """Source lines in tracebacks and warnings, also in quoted ones, are left out with the code."""
    texts = TextFilter(code=False)
    lines = [
        "Traceback (most recent call last):",
        '  File "/x.py", line 3, in f',
        "    return secret_algorithm(1)",
        "ValueError: 1",
        "/x.py:7: UserWarning: careful",
        "  secret_algorithm(2)",
        "  indented output",
    ]
    found = texts.lines(lines)
    assert "secret_algorithm" not in "\n".join(found)
    assert [found[i] for i in (0, 1, 3, 4)] == [lines[i] for i in (0, 1, 3, 4)]
    quoted = r"""Traceback: '  File "/x.py", line 1, in f\n    secret_algorithm()\n'"""
    assert "secret_algorithm" not in texts.text(f"Compute Failed\n{quoted}")
    assert TextFilter(code=True).lines(lines) == lines
