"""OpenMetrics: Prometheus reads the series, and its sums are those of SQL."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import dask_strata
from dask_strata.export.telemetry.openmetrics import exporter
from tests.support.receivers import prometheus_server, promql
from tests.support.synthetic import SECOND, T0, Process, life, new_run

needs_prometheus = pytest.mark.skipif(
    not (shutil.which("promtool") and shutil.which("prometheus")), reason="needs prometheus"
)

WORKER = "tcp://w:1"

_SAMPLE = re.compile(r'^(\w+)\{((?:\w+="(?:[^"\\\n]|\\[\\"n])*",?)+)\} (\S+) (\d+\.\d{3})$')


def samples(text: str) -> dict[tuple[str, str], list[tuple[float, float]]]:
    """Return the samples of each series, after checks of the format."""
    lines = text.split("\n")
    assert lines[-2:] == ["# EOF", ""]
    found: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    families: list[str] = []
    for line in lines[:-2]:
        if line.startswith("# TYPE "):
            families.append(line.split(" ")[2])
        if line.startswith("# "):
            assert line.split(" ")[1] in {"TYPE", "UNIT", "HELP"}
            continue
        sample = _SAMPLE.match(line)
        assert sample, line
        name, labels, value, time = sample.groups()
        assert name.startswith(families[-1])  # a family's samples are together
        of = found[name, labels]
        assert not of or of[-1][0] < float(time)
        of.append((float(time), float(value)))
    assert len(families) == len(set(families))
    return found


def exported(folder: Path, path: Path) -> tuple[str, list[str]]:
    """Return the text of a run, and the notes."""
    done = dask_strata.open_run(folder).export(path, to="openmetrics")
    return path.read_text(), list(done.notes)


def rows(run: Any, query: str) -> list[dict[str, Any]]:
    """Return the rows of a query."""
    found: list[dict[str, Any]] = run.sql(query).to_arrow().to_pylist()
    return found


def a_run(folder: Path, transitions: list[dict[str, Any]], **tables: Any) -> Path:
    """Make a run of one worker with some transitions, and further rows of the worker."""
    new_run(folder)
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1")
    scheduler.write("scheduler_transitions", sorted(transitions, key=lambda row: row["time"]))
    scheduler.end()
    worker = Process(folder, "worker-1", address=WORKER, name="w", nthreads=2, host="node1")
    for table, contents in tables.items():
        worker.write(table, contents)
    worker.end()
    return folder


def test_counters_begin_at_0_rise_and_end_at_the_sum(eventful: Path, tmp_path: Path) -> None:
    """All series of counters have their first and last sample at the same times."""
    text, _ = exported(eventful, tmp_path / "x.txt")
    run = dask_strata.open_run(eventful)
    found = samples(text)
    counters = {
        series: of for series, of in found.items()
        if series[0].endswith("_total") and "cpu_seconds" not in series[0]
    }  # fmt: skip
    assert len({of[0][0] for of in counters.values()}) == 1
    assert len({of[-1][0] for of in counters.values()}) == 1
    for of in counters.values():
        values = [value for _, value in of]
        assert values[0] == 0
        assert values == sorted(values)
    last = {series: of[-1][1] for series, of in counters.items()}
    (sums,) = rows(
        run, "select count(*) as n, sum(compute_seconds) as s from attempts where stop is not null"
    )
    for name in ("dask_strata_attempts_total", "dask_strata_worker_attempts_total"):
        assert sum(value for series, value in last.items() if series[0] == name) == sums["n"]
    for name in ("dask_strata_phase_seconds_total", "dask_strata_worker_phase_seconds_total"):
        total = sum(v for s, v in last.items() if s[0] == name and 'phase="compute"' in s[1])
        assert total == pytest.approx(sums["s"])


def test_a_value_counts_what_happened_until_its_time(tmp_path: Path) -> None:
    """Not more, and not less."""
    transitions = [row for i in range(20) for row in life(f"a-{i}", 1, 2 + 0.37 * i, WORKER)]
    text, _ = exported(a_run(tmp_path / "run", transitions), tmp_path / "x.txt")
    (of,) = (v for k, v in samples(text).items() if k[0] == "dask_strata_attempts_total")
    stops = [T0 / SECOND + 2 + 0.37 * i for i in range(20)]
    assert len(of) > 15
    for time, value in of:
        assert value == sum(stop <= time + 1e-6 for stop in stops)


def test_quiet_times_have_samples(tmp_path: Path) -> None:
    """Prometheus forgets a series after 5 minutes without one."""
    transitions = life("a-1", 1, 2, WORKER) + life("a-2", 3000, 3001, WORKER)
    text, _ = exported(a_run(tmp_path / "run", transitions), tmp_path / "x.txt")
    (of,) = (v for k, v in samples(text).items() if k[0] == "dask_strata_attempts_total")
    gaps = [b[0] - a[0] for a, b in pairwise(of)]
    assert max(gaps) < 300
    assert of[-1][1] == 2


def test_labels_are_escaped_and_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prefixes beyond the bound are one series, with the sum, and a note."""
    monkeypatch.setattr(exporter, "MOST_PREFIXES", 3)
    prefixes = ['q"', "back\\slash", "new\nline", "d", "e", "f"]
    transitions = [
        row | {"prefix": prefix}
        for i, prefix in enumerate(prefixes)
        for n in range(10 - i)
        for row in life(f"{prefix}-{n}", 1, 2, WORKER)
    ]
    text, notes = exported(a_run(tmp_path / "run", transitions), tmp_path / "x.txt")
    found = {
        labels: of[-1][1]
        for (name, labels), of in samples(text).items()
        if name == "dask_strata_attempts_total"
    }
    values = {re.search('prefix="(.*)",outcome', labels)[1]: v for labels, v in found.items()}
    assert values == {r"q\"": 10, r"back\\slash": 9, r"new\nline": 8, "(other prefixes)": 7 + 6 + 5}
    assert "3 prefixes are summed under '(other prefixes)'." in notes
    assert "note=\"3 prefixes are summed under '(other prefixes)'.\"" in text


def test_a_run_without_events_is_a_note(tmp_path: Path) -> None:
    """And still a valid text."""
    folder = new_run(tmp_path / "run")
    Process(folder, "scheduler-1", address="tcp://s:1").end()
    text, notes = exported(folder, tmp_path / "x.txt")
    assert text.endswith("# EOF\n")
    assert any("there are no series" in note for note in notes)


def blocks(path: Path, folder: Path) -> None:
    """Make blocks of a text with promtool."""
    done = subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(path), str(folder)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@needs_prometheus
@pytest.mark.long
def test_prometheus_has_the_sums_of_sql(eventful: Path, tmp_path: Path) -> None:
    """promtool makes blocks of the text, and PromQL over them equals SQL."""
    path = tmp_path / "x.txt"
    exported(eventful, path)
    blocks(path, tmp_path / "blocks")
    run = dask_strata.open_run(eventful)
    end = max(time for of in samples(path.read_text()).values() for time, _ in of)

    def same(query: str, sql: str, least: int = 1) -> None:
        expected = {
            tuple(str(value) for value in list(row.values())[:-1]): list(row.values())[-1]
            for row in rows(run, sql)
        }
        found = promql(url, query, end)
        positive = {labels: value for labels, value in found.items() if value}
        assert positive == pytest.approx({k: v for k, v in expected.items() if v}), query
        assert len(positive) >= least

    with prometheus_server(tmp_path / "blocks") as url:
        same(
            "sum by (prefix, outcome) (dask_strata_attempts_total)",
            "select outcome, prefix, count(*) from attempts where stop is not null group by all",
            5,
        )
        same(
            "sum by (worker) (dask_strata_worker_attempts_total)",
            "select worker, count(*) from attempts where stop is not null group by all",
            2,
        )
        for phase in ("compute", "transfer", "deserialize", "disk"):
            same(
                f'sum by (prefix) (dask_strata_phase_seconds_total{{phase="{phase}"}})',
                f"select prefix, sum({phase}_seconds) from attempts where stop is not null "
                "group by all",
                1 if phase in {"compute", "transfer"} else 0,
            )
        same(
            "sum by (worker) (dask_strata_received_bytes_total)",
            "select coalesce(destination, '(client)'), sum(total_bytes)::double from transfers "
            "group by all",
        )
        same(
            "sum(dask_strata_sent_bytes_total)",
            "select sum(total_bytes)::double from transfers",
        )
        same(
            "sum by (prefix) (dask_strata_result_bytes_total)",
            "select prefix, sum(nbytes)::double from attempts where outcome = 'memory' "
            "group by all",
        )
        memory = 'dask_strata_worker_memory_bytes{kind="rss"}'
        whole = "[1h]"
        same(
            f"max by (worker) (max_over_time({memory}{whole}))",
            "select worker, max(rss_bytes)::double from worker_samples where seen_by = 'worker' "
            "group by all",
        )
        same("count(dask_strata_worker_info)", "select count(distinct worker)::double from workers")


@needs_prometheus
def test_promtool_reads_the_text_of_a_run_with_spills(tmp_path: Path) -> None:
    """Also one that is small enough for a fast test."""
    common = {"worker": WORKER, "key": "a-1"}
    spills = [
        {"time": T0 + 2 * SECOND, **common, "action": "spill", "nbytes": 2**52, "seconds": 0.1},
        {"time": T0 + 3 * SECOND, **common, "action": "unspill", "nbytes": 1, "seconds": 0.1},
        {"time": T0 + 4 * SECOND, **common, "action": "spill", "nbytes": 2**52, "seconds": 0.1},
    ]
    folder = a_run(tmp_path / "run", life("a-1", 1, 2, WORKER), spills=spills)
    text, _ = exported(folder, tmp_path / "x.txt")
    last = {labels: of[-1][1] for (name, labels), of in samples(text).items() if "spilled" in name}
    assert sorted(last.values()) == [1, 2**53]
    blocks(tmp_path / "x.txt", tmp_path / "blocks")
    assert any((tmp_path / "blocks").iterdir())
