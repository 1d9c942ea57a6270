"""Any tables of events come back equal from the files that the coupler writes of them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dask_strata import Run, open_run
from dask_strata.schema.values import SCHEDULER_STATES, WORKER_STATES
from dask_strata.store.limits import COUNT
from tests.support import coupler_files as coupler
from tests.support.coupler_files import W1, W2, text, write
from tests.support.coupler_runs import import_folder

pytestmark = pytest.mark.long

TEXTS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), min_size=1, max_size=8
) | st.sampled_from(["NA", "null", "nan", "1", "a,b", '"', "'", "\n", "{'a': 1}", "#", "None"])

KEYS = TEXTS | st.tuples(TEXTS, st.integers(0, 9)) | st.tuples(TEXTS, st.integers(), TEXTS)

TIMES = st.integers(0, 4 * 10**15).map(lambda us: us / 10**6)

FLOATS = st.floats(allow_nan=False, allow_infinity=False)

#: Larger numbers become null, with a loss (`tests/fuzz/test_bombs.py`).
SECONDS = st.floats(-float(COUNT), float(COUNT))

INTS = st.integers(0, 2**53)

STATES = st.sampled_from([*SCHEDULER_STATES, *WORKER_STATES, "teleported"]) | TEXTS

ADDRESSES = st.sampled_from([W1, W2, "0", "my worker"]) | TEXTS


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return a strategy of these values and None."""
    return st.none() | values


def row_of(**columns: st.SearchStrategy[Any]) -> st.SearchStrategy[coupler.Row]:
    """Return a strategy of rows with these columns."""
    return st.fixed_dictionaries(columns)


EVENTS = {
    "scheduler_transition": row_of(
        key=KEYS,
        thread=maybe(INTS),
        worker=maybe(ADDRESSES),
        prefix=maybe(TEXTS),
        group=maybe(TEXTS),
        start=STATES,
        finish=STATES,
        stimulus_id=maybe(TEXTS),
        called_from=maybe(ADDRESSES),
        begins=maybe(TIMES),
        ends=maybe(TIMES),
        duration=maybe(SECONDS),
        size=maybe(INTS),
        time=TIMES,
    ),
    "worker_transition": row_of(
        key=KEYS, start=STATES, finish=STATES, called_from=maybe(ADDRESSES), time=TIMES
    ),
    "worker_transfer": row_of(
        start=TIMES,
        stop=TIMES,
        middle=maybe(TIMES),
        duration=maybe(SECONDS),
        keys=st.dictionaries(KEYS, INTS, min_size=1, max_size=3),
        total=maybe(INTS),
        bandwidth=maybe(FLOATS),
        who=maybe(ADDRESSES),
        type=st.sampled_from(["incoming_transfer", "outgoing_transfer"]),
        called_from=maybe(ADDRESSES),
        time=TIMES,
        compressed=maybe(INTS),
    ),
    "worker": row_of(
        worker=maybe(ADDRESSES),
        action=st.sampled_from(["add", "remove"]),
        stimulus_id=maybe(TEXTS),
        time=TIMES,
    ),
    "client": row_of(client=TEXTS, action=st.sampled_from(["add", "remove"]), time=TIMES),
    "graph": row_of(
        client=maybe(TEXTS),
        keys=st.frozensets(KEYS, max_size=3).map(set),
        dependencies=st.dictionaries(KEYS, st.frozensets(KEYS, max_size=2).map(set), max_size=3),
        time=TIMES,
    ),
}


def numbered(role: str, given_rows: list[coupler.Row]) -> Iterator[tuple[int, coupler.Row]]:
    """Yield the rows of a file, each with its first line."""
    reader = csv.reader(io.StringIO(text(role, given_rows), newline=""))
    next(reader)
    for row in given_rows:
        yield reader.line_num + 1, row
        next(reader)


def values(run: Run, table: str, *columns: str) -> list[tuple[Any, ...]]:
    """Return columns of a recorded table in the order of the file, times in nanoseconds."""
    found = run[table].to_arrow()
    if "line" in found.column_names:
        found = found.sort_by("line")
    plain = [
        found[c].cast(pa.int64()) if pa.types.is_timestamp(found[c].type) else found[c]
        for c in columns
    ]
    return list(zip(*(c.to_pylist() for c in plain), strict=True))


def ns(value: float | None) -> int | None:
    """Return the expected nanoseconds of a time."""
    return None if value is None else coupler.nanoseconds(value)


@given(
    events=st.fixed_dictionaries(
        {}, optional={role: st.lists(rows_, max_size=4) for role, rows_ in EVENTS.items()}
    ).filter(bool),
    copies=st.lists(st.tuples(st.integers(0, 3), TIMES), max_size=3),
    new=st.booleans(),
)
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_tables_of_events_come_back(
    events: dict[str, list[coupler.Row]],
    copies: list[tuple[int, float]],
    new: bool,  # noqa: FBT001
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Events written as the coupler does are read back equal: values, keys, times, lines."""
    transfers = events.get("worker_transfer", [])
    transfers += [transfers[i] | {"time": time} for i, time in copies if i < len(transfers)]
    folder = write(tmp_path_factory.mktemp("any") / "csv", events, new=new)
    done = import_folder(folder)
    run = open_run(done.path, align=False)
    assert done.set_aside == 0
    assert done.rows == sum(map(len, events.values()))
    assert_scheduler_rows(run, events.get("scheduler_transition", []))
    assert_other_rows(run, events)
    assert_transfers(run, transfers)
    assert_graphs(run, events.get("graph", []))
    aligned = open_run(done.path)
    keys = values(aligned, "tasks", "key", "key_type", "life")
    assert len(keys) == len(set(keys))
    assert aligned.check().findings


def assert_scheduler_rows(run: Run, given_rows: list[coupler.Row]) -> None:
    """Assert that the run has the scheduler's rows."""
    columns = ("line", "key", "start_state", "finish_state", "thread", "worker", "prefix", "group")
    columns += ("stimulus_id", "nbytes", "time")
    assert values(run, "scheduler_transitions", *columns) == [
        (
            *(line, str(r["key"]), r["start"], r["finish"], r["thread"], r["worker"]),
            *(r["prefix"], r["group"], r["stimulus_id"], r["size"], ns(r["time"])),
        )
        for line, r in numbered("scheduler_transition", given_rows)
    ]
    table = run.scheduler_transitions.to_arrow().sort_by("line")
    intervals = pc.list_flatten(table["startstops"])
    timed = [r for r in given_rows if r["begins"] is not None and r["ends"] is not None]
    for name, column in (("start", "begins"), ("stop", "ends")):
        times = pc.struct_field(intervals, name).cast(pa.int64()).to_pylist()
        assert times == [ns(r[column]) for r in timed]
    assert [p for (p,) in values(run, "scheduler_transitions", "process")] == [
        "scheduler" if r["called_from"] is None else f"scheduler-{r['called_from']}"
        for r in given_rows
    ]


def assert_other_rows(run: Run, events: dict[str, list[coupler.Row]]) -> None:
    """Assert that the run has the rows of workers and clients."""
    columns = ("line", "key", "start_state", "finish_state", "worker", "time")
    assert values(run, "worker_transitions", *columns) == [
        (line, str(r["key"]), r["start"], r["finish"], r["called_from"], ns(r["time"]))
        for line, r in numbered("worker_transition", events.get("worker_transition", []))
    ]
    assert values(run, "worker_events", "line", "worker", "action", "stimulus_id", "time") == [
        (line, r["worker"], r["action"], r["stimulus_id"], ns(r["time"]))
        for line, r in numbered("worker", events.get("worker", []))
    ]
    names = {"add": "connect", "remove": "disconnect"}
    assert values(run, "clients", "line", "client", "action", "time") == [
        (line, r["client"], names[r["action"]], ns(r["time"]))
        for line, r in numbered("client", events.get("client", []))
    ]


def without_sign(value: Any) -> Any:
    """Return a value, with 0.0 for either zero."""
    return 0.0 if isinstance(value, (int, float)) and value == 0 else value


def assert_transfers(run: Run, given_rows: list[coupler.Row]) -> None:
    """Assert that the run has the distinct transfers, and the duplicates apart."""
    first: dict[str, tuple[int, coupler.Row]] = {}
    again = []
    for line, row in numbered("worker_transfer", given_rows):
        identity = repr([(k, without_sign(row[k])) for k in sorted(row) if k != "time"])
        if identity in first:
            again.append((line, first[identity][0], ns(row["time"])))
        first.setdefault(identity, (line, row))
    columns = ("line", "end", "start", "stop", "middle", "duration_seconds", "total_bytes")
    columns += ("bandwidth", "peer", "worker", "time", "compressed_bytes", "n_keys")
    assert values(run, "transfer_ends", *columns) == [
        (
            *(line, r["type"].partition("_")[0], ns(r["start"]), ns(r["stop"]), ns(r["middle"])),
            *(r["duration"], r["total"], r["bandwidth"], r["who"], r["called_from"]),
            *(ns(r["time"]), r["compressed"], len({str(key) for key in r["keys"]})),
        )
        for line, r in first.values()
    ]
    number = {n: line for line, n in values(run, "transfer_ends", "line", "number")}
    found = values(run, "transfer_resends", "line", "number", "time")
    assert [(line, number[n], time) for line, n, time in found] == again
    keys = values(run, "transfer_end_keys", "number", "key", "nbytes")
    assert sorted((number[n], key, size) for n, key, size in keys) == sorted(
        (line, key, size)
        for line, r in first.values()
        for key, size in {str(key): size for key, size in r["keys"].items()}.items()
    )


def assert_graphs(run: Run, given_rows: list[coupler.Row]) -> None:
    """Assert that the run has the graphs."""
    graphs = list(numbered("graph", given_rows))
    assert values(run, "submissions", "line", "submission", "client", "time") == [
        (line, f"graph-{line}", r["client"], ns(r["time"])) for line, r in graphs
    ]
    needs = {line: {str(k): v for k, v in r["dependencies"].items()} for line, r in graphs}
    assert sorted(values(run, "graph_tasks", "submission", "key", "requested")) == sorted(
        (f"graph-{line}", key, key in {str(k) for k in r["keys"]})
        for line, r in graphs
        for key in needs[line]
    )
    assert sorted(values(run, "graph_edges", "submission", "key", "dependency")) == sorted(
        (f"graph-{line}", key, needed)
        for line, _ in graphs
        for key, found in needs[line].items()
        for needed in {str(k) for k in found}
    )
