"""Frozen dataclasses as JSON, and back."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, Literal, get_args, get_type_hints

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from dask_strata.analysis.overview.comparable import Comparable
from dask_strata.analysis.overview.row import RunRow
from dask_strata.analysis.summary import Summary
from dask_strata.store.summaries.typed_json import from_json, to_json

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
TYPES: dict[type, st.SearchStrategy[Any]] = {
    float: NUMBERS,
    int: st.integers(-(1 << 63) + 1, (1 << 63) - 1),
    datetime: st.datetimes(timezones=st.just(timezone.utc)).map(lambda t: t.replace(fold=0)),
}


def _parts_of(kind: Any) -> set[type]:
    """Return a dataclass and all dataclasses in its hints."""
    found = {kind} if is_dataclass(kind) else set()
    inner = get_type_hints(kind).values() if is_dataclass(kind) else get_args(kind)
    return found.union(*map(_parts_of, inner))


PARTS = sorted(_parts_of(Summary) | {RunRow, Comparable}, key=lambda kind: kind.__name__)


@pytest.fixture(autouse=True)
def _strategies() -> None:
    for kind, strategy in TYPES.items():
        st.register_type_strategy(kind, strategy)


@pytest.mark.parametrize("kind", PARTS)
def test_every_part_of_a_summary_returns_unchanged(kind: type) -> None:
    """JSON has all that a dataclass has: types, times and the difference of 1 and 1.0."""

    @settings(max_examples=10, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(st.from_type(kind))
    def returns(value: Any) -> None:
        found = from_json(kind, json.loads(json.dumps(to_json(value))))
        assert found == value
        assert repr(found) == repr(value)

    returns()


@dataclass(frozen=True)
class Example:
    """A value of each kind."""

    text: str = "a"
    whole: int = 1
    number: float = 0.5
    flag: bool = True
    time: datetime | None = datetime(2026, 11, 21, 12, 0, 0, 5, tzinfo=timezone.utc)
    word: Literal["yes", "no"] = "yes"
    several: tuple[int, ...] = (1, 2)
    pair: tuple[str, int] = ("a", 1)
    named: dict[str, float | None] | None = None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("text", 1), ("text", None), ("whole", "1"), ("whole", 1.0), ("whole", True),
        ("whole", 1 << 63), ("number", "1"), ("number", True), ("number", float("nan")),
        ("number", float("inf")), ("flag", 0), ("time", 1), ("time", "yesterday"),
        ("time", "2026-11-21T12:00:00"), ("time", "2026-11-21T12:00:00+01:00"),
        ("word", "maybe"), ("word", []), ("several", "ab"), ("several", [1, "b"]),
        ("several", {}), ("pair", ["a"]), ("pair", ["a", 1, 2]), ("named", []),
        ("named", {"a": "b"}), ("unknown", 1),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_refused(name: str, value: Any) -> None:
    """Nothing is converted: a file may come from anyone."""
    facts = to_json(Example()) | {name: value}
    with pytest.raises((TypeError, ValueError)):
        from_json(Example, facts)


@pytest.mark.parametrize("facts", [None, [], "text", {}, {"text": "a"}])
def test_a_dataclass_has_exactly_its_fields(facts: Any) -> None:
    """Fields of another version make the whole value invalid."""
    with pytest.raises(TypeError):
        from_json(Example, facts)


@pytest.mark.parametrize(
    "value",
    [
        float("nan"), float("inf"), 1 << 63, {1: "a"}, [1], b"bytes", object(),
        datetime(2026, 1, 1),  # noqa: DTZ001  without a zone
        datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1))),
    ],
)  # fmt: skip
def test_a_value_that_could_not_be_read_is_not_written(value: Any) -> None:
    """Writing fails where reading would."""
    with pytest.raises((TypeError, ValueError)):
        to_json(value)


def test_an_example_returns_unchanged() -> None:
    """Each kind of field is read as it was written."""
    assert from_json(Example, json.loads(json.dumps(to_json(Example())))) == Example()
    assert len(fields(Example)) == len(to_json(Example()))
