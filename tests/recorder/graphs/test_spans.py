"""Spans on record: names, parents and tasks are those of Dask's own extension."""

from __future__ import annotations

import io
import json
import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import pytest
from distributed import Client, Event, LocalCluster, SchedulerPlugin, span
from distributed.spans import SpansSchedulerExtension
from rich.console import Console

import dask_strata
from dask_strata import Run
from dask_strata.analysis.compare.effects import measure_effects
from dask_strata.analysis.compare.gate import parse_limit
from dask_strata.analysis.compare.runs import ComparedRun, Group
from dask_strata.analysis.measured.spans import spans
from dask_strata.analysis.overview.stored import compared
from dask_strata.analysis.summary import summarize
from dask_strata.analysis.tasks import group_tasks, select_tasks
from dask_strata.errors import UsageError
from dask_strata.recorder.graphs.spans import Spans
from dask_strata.report.comparison.lines import label
from dask_strata.report.page.page import make_page
from dask_strata.report.summary import print_summary
from tests.conftest import rows, wait_until

#: Dask warns that DataFrames ignore annotations; their tasks are in the span all the same.
pytestmark = pytest.mark.filterwarnings("ignore:Dask annotations")

pd = pytest.importorskip("pandas")
dd = pytest.importorskip("dask.dataframe")


def inc(x: Any) -> Any:
    """Return a number plus one."""
    return x + 1


def wait(event: Event) -> None:
    """Wait for an event of Dask."""
    event.wait(60)


class Truth(SchedulerPlugin):
    """Keeps the span in which Dask itself puts each task of each submission."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.spans: dict[str, list[tuple[str, ...]]] = defaultdict(list)
        self.compute: dict[tuple[str, ...], float] = defaultdict(float)
        self.started: dict[tuple[str, ...], list[tuple[float, float]]] = defaultdict(list)

    def update_graph(self, scheduler: Any, *, tasks: Any, **_: Any) -> None:
        """Called by Dask for each graph."""
        known = scheduler.extensions["spans"].spans
        for key in tasks:
            group = scheduler.tasks[key].group
            self.spans[str(key)].append(known[group.span_id].name)


def _work(client: Client) -> None:
    """Run tasks in spans of all kinds."""
    with span("before"):
        early = client.submit(inc, 1, key="early-1")
        early.result()
    with span("pipeline"):
        with span("load", "raw"):  # two spans at once; `pipeline / load` has no tasks of its own
            x = da.ones((40, 40), chunks=10).persist()
            x.sum().compute()
        client.submit(inc, 10, key="inside-1").result()
        with span("fit"):
            frame = pd.DataFrame({"g": [1, 2, 3, 4] * 25, "v": range(100)})
            dd.from_pandas(frame, npartitions=4).groupby("g").v.sum().compute()
    for i in range(2):  # one name, two spans
        with span("twice"):
            client.submit(inc, 20 + i, key=f"twice{i}-1").result()
    with span("first"):
        held = client.submit(inc, 30, key="shared-1")
        held.result()
    with span("second"):  # the group still exists: Dask leaves its tasks in the first span
        client.submit(inc, 31, key="shared-2").result()
    del held
    with dask.annotate(priority=3), span("with / slash"):
        client.submit(inc, 40, key="annotated-1", priority=3).result()
    client.submit(inc, 50, key="plain-1").result()
    with span("default"):
        client.submit(inc, 60, key="named-default-1").result()
    for name in ("life 1", "life 2"):  # one key, forgotten in between
        with span(name):
            client.submit(inc, 70, key="again-1").result()
        wait_until(lambda: "again-1" not in client.cluster.scheduler.tasks)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Truth, dict]:
    """A run with spans, and what Dask itself has of them."""
    runs = tmp_path_factory.mktemp("runs")
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address="")
    with cluster, Client(cluster) as client:
        truth = Truth(cluster.scheduler)
        cluster.scheduler.add_plugin(truth)
        go = Event()
        with span("before"):
            present = client.submit(wait, go, key="present-1")
            wait_until(lambda: "present-1" in cluster.scheduler.tasks)
        with dask_strata.record(runs=runs) as run:
            go.set()
            present.result()
            _work(client)
        of_dask = cluster.scheduler.extensions["spans"].spans.values()
        facts = {s.id: (s.name, s.parent and s.parent.id, s.enqueued) for s in of_dask}
        for each in of_dask:
            truth.compute[each.name] += each.all_durations.get("compute", 0.0)
            truth.started[each.name] += [(g.start, g.stop) for g in each.traverse_groups()]
    return run, truth, facts


def _path(name: tuple[str, ...]) -> str | None:
    joined = " / ".join(tag.replace(" / ", " \\/ ") for tag in name)
    return None if name == ("default",) else joined


def test_each_task_is_in_the_span_in_which_dask_has_it(recorded: Any) -> None:
    """Also fused tasks, tasks of a group in two spans, and each life of a key that came again."""
    run, truth, _ = recorded
    found = defaultdict(list)
    for row in rows(run, "select key, span from tasks order by key, life"):
        found[row["key"]].append(row["span"])
    expected = {key: [_path(name) for name in names] for key, names in truth.spans.items()}
    lives = {key: names if len(found[key]) > 1 else names[:1] for key, names in expected.items()}
    assert found == lives
    assert len(found) > 20
    assert found["again-1"] == ["life 1", "life 2"]
    assert found["shared-2"] == ["first"]
    assert found["present-1"] == ["before"]
    assert found["plain-1"] == found["named-default-1"] == [None]
    assert {"pipeline", "pipeline / load / raw", "pipeline / fit", "with \\/ slash", "twice"} <= {
        name for names in found.values() for name in names
    }


def test_attempts_have_the_span_of_their_task(recorded: Any) -> None:
    """Each attempt of a life."""
    run, _, _ = recorded
    found = rows(
        run,
        "select t.span as task, a.span as attempt from attempts a join tasks t "
        "using (key, key_type) "
        "where key not in (select key from tasks where life > 1)",
    )
    assert found
    assert all(row["task"] == row["attempt"] for row in found)
    again = rows(run, "select span from attempts where key = 'again-1' order by start")
    assert [row["span"] for row in again] == ["life 1", "life 2"]


def test_spans_are_those_of_dasks_extension(recorded: Any) -> None:
    """Names, ids, parents and times of all named spans, also of those without tasks."""
    run, _, facts = recorded
    found = {
        row["span"]: (tuple(json.loads(row["tags"])), row["parent"], row["enqueued"])
        for row in rows(run, "select *, epoch_ns(enqueued) / 1e9 as enqueued from spans")
    }
    named = {span_id: fact for span_id, fact in facts.items() if fact[0] != ("default",)}
    assert found.keys() == named.keys()
    for span_id, (name, parent, enqueued) in named.items():
        assert found[span_id][:2] == (name, parent)
        # SQL has whole microseconds, and a float of seconds is exact to 0.24 of one.
        assert found[span_id][2] == pytest.approx(enqueued, abs=1.5e-6)
    assert sum(name == ("twice",) for name, _, _ in named.values()) == 2
    assert ("pipeline", "load") in {name for name, _, _ in named.values()}


def test_sums_of_a_span_are_those_of_dasks_span(recorded: Any) -> None:
    """With the spans within it: compute time by Dask's own counters, tasks as it was given them."""
    run, truth, facts = recorded
    found = {use.name: use for use in spans(run)}
    names = {name for name, _, _ in facts.values() if name != ("default",)}
    assert found.keys() == {_path(name) for name in names}
    for name in names:
        use = found[str(_path(name))]
        lives = [n for key, names in truth.spans.items() for n in _lives(run, key, names)]
        assert use.n_tasks == sum(each[: len(name)] == name for each in lives)
        assert use.compute_seconds == pytest.approx(truth.compute[name], rel=0.01, abs=1e-3)
        assert use.depth == len(name) - 1
        times = [pair for pair in truth.started[name] if pair[0]]
        assert use.n_spans == sum(name == each for each, _, _ in facts.values())
        wall = max(stop for _, stop in times) - min(start for start, _ in times)
        assert use.wall_seconds == pytest.approx(wall, abs=0.3)
    order = [use.name for use in spans(run)]
    assert order.index("pipeline") < order.index("pipeline / load")
    assert order.index("pipeline / load") < order.index("pipeline / load / raw")


def _lives(run: Run, key: str, names: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    n = len(rows(run, f"select 1 as one from tasks where key = '{key}'")) if "again" in key else 1
    return names[:n]


def test_tasks_are_selected_and_grouped_by_span(recorded: Any) -> None:
    """A span selects the tasks of those within it; sums are those of the tasks."""
    run, truth, _ = recorded
    within = {key for key, names in truth.spans.items() if names[0][:1] == ("pipeline",)}
    assert set(select_tasks(run, span="pipeline").rows["key"].to_pylist()) == within
    inner = select_tasks(run, span="pipeline / load").rows["key"].to_pylist()
    assert inner
    assert set(inner) < within
    grouped = {row["span"]: row for row in group_tasks(run, "span").rows.to_pylist()}
    for name, row in grouped.items():
        own = [key for key, names in truth.spans.items() if _path(names[0]) == name]
        if name is not None and "life" not in name:
            assert row["tasks"] == len(own)
    with pytest.raises(UsageError, match=r"No task has the span nope\.") as error:
        select_tasks(run, span="nope")
    assert "pipeline / fit" in str(error.value.hint)


def test_the_first_screen_has_a_table_of_spans(recorded: Any) -> None:
    """Indented by depth, with the number of those that are left out."""
    run, _, _ = recorded
    out = Console(width=100, record=True, file=io.StringIO())
    print_summary(summarize(run), out)
    text = out.export_text()
    assert re.search(r"^spans +tasks +failed +compute +wall time", text, re.MULTILINE)
    assert re.search(r"^  pipeline .*\n    load .*\n      raw ", text, re.MULTILINE)
    n = len(spans(run)) - 6
    assert f"{n} more spans: tasks RUN --by span" in text


@pytest.mark.long
def test_the_page_has_a_table_of_spans(recorded: Any) -> None:
    """Names are escaped, and a name filters the timeline."""
    run, _, _ = recorded
    html = make_page(run)
    assert 'data-filter="span" data-value="pipeline / load"' in html
    assert '"spans": ["before", "pipeline"' in html


@pytest.mark.long
def test_runs_are_compared_by_span(recorded: Any) -> None:
    """A span that both have is a measure of its own; one that one side lacks is only in one."""
    run, _, _ = recorded
    first = ComparedRun("first", *compared(run))
    fewer = tuple(use for use in first.summary.spans if use.name != "twice")
    second = replace(first, name="second", summary=replace(first.summary, spans=fewer))
    found = measure_effects(Group("a", (first,)), Group("b", (second,)))
    effects = {(e.measure, e.name): e for e in found}
    fit = next(use for use in spans(run) if use.name == "pipeline / fit")
    assert effects["span compute", "pipeline / fit"].first == (fit.compute_seconds,)
    assert effects["span wall", "pipeline / fit"].second == (fit.wall_seconds,)
    assert effects["span wall", "pipeline / fit"].verdict == "equal"
    assert effects["span compute", "twice"].verdict == "only in one"
    assert label(effects["span wall", "pipeline / fit"]) == "span pipeline / fit: wall"
    limit = parse_limit("span pipeline / fit wall > 1.2")
    assert (limit.measure, limit.name) == ("span wall", "pipeline / fit")


def test_tasks_cost_nothing_without_named_spans(tmp_path: Path) -> None:
    """No column is made, and no attribute of a task is read."""
    cluster = LocalCluster(n_workers=1, processes=False, dashboard_address="")
    with cluster, Client(cluster) as client, dask_strata.record(runs=tmp_path) as run:
        client.submit(inc, 1).result()
        assert isinstance(cluster.scheduler.extensions["spans"], SpansSchedulerExtension)
        assert not list(Spans(cluster.scheduler).of([object()]).rows)  # type: ignore[union-attr]
    assert rows(run, "select span from tasks") == [{"span": None}]
    assert rows(run, "from spans") == []


def test_secrets_in_names_are_redacted_and_names_left_out(tmp_path: Path) -> None:
    """A name is text of the user."""
    cluster = LocalCluster(n_workers=1, processes=False, dashboard_address="")
    with cluster, Client(cluster) as client:
        with dask_strata.record(runs=tmp_path) as run, span("password=hunter2hunter"):
            client.submit(inc, 1).result()
        with dask_strata.record(runs=tmp_path, leave_out="paths") as left_out, span("mine"):
            client.submit(inc, 2).result()
    [row] = rows(run, "from spans")
    assert "hunter2" not in str(row)
    [row] = rows(left_out, "from spans")
    assert "mine" not in str(row)
    assert "mine" not in str(
        rows(left_out, "select s.span, t.span as of_task from submissions s, tasks t")
    )
