"""Each second of the makespan counts for one insight."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_strata import open_run
from dask_strata.analysis.critical_path.walk import Segment
from dask_strata.analysis.diagnosis import registry
from dask_strata.analysis.diagnosis.claims import Claims, Finding
from dask_strata.analysis.diagnosis.conditions import Conditions
from dask_strata.analysis.diagnosis.evidence import Evidence
from dask_strata.analysis.diagnosis.places import plain_exception, raised_at, waited_at
from dask_strata.analysis.diagnosis.samples import Waited
from tests.support.synthetic import SECOND, small_run

#: Names of causes: the first argument of a finding, also if it depends on a condition.
_CAUSE = re.compile(r"Finding\(\s*\"([a-z-]+)\"|^\s+\"([a-z]+(?:-[a-z]+)+)\" if ", re.MULTILINE)

SEGMENTS = [Segment(n * SECOND, (n + 1) * SECOND, "compute") for n in range(10)]


def test_a_second_is_granted_once() -> None:
    """The second claim of the same seconds gets what the first one left."""
    claims = Claims(SEGMENTS)
    first = claims.grant(Finding("a", "first", claims={0: 1.0, 1: 0.25}))
    second = claims.grant(Finding("b", "second", claims={0: 1.0, 1: 1.0}))
    assert first is not None
    assert second is not None
    assert (first.seconds, second.seconds) == (1.25, 0.75)
    assert [interval.start for interval in first.intervals] == [0, SECOND]


def test_a_claim_that_is_too_small_gives_its_seconds_back() -> None:
    """Below 5 % of the makespan nothing is said, and a later cause can have the seconds."""
    claims = Claims(SEGMENTS)
    assert claims.grant(Finding("a", "small", claims={0: 0.45})) is None
    assert claims.left(0) == 1.0
    fault = claims.grant(Finding("b", "a fault", grave=True, claims={0: 0.1}))
    assert fault is not None
    assert fault.seconds == pytest.approx(0.1)
    nothing = claims.grant(Finding("c", "without a cost", always=True))
    assert nothing is not None
    assert nothing.seconds is None


def test_what_explains_a_segment_uses_it_up() -> None:
    """A chain costs the idle share of its seconds; the rest of them is no other cause."""
    claims = Claims(SEGMENTS)
    chain = claims.grant(Finding("a", "chain", claims={0: 0.6, 1: 0.6}, uses={0: 1.0, 1: 1.0}))
    assert chain is not None
    assert chain.seconds == pytest.approx(1.2)
    assert claims.grant(Finding("b", "few", claims={0: 0.6, 1: 0.6})) is None


@given(
    st.lists(
        st.dictionaries(st.integers(0, 9), st.floats(0, 2, allow_nan=False)), min_size=1, max_size=6
    )
)
def test_costs_add_up_to_at_most_the_makespan(found: list[dict[int, float]]) -> None:
    """Whatever rules claim."""
    claims = Claims(SEGMENTS)
    granted = [claims.grant(Finding("a", "text", always=True, claims=each)) for each in found]
    assert sum(i.seconds or 0.0 for i in granted if i is not None) <= 10 + 1e-9
    assert all(claims.left(n) >= -1e-9 for n in range(10))


def test_conditions_of_workers_are_counted_once() -> None:
    """Intervals that overlap count once, on one worker and on several."""
    times = [("a", 0, 10), ("a", 5, 12), ("b", 11, 20), ("c", 3, 3)]
    found = Conditions((worker, a * SECOND, b * SECOND) for worker, a, b in times)
    assert found.seconds(0, 30 * SECOND, ["a", "b"]) == 20
    assert found.seconds(0, 30 * SECOND, ["a", "c"]) == 12
    assert found.seconds(8 * SECOND, 11 * SECOND, ["a", None]) == 3
    assert found.seconds(0, 30 * SECOND, []) == 0
    assert Conditions(()).seconds(0, SECOND, ["a"]) == 0


SCRIPT = {
    "path": "/home/me/pipeline.py",
    "text": "import dask\n\ndef root(x):\n    return x ** 0.5\n",
}


def waited(file: str | None, line: int | None, function: str | None) -> Waited:
    """Return samples of one place."""
    return Waited("lock", file, line, function, None, 1.0, 0.0, 0.0, 1)


def test_places_of_functions_that_were_sent_without_their_file() -> None:
    """The script's name is used only if its text has this function at this line."""
    assert waited_at(waited("<dynamic-code>", 4, "root"), SCRIPT) == " at pipeline.py:4 in root"
    assert waited_at(waited("<dynamic-code>", 4, "other"), SCRIPT) == " at line 4 in other"
    assert waited_at(waited("<dynamic-code>", 40, "root"), SCRIPT) == " at line 40 in root"
    assert waited_at(waited("/x/work.py", 7, "f"), {}) == " at work.py:7 in f"
    assert waited_at(waited(None, None, None), {}) == ""
    trace = (
        '  File "<dynamic-code>", line 4, in root\n  File "/v/site-packages/n.py", line 9, in g\n'
    )
    assert raised_at(trace, SCRIPT) == "  pipeline.py:4"
    assert raised_at(None, SCRIPT) == ""


@given(st.text(max_size=200))
def test_any_text_of_an_exception_is_shown(text: str) -> None:
    """Representations of exceptions may be anything."""
    assert isinstance(plain_exception(text), str)
    assert isinstance(raised_at(text, {"text": text, "path": text}), str)


def long_tasks(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding on tasks of over 3 s, as a rule of another package."""
    for index, seconds, runner in evidence.runner_seconds():
        if seconds > 3:
            yield Finding("long-tasks", f"{runner.key} is long", f"segment {index}", always=True)


def broken(_: Evidence) -> Iterator[Finding]:
    """Fail."""
    raise RuntimeError("no such table")


def test_rules_of_other_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are evaluated after ours; one that fails is named, and hides no other insight."""
    points = [
        EntryPoint("long", f"{__name__}:long_tasks", registry.GROUP),
        EntryPoint("broken", f"{__name__}:broken", registry.GROUP),
        EntryPoint("absent", "no_such_module:find", registry.GROUP),
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: points)
    found = {i.cause: i for i in open_run(small_run(tmp_path / "r")).insights()}
    assert found["long-tasks"].text == "b-1 is long"
    assert found["long-tasks"].docs == ""
    failed = [i.text for i in open_run(tmp_path / "r").insights() if i.cause == "failed-rule"]
    assert any("the rule broken of another package failed: RuntimeError" in text for text in failed)
    assert any("the rule absent of another package failed" in text for text in failed)


def test_every_cause_has_a_page() -> None:
    """Each name that a rule can give to a cause is a page in docs/causes."""
    root = Path(registry.__file__).parent / "rules"
    docs = Path(__file__).parents[2] / "docs" / "causes"
    names = {
        first or second
        for file in root.glob("*/*.py")
        for first, second in _CAUSE.findall(file.read_text(encoding="utf-8"))
    }
    assert len(names) > 30
    assert not [name for name in sorted(names) if not (docs / f"{name}.md").exists()]
