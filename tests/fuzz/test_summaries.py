"""Hostile summaries in a run's folder: the answers are those of the rows, and nothing fails."""

from __future__ import annotations

import io
import json
import os
import zlib
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from rich.console import Console

from dask_strata import open_run
from dask_strata.analysis.breakdown import KINDS, PREFIX_KINDS, Breakdown, PrefixShare
from dask_strata.analysis.compare.compare import compare_groups
from dask_strata.analysis.compare.runs import make_groups, observe
from dask_strata.analysis.critical_path.walk import CAUSES as PATH_CAUSES
from dask_strata.analysis.jobs.absent_workers import CAUSES, AbsentWorkers
from dask_strata.analysis.list import list_run
from dask_strata.analysis.outcome import OUTCOMES
from dask_strata.analysis.overview.comparable import (
    Comparable,
    Inputs,
    PathPart,
    Place,
    PrefixValues,
    Sample,
    SizeSums,
)
from dask_strata.analysis.overview.row import ENDED
from dask_strata.analysis.overview.stored import store_summary, summary_of
from dask_strata.analysis.summary import Summary
from dask_strata.cli import cli
from dask_strata.report.comparison.as_json import comparison_json
from dask_strata.report.comparison.markdown import comparison_markdown
from dask_strata.report.comparison.page import comparison_page
from dask_strata.report.comparison.text import print_text
from dask_strata.report.page.page import outcome
from dask_strata.report.summary import headline, print_summary, summary_json
from dask_strata.store.compact import compact
from dask_strata.store.summaries.files import list_files
from dask_strata.store.summaries.summary_file import checksums, read_summary, write_summary
from dask_strata.store.summaries.typed_json import to_json
from tests.support.cases import few
from tests.support.synthetic import small_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A finalised run with its summary."""
    made = small_run(tmp_path / "runs" / "r")
    compact(made)
    assert store_summary(made)
    return made


def path_of(run: Path) -> Path:
    return run / "parquet" / "summary.json"


def forge(run: Path, **lines: str) -> None:
    """Replace lines of a summary, with a valid checksum of the file."""
    found = dict(
        line.rstrip(b",").split(b": ", 1) for line in path_of(run).read_bytes().splitlines()[1:-1]
    )
    found |= {json.dumps(name).encode(): line.encode() for name, line in lines.items()}
    rest = b",\n".join(b"%s: %s" % line for line in found.items()) + b"\n}\n"
    path_of(run).write_bytes(b'{"crc32": %d,\n' % zlib.crc32(rest) + rest)


def _line(text: str) -> Callable[[Path], None]:
    return lambda run: forge(run, head=text, list=text, summary=text, compare=text)


def _bytes(data: bytes) -> Callable[[Path], None]:
    return lambda run: path_of(run).write_bytes(data)  # type: ignore[return-value]


def _hole(run: Path) -> None:
    with path_of(run).open("r+b") as file:
        file.truncate(1 << 40)


def _link(run: Path) -> None:
    outside = run.parent.parent / "outside.json"
    path_of(run).rename(outside)
    path_of(run).symlink_to(outside)


def _pipe(run: Path) -> None:
    path_of(run).unlink()
    os.mkfifo(path_of(run))


def _folder(run: Path) -> None:
    path_of(run).unlink()
    path_of(run).mkdir()


HARMS: dict[str, Callable[[Path], None]] = {
    "nothing": _bytes(b""),
    "no text": _bytes(b"\xff" * 100),
    "nested": _bytes(b"[" * 1_000_000),
    "large": _bytes(b" " * (5 << 20)),
    "a hole": _hole,
    "a link": _link,
    "a pipe": _pipe,
    "a folder": _folder,
    "nested parts": _line("[" * 100_000),
    "null parts": _line("null"),
    "parts of lists": _line("[[]]"),
    "parts without fields": _line("{}"),
    "huge numbers": _line('{"format": 1e999, "tasks": ' + "9" * 5000 + "}"),
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", few(HARMS, always=["a link", "nested parts", "huge numbers"]))
def test_a_hostile_summary_is_ignored(run: Path, name: str) -> None:
    """`list` and `show` answer from the rows, neither wait nor fail."""
    HARMS[name](run)
    assert list_run(run)["tasks"] == 2
    HARMS[name](run) if path_of(run).is_file() and not path_of(run).is_symlink() else None
    summary = summary_of(open_run(run))
    assert summary.n_tasks == 2
    assert CliRunner().invoke(cli, ["show", str(run)]).exit_code == 0
    assert CliRunner().invoke(cli, ["list", str(run.parent)]).exit_code == 0


def test_a_link_in_place_of_the_summary_is_reported(run: Path) -> None:
    """As every link in a run; nothing is written through it."""
    _link(run)
    before = (run.parent.parent / "outside.json").read_bytes()
    assert "summary.json" in " ".join(f.text for f in summary_of(open_run(run)).check.missing)
    assert (run.parent.parent / "outside.json").read_bytes() == before
    assert path_of(run).is_symlink()


@pytest.mark.long
@pytest.mark.parametrize(
    "change",
    [
        {"state": "recording"},
        {"state": "\x1b[31m"},
        {"breakdown": {"total_seconds": 1.0, "seconds": {}, "prefixes": []}},
        {"n_tasks": "2"},
        {"duration_seconds": None},
        {"start": "2026-11-21"},
    ],
)
def test_a_summary_that_views_could_not_show_is_ignored(run: Path, change: dict) -> None:
    """Its types and the texts that views look up are checked."""
    stored = read_summary(list_files(run), verify=True)
    assert stored is not None
    forge(run, summary=json.dumps(stored.part("summary") | change | {"name": "forged"}))
    assert summary_of(open_run(run)).name == "synthetic"


#: The same examples in each run; a failing one is not made smaller.
FORGED = settings(
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    database=None,
)

NUMBERS = st.floats(-1e17, 1e17)
SECONDS = st.none() | NUMBERS
SHARES = st.builds(
    PrefixShare,
    prefix=st.text(),
    seconds=st.fixed_dictionaries(dict.fromkeys(PREFIX_KINDS, SECONDS)),
)
STRATEGIES = {
    float: NUMBERS,
    int: st.integers(-(1 << 63) + 1, (1 << 63) - 1),
    datetime: st.datetimes(timezones=st.just(timezone.utc)),
    Breakdown: st.builds(
        Breakdown,
        total_seconds=st.none() | st.just(1e6),
        seconds=st.fixed_dictionaries(dict.fromkeys(KINDS, st.none() | st.floats(-1e6, 1e6))),
        prefixes=st.tuples(SHARES),
    ),
    AbsentWorkers: st.builds(
        AbsentWorkers,
        cause=st.sampled_from(sorted(CAUSES)),
        reason=st.none() | st.text(),
        n_workers=st.integers(0, 9),
        names=st.tuples(st.text()),
    ),
}


def test_no_summary_of_valid_form_makes_a_view_fail(run: Path) -> None:
    """Whatever a file of valid form contains, the first screen is shown."""
    for kind, strategy in STRATEGIES.items():
        st.register_type_strategy(kind, strategy)
    stored = read_summary(list_files(run), verify=True)
    assert stored is not None
    parts = {name: stored.part(name) for name in ("list", "compare")}
    files = list_files(run)
    crcs = checksums(files)
    n_forged = 0

    @settings(FORGED, max_examples=50)
    @given(st.from_type(Summary), st.sampled_from(ENDED), st.sampled_from(sorted(OUTCOMES)))
    def never_fails(value: Summary, state: str, ended: str) -> None:
        nonlocal n_forged
        forged = replace(value, state=state, outcome=ended)
        write_summary(files, crcs, parts | {"summary": to_json(forged)})
        found = summary_of(open_run(run))
        n_forged += found.run_id == value.run_id
        print_summary(found, Console(file=io.StringIO()))
        assert summary_json(found)
        assert headline(found)
        assert outcome(found)

    never_fails()
    assert n_forged > 25


WHOLE = st.integers(1, 10**17)
LARGE = st.floats(-1e17, 1e17)
AMOUNTS = st.none() | LARGE
NAMES = st.none() | st.text(max_size=3)
SAMPLES = st.integers(0, 20).flatmap(
    lambda n: st.builds(
        Sample,
        ids=st.lists(st.integers(0, 99), min_size=n, max_size=n).map(tuple),
        workers=st.lists(st.integers(0, max(0, n - 1)), min_size=n, max_size=n).map(tuple),
        order=st.permutations(range(n)).map(tuple),
    )
)
PARTS = st.builds(
    PathPart,
    cause=st.sampled_from(sorted(PATH_CAUSES)),
    prefix=NAMES,
    occupant=NAMES,
    host=NAMES,
    worker=NAMES,
    nanoseconds=WHOLE,
)
PREFIXES = st.builds(
    PrefixValues,
    tasks=WHOLE,
    attempts=st.integers(0, 10**17),
    compute_seconds=AMOUNTS,
    transfer_seconds=AMOUNTS,
    cpu_seconds=AMOUNTS,
    read_bytes=AMOUNTS,
)
PLACES = st.builds(
    Place,
    prefix=st.text(max_size=3),
    host=NAMES,
    worker=NAMES,
    n=WHOLE,
    seconds=st.floats(1e-9, 1e17),
    log_sum=LARGE,
    log_squares=LARGE,
)
SIZES = st.builds(
    SizeSums,
    prefix=st.text(max_size=3),
    n=WHOLE,
    **dict.fromkeys(("x", "y", "xx", "xy", "yy"), LARGE),
)
FACTS = st.dictionaries(st.text(max_size=9), st.none() | st.text(), max_size=3)
VALUES = st.builds(
    Comparable,
    facts=FACTS,
    settings=FACTS,
    packages=FACTS,
    prefixes=st.dictionaries(st.text(max_size=3), PREFIXES, max_size=4),
    path=st.lists(PARTS, min_size=1, max_size=5).map(tuple),
    startup_seconds=AMOUNTS,
    lost_workers=st.integers(0, 9),
    places=st.lists(PLACES, max_size=5).map(tuple),
    sizes=st.lists(SIZES, max_size=3).map(tuple),
    sample=SAMPLES,
    inputs=st.builds(Inputs, n=WHOLE, nbytes=st.none() | WHOLE, digest=st.text()),
)


@pytest.mark.long
def test_no_values_of_valid_form_make_a_comparison_fail(run: Path) -> None:
    """Whatever a file of valid form contains, runs are compared."""
    for kind, strategy in STRATEGIES.items():
        st.register_type_strategy(kind, strategy)
    files = list_files(run)
    stored = read_summary(files, verify=True)
    assert stored is not None
    parts = {name: stored.part(name) for name in ("list", "summary")}
    crcs = checksums(files)
    n_forged = 0

    @settings(FORGED, max_examples=6)
    @given(st.lists(VALUES, min_size=2, max_size=4))
    def never_fails(values: list[Comparable]) -> None:
        nonlocal n_forged
        runs = []
        for i, value in enumerate(values):
            write_summary(files, crcs, parts | {"compare": to_json(value)})
            found = observe(run)
            n_forged += found.values == value
            runs.append(replace(found, name=f"{i}", summary=replace(found.summary, run_id=f"{i}")))
        compared = compare_groups(make_groups([("A", runs[::2]), ("B", runs[1::2])]))
        print_text(compared, (), Console(file=io.StringIO()))
        assert comparison_json(compared, ())
        assert comparison_markdown(compared, ())
        assert comparison_page(compared)

    never_fails()
    assert n_forged > 10
