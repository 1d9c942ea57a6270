"""Which columns fit into a width, and how their values are shortened."""

from __future__ import annotations

from datetime import datetime, timezone

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from dask_strata.report.terminal.columns import GAP, exact, fit, human, shortened

TEXTS = st.text(st.characters(exclude_categories=("C", "M", "Z")), max_size=60)


@given(TEXTS, st.integers(1, 80))
def test_a_shortened_text_fits_and_keeps_its_ends(text: str, width: int) -> None:
    """A text is unchanged if it fits; otherwise its begin and its end are the original ones."""
    found = shortened(text, width)
    assert cell_len(found) <= width
    if cell_len(text) <= width:
        assert found == text
    else:
        begin, _, end = found.strip().partition("…")
        assert text.startswith(begin.rstrip())
        assert text.endswith(end)


@given(
    st.dictionaries(st.text("abcdef", min_size=1, max_size=12), st.booleans(), min_size=1),
    st.data(),
)
def test_the_shown_columns_fit(columns: dict[str, bool], data: st.DataObject) -> None:
    """They are in the order of the table, never wider than the terminal; numbers are whole."""
    natural = {n: max(len(n), data.draw(st.integers(1, 90))) for n in columns}
    available = data.draw(st.integers(20, 220))
    important = data.draw(st.permutations(list(columns)))
    found = fit(columns, natural, available, important)
    assert [n for n in columns if n in found.widths or n in found.hidden] == list(columns)
    assert list(found.widths) == [n for n in columns if n in found.widths]
    assert important[0] in found.widths
    if len(found.widths) > 1 or not columns[important[0]]:
        assert sum(found.widths.values()) + GAP * (len(found.widths) - 1) <= available
    for name, width in found.widths.items():
        assert width <= natural[name]
        if columns[name] and name != important[0]:
            assert width == natural[name]
    if sum(natural.values()) + GAP * (len(natural) - 1) <= available:
        assert found.widths == natural


def test_the_most_important_columns_are_kept() -> None:
    """A column without space does not keep the next, narrower one away."""
    columns = {"a": False, "b": False, "wide": True, "n": True}
    natural = {"a": 10, "b": 10, "wide": 30, "n": 3}
    assert list(fit(columns, natural, 26).widths) == ["a", "b"]
    assert list(fit(columns, natural, 27).widths) == ["a", "b", "n"]
    assert list(fit(columns, natural, 35, ["n", "wide"]).widths) == ["wide", "n"]


def test_units() -> None:
    """Seconds and bytes have units for people, by the names of their columns."""
    assert human("compute_seconds", 1.8688e-05) == "0.0187 ms"
    assert human("sum(compute_seconds)", 192) == "3 min 12 s"
    assert human("nbytes", 1536) == "1.5 KiB"
    assert human("max(read_bytes)", 1 << 30) == "1 GiB"
    assert human("n_attempts", 1536) == "1536"
    assert human("nbytes_text", "x") == "x"
    assert human("compute_seconds", None) == "–"
    time = datetime(2026, 11, 26, 1, 2, 3, 456789, tzinfo=timezone.utc)
    assert human("start", time) == "2026-11-26 01:02:03.456"
    assert exact(time) == "2026-11-26T01:02:03.456789+00:00"
    assert exact(1.8688e-05) == "1.8688e-05"
