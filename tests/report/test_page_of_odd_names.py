"""The page of a run with restarted workers, long names, and keys that are parts of others."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.browsing import CHROMIUM, DRIVER, Browser, chromium
from tests.support.planned_runs import Plan, PlannedTask, fused, write
from tests.support.synthetic import SECOND, T0, Process, life, new_run

if not (CHROMIUM and DRIVER):
    pytest.skip("chromium or chromedriver is absent", allow_module_level=True)

#: Two of the workers have the name of the one that they replaced.
WORKERS = {f"tcp://10.10.10.1:{4000 + n}": name for n, name in enumerate(("0", "1", "0", "2", "1"))}

LONG = "a name of words and " + "long" * 40

#: Pairs of prefixes with an edge; the other prefixes have none.
LINKED = (("load", "join"), *((f"part{n}", "all") for n in range(6)), ("begin", "end"))
ALONE = tuple(f"alone{n}" for n in range(6))


def plan() -> Plan:
    """Return a run of 30 keys that begin with step-1, and of parts of a graph."""
    plan = Plan(list(WORKERS), names=list(WORKERS.values()))

    def add(key: str, prefix: str) -> None:
        n = len(plan.tasks)
        start = 1000 + 500 * n
        plan.tasks.append(
            PlannedTask(
                key, prefix, prefix, plan.workers[n % 5], start, start + 400, 8, erred=False
            )
        )

    for n in (*range(100, 129), 1):
        add(f"step-{n}", "step")
    names = dict.fromkeys(name for pair in LINKED for name in pair)
    for name in (*names, *ALONE, LONG):
        add(f"{name}-0", name)
    plan.edges = [(f"{needs}-0", f"{needed}-0") for needed, needs in LINKED]
    plan.transfers = [
        (a, b, 2000, 2100, 1000, 1) for a in plan.workers for b in plan.workers if a != b
    ]
    return plan


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all pages."""
    yield from chromium()


@pytest.fixture(scope="module")
def file(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the run."""
    folder = tmp_path_factory.mktemp("odd") / "r"
    parts = fused(["m.read_all_the_files", "m.clean"], ["read_all_the_files-1"], ["x" * 30, "y"])
    browser.show(write(folder, plan(), load=parts))
    return folder.with_suffix(".html")


@pytest.fixture
def page(browser: Browser, file: Path) -> Browser:
    """The page, opened anew."""
    browser.driver.get("about:blank")
    browser.open(file)
    return browser


def test_workers_of_one_name_are_told_apart(page: Browser) -> None:
    """A restarted worker keeps its name: where others share it, its address is beside it."""
    wanted = {
        f"{name} · {worker.removeprefix('tcp://')}" if name in "01" else name
        for worker, name in WORKERS.items()
    }
    boxes = page.js(
        "const s = document.getElementById('durations-of');"
        "s.value = [...s.options].findIndex((o) => o.text === 'step');"
        "s.dispatchEvent(new Event('change'));"
        "return [...document.querySelectorAll('#durations-chart .box')].slice(1)"
        ".map((g) => [g.querySelector('title').textContent.split(': ')[0],"
        " g.querySelector('text').textContent])"
    )
    assert {whole for whole, _ in boxes} == wanted
    assert len({shown for _, shown in boxes}) == 5
    ends = page.js(
        "return [...document.querySelectorAll('#heat > text')].map((t) => t.textContent)"
    )
    assert {ends.count(end) for end in ends[:10]} == {1, 2}  # each in a row and in a column
    assert len(set(ends[:10])) >= 5
    texts = page.js(
        "return [...document.querySelectorAll('#heat [data-pair]')].map((r) => r.textContent)"
    )
    assert {text.split(" → ")[0] for text in texts} == wanted
    idle = page.js(
        "return [...document.querySelectorAll('#where button[data-filter=worker]')]"
        ".map((b) => b.textContent)"
    )
    assert set(idle) == wanted


def test_a_whole_key_is_found_among_longer_ones(page: Browser) -> None:
    """The task of a whole key is selected, however many other keys contain it."""
    chosen = "return strata.model.key(strata.model.task[strata.model.chosen])"
    page.js(
        "const s = document.getElementById('search'); s.value = 'step-1';"
        "s.dispatchEvent(new Event('input'))"
    )
    assert page.text("#found").startswith("30 keys found")
    assert page.js("return document.querySelector('#found button').textContent") == "step-1"
    assert page.js(chosen) == "step-1"


def test_clear_shows_the_resources_of_all_workers(page: Browser) -> None:
    """Clear also ends the selection of a worker by the filter, and leaves no permalink."""
    page.js("strata.panel.choose(2); document.getElementById('clear').click()")
    assert page.js("return [strata.panel.row, strata.timeline.links.current()]") == [0, ""]


def rows_of(page: Browser, table: str) -> list[dict[str, str]]:
    """Return the rows of a table's CSV."""
    text = page.js("return strata.csv(document.querySelector(arguments[0]))", table)
    return list(csv.DictReader(io.StringIO(text)))


def test_csv_has_shares_seconds_and_whole_names(page: Browser) -> None:
    """A share is a share, a time is in seconds, a name is whole, and a picture has no column."""
    for table in ("#where table", "#path table"):
        rows = rows_of(page, table)
        total = sum(float(row["seconds"]) for row in rows)
        shares = [float(row["share"]) for row in rows]
        assert shares == pytest.approx([float(row["seconds"]) / total for row in rows])
    rows = rows_of(page, "#activity-table")
    assert "executions" not in rows[0]
    [long] = [row for row in rows if row["prefix"] == LONG]
    tasks = plan().tasks
    assert float(long["first began"]) == pytest.approx(tasks[-1].start / 1e3)
    assert float(long["last ended"]) == pytest.approx(tasks[-1].stop / 1e3)


def test_heads_are_above_their_columns(page: Browser) -> None:
    """A head is aligned to the right where its numbers are, and only there."""
    wrong = page.js(
        "return [...document.querySelectorAll('main table')].flatMap((t) =>"
        " t.tHead && t.tBodies[0].rows.length ? [...t.tHead.rows[0].cells].filter((head, i) =>"
        " head.classList.contains('n') !== t.tBodies[0].rows[0].cells[i].classList.contains('n'))"
        ".map((head) => `${t.caption.textContent}: ${head.textContent}`) : [])"
    )
    assert wrong == []


def test_a_narrow_screen_shows_words(page: Browser) -> None:
    """The page does not scroll sideways, and no column is narrower than a short word."""
    metrics = {"width": 390, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        page.js("document.querySelectorAll('details').forEach((d) => { d.open = true })")
        assert page.js("return document.documentElement.scrollWidth") <= 390
        narrow = page.js(
            "return [...document.querySelectorAll('main tbody td:not(.n)')]"
            ".filter((c) => c.offsetWidth && c.offsetWidth < 90).map((c) => c.textContent)"
        )
        assert narrow == []
        beside = page.js(
            "return [...document.querySelectorAll('#prefixes th .swatch')].map((s) =>"
            " s.nextElementSibling.getBoundingClientRect().left - s.getBoundingClientRect().right)"
        )
        assert min(beside) >= 0, "a name is beside its colour"
    finally:
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_parts_of_a_graph_are_below_each_other(page: Browser) -> None:
    """There is no empty space between parts without an edge between them."""
    boxes: list[Any] = page.js(
        "return [...document.querySelectorAll('#graph-svg .node-box')].map((r) => {"
        " const b = r.getBoundingClientRect(); return [b.top, b.bottom]; })"
    )
    end = None
    for top, bottom in sorted(boxes):
        assert end is None or top - end < 40
        end = max(end or bottom, bottom)


def test_lines_of_stopped_processes_have_a_key(browser: Browser, tmp_path: Path) -> None:
    """Each line has its colour beside its name, on the screen and in the picture."""
    folder = new_run(tmp_path / "r")
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1")
    scheduler.write("scheduler_transitions", life("a-1", 1, 5, "tcp://w:1"))
    scheduler.write("loop_blocks", [{"start": T0 + SECOND, "stop": T0 + 2 * SECOND}])
    scheduler.write("gc_pauses", [{"start": T0 + SECOND, "stop": T0 + 2 * SECOND, "generation": 2}])
    scheduler.end()
    browser.show(folder)
    svg = browser.js("return strata.timeline.svg()")
    for color in ("#e8590c", "#6f42c1"):
        assert f'width="10" height="3" fill="{color}"' in svg
    assert browser.errors() == []


@pytest.mark.parametrize("dark", [False, True])
def test_dark_bars_have_a_light_edge_in_the_dark_theme(page: Browser, *, dark: bool) -> None:
    """Some of Dask's colours are as dark as the lane: there, a line is under each bar."""
    page.dark(on=dark)
    try:
        top, bottom = page.js(
            "const t = strata.timeline, m = strata.model; t.draw();"
            "const c = document.getElementById('canvas'), g = c.getContext('2d');"
            "const x = Math.floor(t.xAt((m.start[0] + m.stop[0]) / 2)), y = t.yAt(0);"
            "const at = (y) => [...g.getImageData(x, Math.floor(y), 1, 1).data.slice(0, 3)];"
            "return [at(y), at(2 * y - 2)]"
        )
        svg = page.js("return strata.timeline.svg()")
    finally:
        page.dark(on=False)
    assert (min(bottom) > 180) == dark
    assert (bottom != top) == dark
    assert ("#c3ccd6" in svg) == dark


def test_prefixes_without_an_ended_function_have_a_row(browser: Browser, tmp_path: Path) -> None:
    """Tasks that were released while they ran have no durations, but they ran."""
    folder = new_run(tmp_path / "r")
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1")
    rows = life("ended-1", 1, 3, "tcp://w:1") + life("stopped-1", 2, 6, "tcp://w:1")
    rows[-1]["finish_state"] = "released"
    scheduler.write("scheduler_transitions", sorted(rows, key=lambda row: row["time"]))
    scheduler.end()
    worker = Process(folder, "worker-1", address="tcp://w:1", name="w", nthreads=1)
    samples = [
        {
            "time": T0 + t * SECOND,
            "worker": "tcp://w:1",
            "seen_by": "worker",
            "net_read_bytes_per_second": 0.0,
        }
        for t in range(10)
    ]
    worker.write("worker_samples", samples)
    worker.end()
    browser.show(folder)
    names = "return [...document.querySelectorAll('#activity-table tbody th')].map((h) => h.innerText.trim())"
    assert browser.js(names) == ["ended", "stopped"]
    [network] = [line for line in browser.js("return strata.panel.words(5e6)") if "network" in line]
    assert "received 0 B/s" in network, "a rate has the unit of its size"
    axis = browser.js("return strata.timeline.svg()")
    assert "1 B/s" in axis
    assert "0.000000954 MiB/s" not in axis
