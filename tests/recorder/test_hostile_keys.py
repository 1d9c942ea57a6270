"""Odd keys, results, exceptions and lives of tasks are recorded exactly."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dask
import distributed
import pytest
from click.testing import CliRunner
from distributed import Client, LocalCluster, Reschedule, secede, worker_client

import dask_strata
from dask_strata import Run
from dask_strata.cli import cli
from dask_strata.schema import TABLES
from tests.conftest import assert_whole, rows, wait_until

pytestmark = pytest.mark.long

KEYS: tuple[Any, ...] = (
    "commas,and;semicolons",
    '\'single\' and "double" ""quotes',
    "two\nlines\r\nand a tab\t",
    "a NUL \x00 inside",
    "\x00at the start",
    "\x00tuple\x00('forged', 0)",
    "emoji 🦆 and combining é ｗｉｄｅ",
    "\x1b[31mred\x1b[0m",
    "x" * 10_000,
    "-v",
    "--help",
    "[bold]markup[/bold]",
    "null",
    "  spaces  ",
    "('x', 0)",
    ("x", 0),
    ("nested", ("a", ("b", 1), "c"), 2.5, "comma, 'quote'\n"),
    ("\x00", 1),
    7,
    -1,
    2.5,
    1e300,
    "7",
)
#: Keys of scattered data. No key is bytes: Dask refuses them as keys of tasks, and converts those
#: of scattered data to text on the way to a worker.
SCATTERED: tuple[Any, ...] = (("scattered", "a,'b'\n"), 8)
TEXTS = [(str(key), type(key).__name__) for key in KEYS]


def inc(x: int) -> int:
    return x + 1


def total(*x: int) -> int:
    return sum(x)


class BrokenRepr:
    """A result that cannot be shown."""

    def __init__(self) -> None:
        self.blob = b"b" * 5_000

    def __repr__(self) -> str:
        raise RuntimeError("no repr for you")

    __str__ = __repr__


def make_broken() -> BrokenRepr:
    return BrokenRepr()


class UnpicklableError(Exception):
    """An exception that cannot be sent."""

    def __reduce__(self) -> Any:
        raise TypeError("cannot be pickled")


class BrokenReprError(Exception):
    """An exception that cannot be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr for you")


def raise_it(kind: str) -> None:
    if kind == "unpicklable":
        raise UnpicklableError("secret reason")
    if kind == "huge":
        raise ValueError("h" * 5_000_000)
    if kind == "odd":
        raise ValueError("NUL \x00, lone \udcff, emoji 🦆, \x1b[31m, two\nlines")
    raise BrokenReprError("hidden")


def once(path: str) -> bool:
    """Return whether this is the first call for a path, on any worker."""
    try:
        Path(path).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def reschedule_once(path: str) -> str:
    if once(path):
        raise Reschedule
    return "the second time"


def fail_once(path: str) -> str:
    if once(path):
        raise OSError("the first time")
    return "again"


def wait_for(path: str) -> str:
    Path(f"{path}.started").touch()
    while not Path(path).exists():
        time.sleep(0.02)
    return "done"


class Counter:
    """An actor."""

    def __init__(self) -> None:
        self.n = 0

    def add(self, n: int) -> int:
        self.n += n
        return self.n


def inner_tasks(n: int) -> int:
    with worker_client() as client:
        return sum(client.gather(client.map(inc, range(n))))


def leave_the_pool() -> str:
    secede()
    time.sleep(0.05)
    return "left"


async def asynchronous(x: int) -> int:
    await asyncio.sleep(0.01)
    return x * 2


def outcome(future: distributed.Future) -> Any:
    """Return status and result of a future, or type and text of its exception."""
    distributed.wait(future)
    if future.status == "finished":
        result = future.result()
        return (
            future.status,
            type(result).__name__,
            None if isinstance(result, BrokenRepr) else result,
        )
    if future.status == "error":
        error = future.exception()
        return future.status, type(error).__name__, str(error)[:20_000]
    return future.status, None, None


def workflow(client: Client, folder: Path) -> dict[str, Any]:
    """Do odd work, and return the results and exceptions that a user sees."""
    folder.mkdir()
    results: dict[str, Any] = {}
    a, b = sorted(client.nthreads())
    futures = [client.submit(inc, i, key=key, workers=[a]) for i, key in enumerate(KEYS)]
    results["keys"] = client.gather(futures)
    results["consumer"] = client.submit(total, *futures, key="consumer", workers=[b]).result()
    results["broken"] = outcome(client.submit(make_broken, key="broken"))
    kept = []
    for kind in ("unpicklable", "huge", "odd", "no repr"):
        failing = client.submit(raise_it, kind, key=f"raise {kind}")
        results[kind] = outcome(failing)
        kept += [failing, client.submit(inc, failing, key=f"after {kind}")]
        results[f"after {kind}"] = outcome(kept[-1])
    with dask.annotate(custom=BrokenRepr(), odd={("a", 1): {1, 2}, "nul": "\0", "f": inc}):
        results["annotated"] = client.submit(inc, 1, key="annotated").result()
    for _ in range(2):
        life = client.submit(inc, 1, key="two lives")
        results.setdefault("lives", []).append(life.result())
        life.release()
        del life
        wait_until(lambda: _is_forgotten(client, "two lives"), what="the end of a life")
    gate = folder / "cancelled"
    cancelled = client.submit(wait_for, str(gate), key="cancelled in flight")
    wait_until(Path(f"{gate}.started").exists)
    cancelled.cancel()
    wait_until(cancelled.cancelled)
    gate.touch()
    gate = folder / "released"
    released = client.submit(wait_for, str(gate), key="released in flight")
    wait_until(Path(f"{gate}.started").exists)
    released.release()
    wait_until(lambda: _is_forgotten(client, "released in flight"))
    gate.touch()
    results["rescheduled"] = outcome(
        client.submit(reschedule_once, str(folder / "rescheduled"), key="rescheduled")
    )
    retried = client.submit(fail_once, str(folder / "retried"), key="retried by hand")
    results["failed first"] = outcome(retried)
    retried.retry()
    wait_until(lambda f=retried: f.status == "finished")
    results["retried"] = outcome(retried)
    actor = client.submit(Counter, actor=True, key="actor").result()
    results["actor"] = [actor.add(2).result(), actor.add(3).result()]
    results["worker_client"] = client.submit(inner_tasks, 4, key="worker client").result()
    results["secede"] = client.submit(leave_the_pool, key="secede").result()
    results["async"] = client.submit(asynchronous, 21, key="async").result()
    many = client.scatter(dict.fromkeys(SCATTERED, 5))
    results["odd scattered"] = client.submit(total, *many.values(), key="of many").result()
    scattered = client.scatter({"scattered": 5})["scattered"]
    results["scattered"] = client.submit(inc, scattered, key="of scattered").result()
    graph = {"ok": (inc, 1), "bad": (raise_it, "odd"), "top": (total, "ok", "bad")}
    try:
        client.get(graph, "top")
    except ValueError as error:
        results["graph"] = str(error)
    del futures, actor, many, scattered, retried, cancelled, released, failing, kept
    client.restart()
    results["restarted"] = client.submit(inc, 1, key="two lives").result()
    return results


def _is_forgotten(client: Client, key: str) -> bool:
    return client.run_on_scheduler(lambda dask_scheduler: key not in dask_scheduler.tasks)


@dataclass
class Odd:
    """The recorded run, and the results with and without recording."""

    run: Run
    recorded: dict[str, Any] = field(default_factory=dict)
    unrecorded: dict[str, Any] = field(default_factory=dict)


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Odd:
    folder = tmp_path_factory.mktemp("odd")
    made = Odd(None)  # type: ignore[arg-type]
    for recorded in (True, False):
        with (
            LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=":0") as cluster,
            Client(cluster) as client,
        ):
            if recorded:
                with dask_strata.record(folder / "runs", client=client) as made.run:
                    made.recorded = workflow(client, folder / "with")
            else:
                made.unrecorded = workflow(client, folder / "without")
    return made


def test_results_are_as_without_recording(odd: Odd) -> None:
    """Each result and exception is the same as on a cluster that is not recorded."""
    assert odd.recorded == odd.unrecorded
    assert odd.recorded["keys"] == [i + 1 for i in range(len(KEYS))]
    assert odd.recorded["unpicklable"][0] == "error"


def test_the_record_is_complete(odd: Odd) -> None:
    """No row is missing, and no part of the recorder failed."""
    assert_whole(odd.run)
    assert rows(odd.run, "select * from losses") == []


@pytest.mark.parametrize(
    "table",
    [
        "graph_tasks",
        "scheduler_transitions",
        "worker_transitions",
        "tasks",
        "attempts",
        "phases",
        "transfer_end_keys",
        "transfer_keys",
        "client_submissions",
    ],
)
def test_keys_are_exact(odd: Odd, table: str) -> None:
    """Each odd key is in each table that has keys, with its exact text and type."""
    column = "first_key" if table == "client_submissions" else "key"
    found = odd.run[table].to_arrow().select([column, f"{column}_type"]).to_pylist()
    assert set(TEXTS) <= {(row[column], row[f"{column}_type"]) for row in found}


def test_no_other_keys(odd: Odd) -> None:
    """No table has a key that differs a little from an odd one."""
    known = set(rows_of(odd.run, "scheduler_transitions", "key"))
    for name, table in TABLES.items():
        for column in table.columns:
            if column.kind == "key":
                strange = set(rows_of(odd.run, name, column.name)) - known - {(None, None)}
                assert not strange, (name, column.name, strange)


def rows_of(run: Run, table: str, column: str) -> list[tuple[str, str]]:
    found = run[table].to_arrow().select([column, f"{column}_type"]).to_pylist()
    return [(row[column], row[f"{column}_type"]) for row in found]


def test_dependencies_are_exact(odd: Odd) -> None:
    """The task that depends on all odd keys has exactly these dependencies."""
    found = rows(
        odd.run, "select dependency, dependency_type from graph_edges where key = 'consumer'"
    )
    assert sorted((r["dependency"], r["dependency_type"]) for r in found) == sorted(TEXTS)


@pytest.mark.parametrize("number", range(len(KEYS)), ids=lambda i: ascii(str(KEYS[i]))[:40])
def test_task_by_key(odd: Odd, number: int) -> None:
    """A task is found by its key, or by the text and type of the key."""
    key, (text, kind) = KEYS[number], TEXTS[number]
    if not isinstance(key, str) or sum(t == text for t, _ in TEXTS) == 1:
        task = odd.run.task(key)
        assert (task.key, task.key_type) == (text, kind)
    task = odd.run.task(text, kind)
    assert (task.key, task.key_type) == (text, kind)
    assert task.state == "memory"
    assert len([row for row in task.rows("graph_tasks") if row["requested"]]) == 1
    [attempt] = task.attempts
    assert attempt["outcome"] == "memory"
    assert "consumer" in task.dependents
    assert "submitted" in str(task)


def test_same_text_two_types(odd: Odd) -> None:
    """A text of two keys is ambiguous: the error names the option to choose one."""
    for text in ("('x', 0)", "7"):
        with pytest.raises(dask_strata.StrataError, match="--key-type"):
            odd.run.task(text)
    assert odd.run.task(("x", 0)).key_type == "tuple"
    assert odd.run.task(7).key_type == "int"


@pytest.mark.parametrize("number", range(len(KEYS)), ids=lambda i: ascii(str(KEYS[i]))[:40])
def test_story(odd: Odd, number: int) -> None:
    """`story` shows exactly that key: as JSON exactly, as text without control characters."""
    text, kind = TEXTS[number]
    arguments = ["story", str(odd.run.path), "--key-type", kind]
    done = CliRunner().invoke(cli, [*arguments, "--format", "json", "--", text])
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert (answer["key"], answer["key_type"]) == (text, kind)
    assert answer["facts"]["state"] == "memory"
    assert {"client", "graph", "scheduler", "worker"} <= {e["layer"] for e in answer["events"]}
    plain = CliRunner().invoke(cli, [*arguments, "--", text])
    assert plain.exit_code == 0, plain.output
    assert "\x1b" not in plain.stdout
    assert "\x00" not in plain.stdout


def command(*arguments: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "dask_strata", *map(str, arguments)],
        capture_output=True,
        check=True,
        timeout=120,
    )


def test_story_as_a_user_types_it(odd: Odd) -> None:
    """The real command accepts each key that a command line can contain."""
    for number in (0, 2, 6, 8, 9):
        text, kind = TEXTS[number]
        done = command("story", odd.run.path, "--key-type", kind, "--format", "json", "--", text)
        assert json.loads(done.stdout)["key"] == text


@pytest.mark.release
@pytest.mark.parametrize("form", ["json", "csv"])
def test_query(odd: Odd, tmp_path: Path, form: str) -> None:
    """`query` writes each key in JSON and CSV, to standard output and to a file.

    In CSV, an apostrophe precedes the keys that a spreadsheet would run.
    """
    query = "select key, key_type from tasks"
    stdout = command("query", odd.run.path, query, "--format", form).stdout
    file = tmp_path / f"out.{form}"
    command("query", odd.run.path, query, "--format", form, "-o", file)
    assert file.read_bytes() == stdout
    text = stdout.decode("utf-8")
    if form == "json":
        found = [(row["key"], row["key_type"]) for row in json.loads(text)]
    else:
        if sys.version_info < (3, 11) and "\x00" in text:
            pytest.skip("this version of Python cannot read NUL in CSV")
        lines = csv.reader(io.StringIO(text, newline=""))
        assert next(lines) == ["key", "key_type"]
        found = [(re.sub("^'([=+@\t\r-])", r"\1", key), kind) for key, kind in lines]
    assert set(TEXTS) <= set(found)


def test_tasks_command(odd: Odd) -> None:
    """`tasks` shows odd keys without control characters as text, and exactly as JSON."""
    shown = command("tasks", odd.run.path, "--limit", "0").stdout.decode()
    assert "\x1b" not in shown
    assert "\x00" not in shown
    found = json.loads(command("tasks", odd.run.path, "--format", "json").stdout)
    assert set(TEXTS) <= {(row["key"], row["key_type"]) for row in found}


def test_result_with_broken_repr(odd: Odd) -> None:
    """A result whose repr fails is recorded by its type and size."""
    [attempt] = odd.run.task("broken").attempts
    assert attempt["typename"].endswith("BrokenRepr")
    assert attempt["nbytes"] > 0


def test_odd_exceptions(odd: Odd) -> None:
    """Exceptions that cannot be pickled or are huge have a text; dependents name the task."""
    for kind, text in (
        ("unpicklable", "secret reason"),
        ("huge", "hhhh"),
        ("odd", "NUL \\x00, lone \\udcff, emoji 🦆, \\x1b[31m, two\\nlines"),
    ):
        task = odd.run.task(f"raise {kind}")
        assert task.state == "erred"
        [attempt] = task.attempts
        assert attempt["outcome"] == "erred"
        assert text in attempt["exception"]
        assert len(attempt["exception"]) < 200_000
        assert "raise_it" in attempt["traceback"]
        [last] = [
            r
            for r in odd.run.task(f"after {kind}").rows("scheduler_transitions")
            if r["finish_state"] == "erred"
        ]
        assert last["blame"] == f"raise {kind}"
    assert odd.run.task("raise no repr").state == "erred"
    assert odd.run.task("top").state == "erred"


def test_odd_annotations(odd: Odd) -> None:
    """All annotations are recorded as JSON; a value whose repr fails by its type."""
    [task] = odd.run.task("annotated").rows("graph_tasks")
    found = json.loads(task["annotations"])
    assert found["custom"] == "<BrokenRepr: repr failed with RuntimeError>"
    assert found["odd"]["('a', 1)"] == [1, 2]
    assert "inc" in found["odd"]["f"]
    assert found["odd"]["nul"] == "\0"


def test_lives(odd: Odd) -> None:
    """A key that is submitted again after it was forgotten starts a new life."""
    lives = sorted(odd.run.task("two lives").rows("tasks"), key=lambda r: r["life"])
    assert [life["life"] for life in lives] == [1, 2, 3]
    assert [life["state"] for life in lives] == ["memory"] * 3
    assert all(life["forgotten"] is not None for life in lives[:2])
    assert lives[0]["forgotten"] <= lives[1]["submitted"]
    assert [life["n_attempts"] for life in lives] == [1, 1, 1]


def test_ends_other_than_success(odd: Odd) -> None:
    """Attempts of cancelled, released, rescheduled and retried tasks have the right outcome."""
    outcomes = {
        key: [a["outcome"] for a in odd.run.task(key).attempts]
        for key in ("cancelled in flight", "released in flight", "rescheduled", "retried by hand")
    }
    assert outcomes == {
        "cancelled in flight": ["released"],
        "released in flight": ["released"],
        "rescheduled": ["rescheduled", "memory"],
        "retried by hand": ["erred", "memory"],
    }
    assert odd.run.task("cancelled in flight").state == "released"
    assert odd.run.task("retried by hand").state == "memory"


def test_other_kinds_of_tasks(odd: Odd) -> None:
    """Actors, tasks that submit or secede, async tasks and scattered data are recorded."""
    for key in ("actor", "worker client", "secede", "async", "of scattered"):
        assert odd.run.task(key).state == "memory", key
        [attempt] = odd.run.task(key).attempts
        assert attempt["outcome"] == "memory"
    for key in SCATTERED:
        task = odd.run.task(key)
        assert (task.key, task.key_type, task.state) == (str(key), type(key).__name__, "memory")
        assert task.dependents == ["of many"]
    assert "scattered" in odd.run.task("of scattered").dependencies
    assert odd.run.task("scattered").state == "memory"
    assert odd.run.task("scattered").attempts == []
    states = {r["finish_state"] for r in odd.run.task("secede").rows("worker_transitions")}
    assert "long-running" in states
    assert odd.run.task("async").attempts[0]["compute_seconds"] >= 0.01


def test_hostile_keys_on_disk(tmp_path: Path) -> None:
    """Rows of spills have the exact odd keys, too."""
    short = [key for key in KEYS if len(str(key)) < 100]
    with (
        dask.config.set({"distributed.worker.memory.target": 1e-6}),
        LocalCluster(
            n_workers=1, threads_per_worker=1, memory_limit="4GiB", dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
        dask_strata.record(tmp_path, client=client) as run,
    ):
        futures = [client.submit(bytes, 10_000, key=key) for key in short]
        assert client.gather(futures) == [bytes(10_000)] * len(short)
    assert_whole(run)
    for action in ("spill", "unspill"):
        found = rows(run, f"select key, key_type from spills where action = '{action}'")
        assert {(r["key"], r["key_type"]) for r in found} >= {
            (str(k), type(k).__name__) for k in short
        }
