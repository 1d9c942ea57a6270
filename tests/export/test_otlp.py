"""OTLP: each span of a run arrives, with its parent, times, links and status."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import dask_strata
from dask_strata.cli import cli
from dask_strata.errors import StrataError, UsageError
from dask_strata.export.telemetry.otlp import http
from tests.export.provenance.conftest import executed
from tests.support.own_venv import own_environment
from tests.support.receivers import Collector, free_port, mlflow_python, mlflow_server
from tests.support.synthetic import T0, Process, life, moves, new_run

READER = Path(__file__).parents[1] / "support" / "mlflow_reader.py"

WORKER = "tcp://w:1"


def spans_of(lines: list[bytes]) -> dict[str, dict[str, Any]]:
    """Return the spans of requests by id, with plain attributes and their process."""
    found: dict[str, dict[str, Any]] = {}
    for line in lines:
        for resource in json.loads(line)["resourceSpans"]:
            process = _plain(resource["resource"]["attributes"])
            for span in (span for scope in resource["scopeSpans"] for span in scope["spans"]):
                assert span["spanId"] not in found
                plain = {"attributes": _plain(span["attributes"]), "process": process}
                found[span["spanId"]] = span | plain
    return found


def _plain(attributes: list[dict[str, Any]]) -> dict[str, Any]:
    return {each["key"]: _value(each["value"]) for each in attributes}


def _value(value: dict[str, Any]) -> Any:
    ((kind, plain),) = value.items()
    return int(plain) if kind == "intValue" else plain


def exported(folder: Path, path: Path) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return the spans in the file of a run, and the notes."""
    done = dask_strata.open_run(folder).export(path, to="otlp")
    return spans_of(path.read_bytes().splitlines()), list(done.notes)


def kind(span: dict[str, Any]) -> str:
    """Return what a span is about."""
    return {"1": "run", "2": "submission", "3": "attempt", "4": "phase"}[span["spanId"][0]]


def ns(span: dict[str, Any]) -> tuple[int, int]:
    """Return begin and end of a span."""
    return int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])


def a_run(folder: Path, rows: list[dict[str, Any]], edges: list[tuple[str, str]] = []) -> Path:  # noqa: B006
    """Make a run of one worker with some transitions, and one submission of their keys."""
    new_run(folder)
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1")
    keys = sorted({row["key"] for row in rows})
    scheduler.write("submissions", [{"submission": "u-1", "time": T0, "client": "c"}])
    scheduler.write("graph_tasks", [{"submission": "u-1", "key": key} for key in keys])
    found = [{"submission": "u-1", "key": key, "dependency": needs} for key, needs in edges]
    if found:
        scheduler.write("graph_edges", found)
    scheduler.write("scheduler_transitions", sorted(rows, key=lambda row: row["time"]))
    scheduler.end()
    Process(folder, "worker-1", address=WORKER, name="w", nthreads=2, host="node1").end()
    return folder


def test_every_attempt_and_phase_is_a_span_below_its_submission(
    eventful: Path, tmp_path: Path
) -> None:
    """Counts, times and parents are those of SQL, in a recorded run."""
    spans, _ = exported(eventful, tmp_path / "run.jsonl")
    run = dask_strata.open_run(eventful)
    attempts = {
        row["attempt"]: row
        for row in run.sql(
            "select *, epoch_ns(start) as a, epoch_ns(stop) as b from attempts "
            "where start is not null and stop is not null"
        ).to_arrow().to_pylist()
    }  # fmt: skip
    of = Counter(map(kind, spans.values()))
    assert of["run"] == 1
    assert of["submission"] == run.sql("select * from submissions").to_arrow().num_rows > 5
    assert of["attempt"] == len(attempts) > 50
    phases = run.sql("select * from phases where stop is not null").to_arrow().to_pylist()
    assert of["phase"] == sum(row["attempt"] in attempts for row in phases) > 50
    (root,) = (span for span in spans.values() if kind(span) == "run")
    for span in spans.values():
        assert span["traceId"] == root["traceId"]
        parent = spans[span["parentSpanId"]] if span is not root else None
        if kind(span) == "attempt":
            row = attempts[span["attributes"]["dask.attempt"]]
            assert span["name"] == row["prefix"]
            assert span["attributes"]["dask.key"] == row["key"]
            assert span["process"]["dask.address"] == row["worker"]
            begin, end = ns(span)
            assert abs(begin - row["a"]) < 1000  # SQL for users has microseconds
            assert abs(end - row["b"]) < 1000
            assert parent is not None
            if kind(parent) == "submission":
                assert ns(parent)[0] <= begin
                assert end <= ns(parent)[1]
        if kind(span) == "phase":
            assert parent is not None
            assert kind(parent) == "attempt"
            assert parent["attributes"]["dask.key"] == span["attributes"]["dask.key"]
    below = Counter(kind(spans[s["parentSpanId"]]) for s in spans.values() if kind(s) == "attempt")
    assert below["submission"] == len(attempts)


def test_errors_are_errors_with_their_message(eventful: Path, tmp_path: Path) -> None:
    """And a lost worker is an error of its attempts; others are fine."""
    spans, _ = exported(eventful, tmp_path / "run.jsonl")
    attempts = [span for span in spans.values() if kind(span) == "attempt"]
    by_outcome: dict[str, list[dict[str, Any]]] = {}
    for span in attempts:
        by_outcome.setdefault(span["attributes"]["dask.outcome"], []).append(span)
    for outcome in ("erred", "retried", "lost"):
        assert by_outcome[outcome]
        for span in by_outcome[outcome]:
            assert span["status"]["code"] == 2
            assert span["status"]["message"]
    failed = {span["attributes"]["dask.key"]: span for span in by_outcome["erred"]}["failed"]
    assert "FileNotFoundError" in failed["status"]["message"]
    (event,) = failed["events"]
    assert event["name"] == "exception"
    assert "fails_first" in _plain(event["attributes"])["exception.stacktrace"]
    assert {span["status"]["code"] for span in by_outcome["memory"]} == {1}


def test_links_lead_to_the_attempt_that_made_the_result(tmp_path: Path) -> None:
    """The last one before the dependent attempt began; later ones and other tasks are none."""
    again = moves(
        "a-1", (3, "memory", "released"), (3.1, "released", "waiting"),
        (3.2, "waiting", "processing"), (4, "processing", "memory"), worker=WORKER, thread=1,
    )  # fmt: skip
    rows = [
        *life("a-1", 1, 2, WORKER), *again, *life("b-1", 2.5, 2.6, WORKER),
        *life("c-1", 5, 6, WORKER), *life("late-1", 8, 9, WORKER),
    ]  # fmt: skip
    edges = [("b-1", "a-1"), ("c-1", "a-1"), ("c-1", "b-1"), ("c-1", "late-1"), ("c-1", "c-1")]
    spans, notes = exported(a_run(tmp_path / "run", rows, edges), tmp_path / "x.jsonl")
    found = {
        span["attributes"]["dask.key"]: sorted(
            (spans[link["spanId"]]["attributes"]["dask.key"], ns(spans[link["spanId"]])[1])
            for link in span.get("links", [])
        )
        for span in spans.values()
        if kind(span) == "attempt"
    }
    second = 1_000_000_000
    assert found["b-1"] == [("a-1", T0 + 2 * second)]
    assert found["c-1"] == [("a-1", T0 + 4 * second), ("b-1", T0 + 2.6 * second)]
    assert found["late-1"] == []
    assert any(note.startswith("1 dependencies have no link") for note in notes)


def test_links_are_bounded_and_counted(tmp_path: Path) -> None:
    """A task with very many dependencies has some links, and the number of the others."""
    keys = [f"a-{i}" for i in range(300)]
    rows = [row for key in keys for row in life(key, 1, 2, WORKER)] + life("sum-1", 3, 4, WORKER)
    edges = [("sum-1", key) for key in keys]
    spans, notes = exported(a_run(tmp_path / "run", rows, edges), tmp_path / "x.jsonl")
    (total,) = (span for span in spans.values() if "links" in span)
    assert total["attributes"]["dask.key"] == "sum-1"
    assert len(total["links"]) == 128
    assert total["droppedLinksCount"] == 172
    assert any(note.startswith("172 links beyond 128") for note in notes)


def test_requests_are_bounded(tmp_path: Path) -> None:
    """By the number of spans, and by bytes where exceptions are long."""
    rows = []
    for i in range(1200):
        rows += life(f"a-{i}", 1, 2, WORKER)
        rows[-1] |= {"finish_state": "erred", "exception": "x" * 5000, "traceback": "y" * 9000}
    path = tmp_path / "x.jsonl"
    done = dask_strata.open_run(a_run(tmp_path / "run", rows)).export(path, to="otlp")
    lines = path.read_bytes().splitlines()
    assert max(map(len, lines)) < 1_000_000
    assert max(len(spans_of([line])) for line in lines) <= 512
    assert len(spans_of(lines)) == done.counts["spans"] == 1200 * 2 + 2
    messages = {span["status"]["message"] for span in spans_of(lines).values() if "status" in span}
    assert messages == {"x" * 4096}


def test_an_attempt_without_an_end_is_left_out_and_noted(tmp_path: Path) -> None:
    """Its end is not invented."""
    rows = [*life("a-1", 1, 2, WORKER), *moves("b-1", (3, "waiting", "processing"), worker=WORKER)]
    spans, notes = exported(a_run(tmp_path / "run", rows), tmp_path / "x.jsonl")
    assert [s["attributes"]["dask.key"] for s in spans.values() if kind(s) == "attempt"] == ["a-1"]
    assert "1 attempts without a known begin or end are left out." in notes
    (root,) = (span for span in spans.values() if kind(span) == "run")
    assert [v["stringValue"] for v in root["attributes"]["dask_strata.notes"]["values"]] == notes


def test_phases_of_an_attempt_that_is_left_out_are_noted(tmp_path: Path) -> None:
    """It has no end on record, though its worker recorded that it was executed."""
    rows = [*life("a-1", 1, 2, WORKER), *moves("b-1", (3, "waiting", "processing"), worker=WORKER)]
    folder = a_run(tmp_path / "run", rows)
    worker = Process(folder, "worker-2", address=WORKER)
    worker.write("executions", [executed("b-1", 1, 3, 4)])
    worker.end()
    assert dask_strata.open_run(folder).n_rows("phases") == 2
    spans, notes = exported(folder, tmp_path / "x.jsonl")
    assert [s["attributes"]["dask.key"] for s in spans.values() if kind(s) == "phase"] == ["a-1"]
    assert "1 phases without a known begin or end, or of such attempts, are left out." in notes


def test_headers_without_a_url_are_refused(small: Path, tmp_path: Path) -> None:
    """Otherwise a user with a wrong place would think that the run was sent."""
    with pytest.raises(UsageError, match="no headers"):
        dask_strata.open_run(small).export(tmp_path / "x", to="otlp", headers="a=b")
    assert not (tmp_path / "x").exists()


def send(folder: Path, url: str, *more: str) -> Any:
    """Send a run with the command; return its result."""
    return CliRunner().invoke(cli, ["export", str(folder), "--to", "otlp", "-o", url, *more])


def test_a_run_is_sent_with_headers_and_repeated_while_the_receiver_is_busy(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Busy answers, and an answer about rejected spans."""
    monkeypatch.setattr(http, "_WAITS", (0.01, 0.01))
    file, _ = exported(small, tmp_path / "x.jsonl")
    with Collector() as collector:
        rejected = b'{"partialSuccess":{"rejectedSpans":"2","errorMessage":"too old"}}'
        collector.answers = [
            (503, b"busy", {}),
            (429, b"", {"Retry-After": "0"}),
            (200, rejected, {}),
        ]
        done = send(small, collector.url, "--header", "x-token=s3cret=", "--header", "a=b")
        assert done.exit_code == 0, done.output
        assert "The receiver rejected 2 spans: too old" in done.output
        assert len(collector.requests) == 3
        path, headers, body = collector.requests[-1]
        assert path == "/v1/traces"
        assert headers["x-token"] == "s3cret="
        assert headers["a"] == "b"
        assert headers["Content-Type"] == "application/json"
        assert spans_of([body]) == file


def test_a_receiver_that_refuses_or_is_not_there_is_a_sentence(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its answer and a hint; secrets of headers and URLs are not printed."""
    monkeypatch.setattr(http, "_WAITS", (0.01, 0.01))
    with Collector() as collector:
        collector.answers = [(400, b'{"detail": "x-mlflow-experiment-id is missing"}', {})]
        done = send(small, f"{collector.url}/otlp?x=1", "--header", "x-token=s3cret")
        assert done.exit_code == 1
        assert "refused a request: 400" in done.output.replace("\n", " ")
        assert "experiment-id" in done.output
        assert "s3cret" not in done.output
        assert collector.requests[0][0] == "/otlp?x=1"
        collector.answers = [(503, b"", {})] * 3
        with pytest.raises(StrataError, match="503"):
            dask_strata.open_run(small).export(collector.url, to="otlp")
        assert len(collector.requests) == 4
    with pytest.raises(StrataError, match="cannot be reached"):
        dask_strata.open_run(small).export(f"http://127.0.0.1:{free_port()}", to="otlp")


@pytest.mark.parametrize(
    "url",
    ["http://", "http://user:s3cret@host/", "http://[::1", "http://host:99999999/", "http://h/a b"],
)
def test_urls_that_cannot_be_used_are_refused(url: str, small: Path) -> None:
    """Before anything is sent."""
    with pytest.raises(UsageError) as raised:
        dask_strata.open_run(small).export(url, to="otlp")
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize("header", ["novalue", "=x", "na me=x", "a=b\r\nx: y", "ä=x"])
def test_headers_that_cannot_be_sent_are_refused(header: str, small: Path) -> None:
    """Nothing is sent."""
    with Collector() as collector:
        done = send(small, collector.url, "--header", header)
        assert done.exit_code == 2, done.output
        assert not collector.requests


def read(target: Path | str) -> Any:
    """Return what MLflow, or OpenTelemetry's protocol buffers, read."""
    done = subprocess.run(
        [mlflow_python(), "-I", READER, target],
        env=own_environment(), capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.long
def test_mlflow_reads_all_spans_back(eventful: Path, tmp_path: Path) -> None:
    """Of a recorded run that is posted to its server: counts and durations are those of SQL."""
    with mlflow_server(tmp_path) as url:
        refused = send(eventful, url)
        assert refused.exit_code == 1
        assert "--header x-mlflow-experiment-id=0" in refused.output.replace("\n", " ")
        done = send(eventful, f"{url}/v1/traces", "--header", "x-mlflow-experiment-id=0")
        assert done.exit_code == 0, done.output
        (trace,) = read(url)
    run = dask_strata.open_run(eventful)
    file, _ = exported(eventful, tmp_path / "run.jsonl")
    spans = {span["id"]: span for span in trace["spans"]}
    assert spans.keys() == file.keys()
    query = """
        select count(*) as n, sum(epoch_ns(stop) - epoch_ns(start)) as ns,
               sum(compute_seconds) as compute,
               count(*) filter (outcome in ('erred', 'retried', 'lost')) as failed
        from attempts where start is not null and stop is not null
    """
    (sums,) = run.sql(query).to_arrow().to_pylist()
    attempts = [span for span in spans.values() if span["id"].startswith("3")]
    assert len(attempts) == sums["n"] > 50
    total = sum(span["end"] - span["start"] for span in attempts)
    assert total == pytest.approx(int(sums["ns"]), abs=2000 * len(attempts))
    compute = sum(span["attributes"].get("dask.compute_seconds", 0) for span in attempts)
    assert compute == pytest.approx(sums["compute"])
    assert sum(span["status"] == "ERROR" for span in attempts) == sums["failed"] > 2
    for name, span in spans.items():
        assert (span["parent"] or "") == file[name].get("parentSpanId", "")
        assert (span["start"], span["end"]) == ns(file[name])
        assert span["name"] == file[name]["name"]
    phases = [span for span in spans.values() if span["id"].startswith("4")]
    rows = run.sql("select action, count(*) as n from phases group by 1").to_arrow().to_pylist()
    assert Counter(span["name"] for span in phases) == {row["action"]: row["n"] for row in rows}


@pytest.mark.long
def test_opentelemetry_s_own_classes_parse_each_line(eventful: Path, tmp_path: Path) -> None:
    """All fields are known to them, ids have their lengths, and links are all there."""
    path = tmp_path / "run.jsonl"
    done = dask_strata.open_run(eventful).export(path, to="otlp")
    found = read(path)
    assert found["spans"] == done.counts["spans"]
    assert found["links"] == done.counts["links"] > 40
    assert found["lengths"] == [[16, 8]]
