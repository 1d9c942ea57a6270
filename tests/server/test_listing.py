"""Which runs a list shows: words, facets, order, trend; against the same by hand."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from dask_strata.server import run_cache
from dask_strata.server.pages.listing import Selection, trend
from dask_strata.store.summaries.notes import change_notes
from tests.support.synthetic import new_run

START = datetime(2026, 1, 1, tzinfo=timezone.utc)


def row(i: int, **values: Any) -> dict[str, Any]:
    """Return a row."""
    made = {
        "run": f"run-{i:02}",
        "name": ("pipeline.py", "train.py")[i % 2],
        "outcome": "failed" if i % 5 == 4 else "finished",
        "start": START + timedelta(hours=i),
        "duration_seconds": float(10 + (7 * i) % 20),
        "tasks": i,
        "errors": None if i == 3 else i % 5 // 4,
        "user": ("ana", "ben", None)[i % 3],
        "git_commit": f"{i // 4:040x}",
        "tags": (("fast",), ("slow", "size=big"), ())[i % 3],
        "cause": "spill" if i % 4 == 0 else None,
        "insight": "spilling took 3 s" if i % 4 == 0 else None,
        "insight_seconds": 3.0 if i % 4 == 0 else None,
        "size_bytes": 1000 + i,
        "note": "node 7 was slow" if i == 6 else None,
        "problem": None,
    }
    return made | values


ROWS = [
    *(row(i) for i in reversed(range(20))),
    {"run": "bad", "problem": "it is damaged"},
    {"run": "new", "problem": None, "pending": True},
]


def selected(address: str) -> list[str]:
    """Return the names of the runs that an address selects."""
    values = parse_qs(urlsplit(address).query)
    return [r["run"] for r in Selection.of(lambda n: values.get(n, [])).rows(ROWS)]


def names(condition: Any) -> list[str]:
    """Return the names of the rows that meet a condition, the newest first."""
    return [r["run"] for r in ROWS if r["run"].startswith("run-") and condition(r)]


@pytest.mark.parametrize(
    ("address", "condition"),
    [
        ("/?q=ANA+pipeline", lambda r: r["user"] == "ana" and r["name"] == "pipeline.py"),
        ("/?q=spilling", lambda r: r["cause"] == "spill"),
        ("/?q=node+7", lambda r: r["note"]),
        ("/?q=size%3Dbig", lambda r: "size=big" in r["tags"]),
        ("/?q=2026-01-01+03%3A00", lambda r: r["start"].hour == 3),
        ("/?state=failed", lambda r: r["outcome"] == "failed"),
        ("/?user=ana&user=ben", lambda r: r["user"]),
        ("/?tag=fast&state=failed", lambda r: "fast" in r["tags"] and r["outcome"] == "failed"),
        (f"/?commit={0:040x}&name=train.py", lambda r: r["tasks"] in (1, 3)),
        ("/?insight=spill&q=pipe", lambda r: r["cause"]),
        ("/?q=nothing-like-it", lambda r: False),
        ("/?nonsense=1&sort=nonsense&q=run-", lambda r: True),
    ],
)
def test_words_and_facets_select(address: str, condition: Any) -> None:
    """All words, one value of each facet."""
    assert selected(address) == names(condition)


def test_rows_without_values_are_found_by_their_text() -> None:
    """A run that cannot be read is in the list, and is found by its problem."""
    assert selected("/")[-2:] == ["bad", "new"]
    assert selected("/?q=damaged") == ["bad"]


@pytest.mark.parametrize("column", ["duration", "tasks", "failed", "start", "user", "size"])
def test_the_order_is_that_of_a_column_with_unknown_values_last(column: str) -> None:
    """In both directions."""
    field = {"duration": "duration_seconds", "failed": "errors", "size": "size_bytes"}.get(
        column, column
    )
    by_name = {r["run"]: r.get(field) for r in ROWS}
    for sort in (column, f"-{column}"):
        values = [by_name[name] for name in selected(f"/?sort={sort}")]
        known = [value for value in values if value is not None]
        assert known == sorted(known, reverse=sort.startswith("-"))
        assert values[len(known) :] == [None] * (len(values) - len(known))
        assert len(values) == len(ROWS)


def test_counts_of_facets_are_what_their_addresses_select() -> None:
    """Each value's number is that of the runs after a click, unless it is one of several."""
    values = {"state": ["finished"], "q": ["py"]}
    selection = Selection.of(lambda n: values.get(n, []))
    facets = selection.facets(ROWS)
    assert {c.value: c.chosen for c in facets["state"]} == {"finished": True, "failed": False}
    for name in ("name", "user", "tag", "insight"):
        for choice in facets.get(name, ()):
            assert len(selected(choice.address)) == choice.n
            assert choice.n > 0
    (finished,) = (c for c in facets["state"] if c.chosen)
    assert selected(finished.address) == names(lambda r: True), "a second click ends the selection"
    assert finished.n == len(names(lambda r: r["outcome"] == "finished"))


def test_a_facet_of_one_value_is_shown_if_some_runs_lack_it() -> None:
    """The only tag of one run selects that run; a value that all runs have divides nothing."""
    rows = [row(0, tags=("baseline",), user="ana"), *(row(i, tags=(), user="ana") for i in (1, 2))]
    facets = Selection().facets(rows)
    assert [(c.value, c.n) for c in facets["tag"]] == [("baseline", 1)]
    assert "user" not in facets


def test_the_trend_is_in_time_order_and_against_the_usual_value() -> None:
    """The usual value is the median of up to five finished runs before."""
    points = trend([r for r in ROWS if r.get("name") == "pipeline.py"], "duration_seconds")
    values = [row(i) for i in range(0, 20, 2)]
    assert [p.row["run"] for p in points] == [r["run"] for r in values]
    assert (points[0].change, points[0].x, points[-1].x) == (None, 0, 1)
    for i, point in enumerate(points[1:], 1):
        before = [r["duration_seconds"] for r in values[:i] if r["outcome"] == "finished"][-5:]
        expected = values[i]["duration_seconds"] / median(before) - 1
        assert point.change == pytest.approx(expected)
    assert max(p.y for p in points) == 1
    assert trend([], "tasks") == []
    (only,) = trend([row(1)], "insight_seconds")
    assert (only.value, only.change, only.y) == (None, None, 0)


def test_a_list_that_takes_long_is_read_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest runs first; each later list has at least one more, and then all."""
    for i in range(3):
        new_run(tmp_path / f"run-{i}")
    monkeypatch.setattr(run_cache, "_ROWS_SECONDS", 0)
    runs = run_cache.RunCache(tmp_path)
    for n_read in (1, 2, 3, 3):
        rows = runs.rows()
        assert [r["run"] for r in rows] == ["run-2", "run-1", "run-0"]
        assert [r.get("pending", False) for r in rows] == [i >= n_read for i in range(3)]
    change_notes(tmp_path / "run-1", add=["new"])
    assert [r["tags"] for r in runs.rows()] == [(), ("new",), ()], "notes are read again"
