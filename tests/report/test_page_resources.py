"""The page's panel of resources in a real browser, compared with SQL over the tables."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dask_strata import Run, open_run
from dask_strata.report.page.page import make_page
from dask_strata.report.words import size
from tests.support.browsing import CHROMIUM, DRIVER, Browser, chromium
from tests.support.synthetic import SECOND, T0, Process, life, new_run

if not (CHROMIUM and DRIVER):
    pytest.skip("chromium or chromedriver is absent", allow_module_level=True)

W, V, S = "tcp://w:1", "tcp://v:1", "tcp://s:1"
MIB = 1 << 20

#: Bins of the page, each of which has so many ns in a run of 10 s.
BINS, STEP = 400, 25_000_000

LIMITS = {"target": 600, "spill": 700, "pause": 800, "limit": 1000}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all pages."""
    yield from chromium()


def busy_run(folder: Path) -> Path:
    """Make a run of 10 s, two workers that are sampled at odd times, and tasks on both."""
    rng = random.Random(21)
    new_run(folder)
    scheduler = Process(folder, "scheduler-1", address=S, pid=1)
    scheduler.write("worker_events", [
        {"time": T0, "worker": W, "name": "w", "action": "add"},
        {"time": T0 + SECOND, "worker": V, "name": "v", "action": "add"},
        {"time": T0 + 7 * SECOND, "worker": V, "name": "v", "action": "remove"},
    ])  # fmt: skip
    scheduler.write("submissions", [{"submission": "s", "client": "c", "time": T0 + 2 * SECOND}])
    tasks, executions = [], {W: [], V: []}
    for worker in (W, V):
        at = 2.5
        for n in range(12):
            start, stop = at, at + rng.uniform(0.02, 0.5)
            at = stop + rng.uniform(0, 0.1)
            if at > 6.8:
                break
            key = f"load-{worker}-{n}"
            tasks += life(key, start, stop, worker)
            cpu = None if n == 3 else (stop - start) * rng.random()
            executions[worker].append({
                "execution": n, "key": key, "worker": worker, "cpu_seconds": cpu,
                "start": T0 + int(start * SECOND), "stop": T0 + int(stop * SECOND)})  # fmt: skip
    scheduler.write("scheduler_transitions", sorted(tasks, key=lambda r: r["time"]))
    times = [T0 + int((n + rng.random() / 3) * SECOND / 2) for n in range(20)]
    scheduler.write("worker_samples", [
        {"time": t, "worker": w, "seen_by": "scheduler", "processing": rng.randint(0, 9)}
        for t in times for w in (W, V) if w == W or T0 + SECOND < t < T0 + 7 * SECOND
    ])  # fmt: skip
    scheduler.write("scheduler_samples", [
        {"time": t, "rss_bytes": rng.randint(1, 99) * MIB, "loop_lag_seconds": rng.random() / 9}
        for t in times
    ])  # fmt: skip
    scheduler.write("loop_blocks", [
        {"start": T0 + 3 * SECOND, "stop": T0 + 4 * SECOND, "seconds": 1.0}])  # fmt: skip
    scheduler.end()
    for n, (worker, name, stop) in enumerate(((W, "w", 10), (V, "v", 7))):
        process = Process(folder, f"worker-{n}", address=worker, name=name, nthreads=2, pid=70 + n)
        process.write("memory_limits", [{"time": T0 + SECOND, "worker": worker} | {
            f"{limit}_bytes": mib * MIB for limit, mib in LIMITS.items()}])  # fmt: skip
        at, used = 1.0, [0.0, 0, 0, 0, 0]
        samples, states = [], []
        while at < stop:
            time = T0 + int(at * SECOND)
            used = [v + rng.random() * (1 if i == 0 else 50 * MIB) for i, v in enumerate(used)]
            counters = ("read_bytes", "write_bytes", "storage_read_bytes", "storage_write_bytes")
            samples.append({"time": time, "cpu_seconds": used[0]} | {
                c: int(v) for c, v in zip(counters, used[1:], strict=True)})  # fmt: skip
            rss = rng.randint(100, 950) * MIB
            states.append({
                "time": time, "worker": worker, "seen_by": "worker", "rss_bytes": rss,
                "managed_bytes": rss // 2, "spilled_bytes": rng.randint(0, 9) * MIB,
                "loop_lag_seconds": None if 4 < at < 5 else rng.random() / 5,
                "net_read_bytes_per_second": rng.random() * MIB,
                "net_write_bytes_per_second": rng.random() * MIB})  # fmt: skip
            at += rng.uniform(0.3, 0.7)
        process.write("process_samples", samples)
        process.write("worker_samples", states)
        process.write("executions", executions[worker])
        process.end(at=T0 + stop * SECOND)
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The run of two workers."""
    return open_run(busy_run(tmp_path_factory.mktemp("resources") / "r"))


@pytest.fixture(scope="module")
def file(run: Run) -> Path:
    """The file of its page."""
    file = Path(run.path).with_suffix(".html")
    file.write_text(make_page(run), encoding="utf-8")
    return file


@pytest.fixture
def page(browser: Browser, file: Path) -> Browser:
    """Its page in the browser."""
    browser.dark(on=False)
    browser.open(file)
    return browser


#: Intervals of each series in the tables: worker, start, end, and rate or value.
_GAUGE = """
    select worker, epoch_ns(time) as a, epoch_ns(coalesce(lead(time) over w, time)) as b,
           {column} as v from worker_samples where seen_by = '{by}' window w as (partition by worker order by time)
"""
_RATE = """
    select address as worker, lag(epoch_ns(time)) over w as a, epoch_ns(time) as b,
           ({column} - lag({column}) over w) * 1e9 / (epoch_ns(time) - lag(epoch_ns(time)) over w) as v
    from process_samples join processes using (process) window w as (partition by process order by time)
"""
_BY_BIN = """
    with intervals as ({intervals}), bins as (select range as bin, {t0} + range * {step} as low from range({n}))
    select worker, bin, sum(v * ns) / sum(ns) as mean, max(v) as most, sum(v * ns) / {step} as sum, sum(ns) as ns from (
        select worker, bin, v, least(b, low + {step}) - greatest(a, low) as ns from intervals join bins
        on a < low + {step} and b > low where v is not null) where ns > 0 group by all
"""


def truth(run: Run, intervals: str, kind: str) -> dict[tuple[str, int], float]:
    """Return the values of bins by SQL; kind is mean, most or sum."""
    query = _BY_BIN.format(intervals=intervals, t0=T0, step=STEP, n=BINS)
    return {(row["worker"], row["bin"]): row[kind] for row in run.rows(query)}


def shown(page: Browser, name: str, row: int) -> list[float | None]:
    """Return the values of a series in the page."""
    script = "const r = strata.panel.data; return Array.from({length: r.bins}, (_, b) => r.value(arguments[0], arguments[1], b))"
    return page.js(script, name, row)  # type: ignore[no-any-return]


def assert_same(values: list[float | None], expected: dict[int, float], *, sure: set[int]) -> None:
    """Compare values with the expected ones; bins that are not sure may be longer."""
    known = 0
    for bin_, value in enumerate(values):
        if bin_ in expected:
            assert value == pytest.approx(expected[bin_], rel=2e-3, abs=0.011), bin_
            known += 1
        elif bin_ in sure:
            assert value is None, bin_
    assert known > 150


#: Columns of states and of counters, by series of the page.
STATES = {
    "rss": ("rss_bytes", "most"), "managed": ("managed_bytes", "most"), "spilled": ("spilled_bytes", "most"),
    "received": ("net_read_bytes_per_second", "mean"), "sent": ("net_write_bytes_per_second", "mean"),
}  # fmt: skip
COUNTERS = {
    "cpu": "cpu_seconds", "read": "read_bytes", "written": "write_bytes",
    "storage_read": "storage_read_bytes", "storage_written": "storage_write_bytes",
}  # fmt: skip


def test_series_of_each_worker_and_of_all_are_those_of_sql(page: Browser, run: Run) -> None:
    """Each bin of each series has the value that SQL computes, and gaps where nothing is known."""
    workers = page.js("return strata.panel.data.workers.map(([address]) => address)")
    assert sorted(workers) == [V, W]
    for name, query, kind in (
        *((n, _GAUGE.format(column=c, by="worker"), k) for n, (c, k) in STATES.items()),
        *((n, _RATE.format(column=c), "mean") for n, c in COUNTERS.items()),
        ("processing", _GAUGE.format(column="processing", by="scheduler"), "mean"),
    ):
        found = truth(run, query, kind)
        means = truth(run, query, "mean")
        for row, worker in enumerate(workers, start=1):
            expected = {bin_: v for (w, bin_), v in found.items() if w == worker}
            # A worker's last sample counts for a usual interval, which the query leaves out.
            sure = set(range(min(expected)))
            del expected[max(expected)]
            assert_same(shown(page, name, row), expected, sure=sure)
        last = min(max(b for w, b in means if w == worker) for worker in workers)
        shared = 2 if name in {"received", "sent"} else 1  # both workers measure one host's network
        known = {b: [means[w, b] for w in (W, V) if (w, b) in means] for b in range(last)}
        both = {b: sum(v) / (shared if len(v) == 2 else 1) for b, v in known.items() if v}
        assert_same(shown(page, name, 0), both, sure=set(range(last)))


def test_busy_threads_limits_and_delays_are_those_of_sql(page: Browser, run: Run) -> None:
    """Threads that compute, CPU of tasks, limits, and the longest delay of each event loop."""
    workers = page.js("return strata.panel.data.workers.map(([address]) => address)")
    phases = """select attempts.worker, epoch_ns(p.start) as a, epoch_ns(p.stop) as b, 1 as v
                from phases p join attempts using (attempt) where action = 'compute'"""
    busy = truth(run, phases, "sum")
    spent = """select worker, epoch_ns(start) as a, epoch_ns(stop) as b,
               coalesce(cpu_seconds, 1e9) * 1e9 / (epoch_ns(stop) - epoch_ns(start)) as v from executions"""
    of_tasks = truth(run, spent, "sum")
    for row, worker in enumerate(workers, start=1):
        low, high = (0, 400) if worker == W else (40, 280)
        expected = {b: busy.get((worker, b), 0.0) for b in range(low, high)}
        assert_same(shown(page, "busy", row), expected, sure=set(range(BINS)) - set(expected))
        used, cpu = shown(page, "task_cpu", row), shown(page, "cpu", row)
        missing = 0
        for bin_ in range(45, 250):
            value = of_tasks.get((worker, bin_), 0.0)
            if value > 1e5:  # an execution whose CPU time is unknown
                assert used[bin_] is None
                missing += 1
            elif cpu[bin_] is not None:
                assert used[bin_] == pytest.approx(value, rel=2e-3, abs=0.002)
        assert missing > 0
        for limit, mib in LIMITS.items():
            assert shown(page, limit, row)[low + 2 : high - 2] == [mib * MIB] * (high - low - 4)
    assert shown(page, "limit", 0)[50:270] == [2000 * MIB] * 220
    delays = """select worker, lag(epoch_ns(time)) over (partition by worker order by time) as a,
                epoch_ns(time) as b, loop_lag_seconds as v from worker_samples where seen_by = 'worker'"""
    longest = truth(run, delays, "most")
    for row, worker in enumerate(workers, start=1):
        expected = {b: v for (w, b), v in longest.items() if w == worker}
        lag = shown(page, "lag", row)
        for bin_ in range(60, 150):
            assert lag[bin_] == (
                pytest.approx(expected[bin_], rel=2e-3) if bin_ in expected else None
            )
    scheduler = shown(page, "lag", 3)
    assert scheduler[120:160] == pytest.approx([1.0] * 40, rel=2e-3)
    assert max(v for v in scheduler[:110] + scheduler[170:] if v is not None) < 0.2
    memory = truth(run, """select 's' as worker, epoch_ns(time) as a, epoch_ns(lead(time) over (order by time)) as b,
                   rss_bytes as v from scheduler_samples""", "most")  # fmt: skip
    last = max(bin_ for _, bin_ in memory)
    assert_same(
        shown(page, "rss", 3), {b: v for (_, b), v in memory.items() if b < last}, sure=set()
    )


def column(page: Browser, lane: int, bin_: int) -> list[str]:
    """Return the colours of a lane at the middle of a bin, from its top down."""
    return page.js(  # type: ignore[no-any-return]
        "const c = document.getElementById('resources'), t = strata.timeline, r = strata.panel.data;"
        "const d = c.getContext('2d').getImageData(Math.floor(t.xAt((arguments[1] + 0.5) * r.step)), arguments[0] * 52 + 6, 1, 42).data;"
        "return Array.from({length: 42}, (_, i) => '#' + [...d.slice(4 * i, 4 * i + 3)].map((v) => v.toString(16).padStart(2, '0')).join(''))",
        lane, bin_,
    )  # fmt: skip


def test_areas_are_as_high_as_their_values(page: Browser) -> None:
    """The height of the CPU's area is its value on the axis; unknown bins are empty."""
    page.js("strata.panel.choose(1); strata.timeline.show(0, 10e6); strata.timeline.draw()")
    lane = page.js(
        "return getComputedStyle(document.documentElement).getPropertyValue('--lane').trim()"
    )
    values, ours = shown(page, "cpu", 1), shown(page, "task_cpu", 1)
    drawn = 0
    top = page.js("return strata.panel.lanes()[0].top")
    for bin_ in range(5, 395, 7):
        pixels = column(page, 0, bin_)
        if pixels[0] not in {lane, "#8fa3b8", "#20a585"}:  # a line of the axis of time
            continue
        high = sum(p in {"#8fa3b8", "#20a585"} for p in pixels)
        assert high == pytest.approx(max(values[bin_] or 0, ours[bin_] or 0) / top * 42, abs=2.1)
        assert pixels.count("#20a585") == pytest.approx((ours[bin_] or 0) / top * 42, abs=2.1)
        drawn += high > 2
    assert drawn > 20


def test_values_on_hover_and_by_keyboard(page: Browser) -> None:
    """The tip and the line of values have the numbers of the bin under the mouse or the keys."""
    page.js("strata.panel.choose(0); strata.timeline.show(2e6, 8e6)")
    words = page.js("return strata.panel.words(5.51e6)")
    memory = next(line for line in words if line.startswith("memory: "))
    rss = shown(page, "rss", 0)[220]
    assert rss is not None
    assert f"processes {size(rss)}, " in memory
    assert "limit 1.95 GiB" in memory
    page.js(
        "const c = document.getElementById('resources'), b = c.getBoundingClientRect();"
        "c.dispatchEvent(new PointerEvent('pointermove', {clientX: b.left + strata.timeline.xAt(5.51e6), clientY: b.top + 9}))"
    )
    assert page.text("#tip").splitlines() == words
    page.js("const c = document.getElementById('resources'); c.focus();"
            "for (const key of ['ArrowRight', 'ArrowRight']) c.dispatchEvent(new KeyboardEvent('keydown', {key}))")  # fmt: skip
    assert page.text("#resource-values").startswith("5.55 s to 5.58 s into the run, all workers")
    assert page.js("return document.getElementById('resource-values').ariaLive") == "polite"
    page.js(
        "document.getElementById('resources').dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape'}))"
    )
    assert page.text("#resource-values") == ""


def test_a_worker_is_chosen_with_the_filter(page: Browser) -> None:
    """The filter of workers also selects the panel's; the panel may show another one."""
    page.js(
        f"const s = document.getElementById('f-worker'); s.value = '{V}'; s.dispatchEvent(new Event('change'))"
    )
    assert (
        page.js("return document.getElementById('r-worker').selectedOptions[0].textContent")
        == f"v · {V}"
    )
    page.js(
        "const s = document.getElementById('f-worker'); s.value = ''; s.dispatchEvent(new Event('change'))"
    )
    assert page.js("return document.getElementById('r-worker').value") == "0"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, pytest.param(1300, marks=pytest.mark.long)])
def test_the_panel_is_for_everyone(page: Browser, dark: bool, width: int) -> None:
    """No accessibility rule is violated in either theme, on a wide and a narrow screen."""
    page.dark(on=dark)
    screen: dict[str, Any] = {
        "width": width,
        "height": 900,
        "deviceScaleFactor": 1,
        "mobile": False,
    }
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    try:
        page.js("strata.panel.choose(1); document.getElementById('timeline').scrollIntoView()")
        assert page.violations() == []
        assert page.js("return document.documentElement.scrollWidth") <= width
    finally:
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert page.errors() == []
