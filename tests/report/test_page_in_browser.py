"""The page in a real browser: it shows the record, and no data of the run are executed."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.common.by import By

from dask_strata import open_run
from dask_strata.importers.mofka.importer import find_files, import_files
from dask_strata.report.page.page import Limits, Options
from tests.support import coupler_files as coupler
from tests.support.browsing import CHROMIUM, DRIVER, Browser, chromium
from tests.support.synthetic import SECOND, T0, Process, life, moves, new_run, small_run

pytestmark = pytest.mark.long

if not (CHROMIUM and DRIVER):
    warnings.warn(
        "chromium is absent: THE PAGE IS NOT TESTED (apt-get install chromium chromium-driver)",
        stacklevel=1,
    )
    pytest.skip(
        "chromium or chromedriver is absent: THE PAGE IS NOT TESTED", allow_module_level=True
    )

W, V = "tcp://w:1", "tcp://v:1"

SECTIONS = [
    "verdict",
    "where",
    "timeline",
    "prefixes",
    "graph",
    "path",
    "profile",
    "data",
    "transfers",
    "errors",
    "map",
    "help",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all pages."""
    yield from chromium()


def intervals(*parts: tuple[str, float, float]) -> list[list]:
    """Return startstops: action, from, to in seconds."""
    return [[action, T0 + int(a * SECOND), int((b - a) * SECOND), None] for action, a, b in parts]


def pipeline(folder: Path) -> Path:
    """Make a run of three loads, a sum of them that fetches, and one task that fails."""
    new_run(folder)
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1")
    scheduler.write(
        "worker_events",
        [{"time": T0, "worker": w, "name": n, "action": "add"} for w, n in ((W, "w"), (V, "v"))],
    )
    token = "0123456789abcdef" * 2
    rows = []
    for n in range(3):
        rows += life(f"load-{token}-{n}", 1, 3 + n / 2, W if n < 2 else V)
        rows[-1]["thread"] = n
    last = life("sum-1", 4, 8, W)
    last[-1]["startstops"] = intervals(("transfer", 4, 5), ("compute", 5, 8))
    failed = moves(
        "boom-1", (1, "released", "waiting"), (4, "waiting", "processing"), (6, "processing", "erred"),
        worker=V, thread=1, exception="ValueError('no')", startstops=intervals(("compute", 4, 6)),
    )  # fmt: skip
    scheduler.write("scheduler_transitions", sorted(rows + last + failed, key=lambda r: r["time"]))
    keys = [f"load-{token}-{n}" for n in range(3)]
    scheduler.write(
        "graph_tasks", [{"key": k, "prefix": k.split("-")[0]} for k in (*keys, "sum-1", "boom-1")]
    )
    scheduler.write("graph_edges", [{"key": "sum-1", "dependency": k} for k in keys])
    scheduler.write("claimed_inputs", [
        {"key": keys[2], "uri": "/data/a.root", "dataset": "dimuon", "tree": "Events", "first": 0,
         "last": 1500, "unit": "entries"}
    ])  # fmt: skip
    scheduler.write("worker_samples", [
        {"time": T0 + t * SECOND, "worker": W, "seen_by": "scheduler", "managed_bytes": t << 20,
         "unmanaged_bytes": 100 << 20, "spilled_bytes": 0} for t in range(10)
    ])  # fmt: skip
    scheduler.end()
    for n, (address, name) in enumerate(((W, "w"), (V, "v"))):
        process = Process(folder, f"worker-{n}", address=address, name=name, nthreads=2, pid=70 + n)
        process.write(
            "process_samples",
            [{"time": T0 + t * SECOND, "read_bytes": t << 22, "write_bytes": 0} for t in range(10)],
        )
        process.end()
    return folder


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Browser:
    """The page of a small pipeline."""
    browser.dark(on=False)
    browser.show(pipeline(tmp_path / "r"))
    return browser


def over(page: Browser, bar: int) -> ActionChains:
    """Move the mouse over the middle of a bar."""
    x, y = page.js(
        "const {model: m, timeline: t} = strata, i = arguments[0], c = document.getElementById('canvas');"
        "c.scrollIntoView({block: 'center'}); const box = c.getBoundingClientRect();"
        "return [t.xAt((m.start[i] + m.stop[i]) / 2) - box.width / 2, t.yAt(i) - box.height / 2]",
        bar,
    )
    canvas = page.driver.find_element(By.ID, "canvas")
    return ActionChains(page.driver).move_to_element_with_offset(canvas, round(x), round(y))


def bar_of(page: Browser, key: str) -> int:
    """Return the number of the bar of a key."""
    script = "const m = strata.model; return [...m.task].findIndex((t) => m.key(t).startsWith(arguments[0]))"
    return int(page.js(script, key))


def colors_of(page: Browser) -> int:
    """Return how many pixels of the canvas are of the loads' colour."""
    page.until(
        "return new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(() => r(true))))"
    )
    return int(page.js(
        "const c = document.getElementById('canvas'), m = strata.model;"
        "const d = c.getContext('2d').getImageData(150, 0, c.width - 150, c.height).data;"
        "const v = m.colors[m.facts.prefixes.findIndex(([p]) => p === 'load')]; let n = 0;"
        "for (let i = 0; i < d.length; i += 4) if (d[i] === (v & 255) && d[i+1] === ((v >> 8) & 255)"
        " && d[i+2] === ((v >> 16) & 255)) n++; return n"
    ))  # fmt: skip


def test_everything_is_there_and_nothing_complains(page: Browser) -> None:
    """All sections are in order; the console is empty; the page loads nothing."""
    assert page.js("return [...document.querySelectorAll('section')].map((s) => s.id)") == SECTIONS
    assert page.errors() == []
    assert page.js("return performance.getEntriesByType('resource').length") == 0
    verdict = page.text("#verdict")
    assert "1 task failed." in verdict
    assert "10 s" in verdict
    assert page.js("return document.querySelectorAll('.insights li').length") == 2
    assert page.js("return document.querySelectorAll('.map .cell').length") == 9
    stories = page.js(
        "return [...document.querySelectorAll('.story h3')].map((h) => h.textContent)"
    )
    assert stories[0].split() == ["boom-1", "str"]


def test_the_timeline_has_every_attempt_where_it_was(page: Browser) -> None:
    """Bars are those of the record: thread, start, length, and colours of their prefixes."""
    bars = page.js(
        "const m = strata.model; return [...m.start.keys()].map((i) => "
        "[m.key(m.task[i]).split('-')[0], m.facts.rows[m.rowOf(i)][0], m.start[i] / 1e6, m.stop[i] / 1e6])"
    )
    assert sorted(bars) == sorted([
        ["load", W, 1, 3], ["load", W, 1, 3.5], ["load", V, 1, 4], ["sum", W, 5, 8], ["boom", V, 4, 6],
    ])  # fmt: skip
    assert colors_of(page) > 1000


def test_hovering_tells_about_an_attempt(page: Browser) -> None:
    """Key, prefix, worker, thread, phases, bytes and inputs."""
    over(page, bar_of(page, "sum")).perform()
    tip = page.text("#tip")
    for part in (
        "sum-1",
        "prefix: sum",
        f"worker: w, {W}",
        "thread: 1",
        "compute 3 s",
        "transfer 1 s",
        "result: 8 B",
        "inputs: 3",
    ):
        assert part in tip
    ActionChains(page.driver).move_to_element(page.driver.find_element(By.ID, "search")).perform()
    assert page.js("return document.getElementById('tip').hidden")


def test_clicking_shows_the_story_and_the_lineage(page: Browser) -> None:
    """The panel of a task lists its dependencies, which are marked on the canvas and are links."""
    over(page, bar_of(page, "sum")).click().perform()
    assert "Depends on: 3" in page.text("#task")
    assert "dask-strata story" in page.text("#task")
    marks = page.js("return [...strata.model.mark]")
    assert sorted(marks) == [0, 1, 2, 2, 2]
    page.js("document.querySelector('#task button').click()")
    panel = page.text("#task")
    assert "Needed by: 1" in panel
    assert "Files: 1" in panel
    assert "reads /data/a.root" in panel
    assert "dimuon, Events, entries 0 to 1,500" in panel
    assert "1,500 events" in panel
    assert "elsewhere" in panel
    assert "pid 71" in panel
    assert "dask-strata lineage" in panel
    assert sorted(page.js("return [...strata.model.mark]")) == [0, 0, 0, 1, 3]


def test_search_finds_keys(page: Browser) -> None:
    """Search finds parts of keys; a single result is selected."""
    box = page.driver.find_element(By.ID, "search")
    box.send_keys("LOAD-0123456789abcdef")
    assert "3 keys found" in page.text("#found")
    box.clear()
    box.send_keys("boom")
    assert "ValueError('no')" in page.text("#task")


def test_filters_and_tables_choose_what_is_drawn(page: Browser) -> None:
    """By prefix, worker and state, from the tools and from a table."""
    assert colors_of(page) > 1000
    page.js(
        "const s = document.getElementById('f-state'); s.value = 'erred'; s.dispatchEvent(new Event('change'))"
    )
    assert "1 of 5" in page.text("#status")
    assert colors_of(page) == 0
    page.js("document.getElementById('clear').click()")
    page.js("document.querySelector('#prefixes [data-value=load]').click()")
    assert "3 of 5" in page.text("#status")
    page.js(
        f"const s = document.getElementById('f-worker'); s.value = '{V}'; s.dispatchEvent(new Event('change'))"
    )
    assert "1 of 5" in page.text("#status")


def test_several_clients_have_a_filter(browser: Browser, tmp_path: Path, page: Browser) -> None:
    """One client has none; of two, each shows its own attempts."""
    hidden = "return document.getElementById('f-client').parentElement.hidden"
    assert page.js(hidden)
    folder = pipeline(tmp_path / "shared")
    scheduler = Process(folder, "scheduler-2", address="tcp://s:1")
    scheduler.write(
        "submissions",
        [
            {"submission": s, "client": f"Client-{s}", "time": T0 + SECOND // 2}
            for s in ("one", "two")
        ],
    )
    scheduler.write(
        "graph_tasks",
        [
            {"key": key, "prefix": key.split("-")[0], "submission": submission}
            for key, submission in (("sum-1", "one"), ("boom-1", "two"))
        ],
    )
    scheduler.end()
    browser.show(folder)
    assert not browser.js(hidden)
    names = "return [...document.getElementById('f-client').options].map((o) => o.value)"
    assert browser.js(names) == ["", "Client-one", "Client-two"]
    browser.js(
        "const s = document.getElementById('f-client'); s.value = 'Client-two'; s.dispatchEvent(new Event('change'))"
    )
    assert "1 of 5" in browser.text("#status")
    assert browser.errors() == []


def test_tables_sort_by_value(page: Browser) -> None:
    """A click on a column's head sorts by its numbers, largest first."""
    first = "return document.querySelector('#prefixes tbody tr').innerText"
    heads = page.driver.find_elements(By.CSS_SELECTOR, "#prefixes th button.sort")
    head = next(h for h in heads if h.text.startswith("tasks"))
    page.js("arguments[0].click()", head)
    assert "load" in page.js(first)
    page.js("arguments[0].click()", head)
    assert "load" not in page.js(first)


def test_the_keyboard_is_enough(page: Browser) -> None:
    """Tab focuses the canvas; keys move, zoom, select the next attempt, and clear the selection."""
    page.driver.find_element(By.ID, "save-svg").send_keys(Keys.TAB)
    assert page.js("return document.activeElement.id") in {"canvas", "canvas-box"}
    canvas = page.driver.find_element(By.ID, "canvas")
    view = "return [strata.timeline.view.a, strata.timeline.view.b]"
    whole = page.js(view)
    canvas.send_keys("+")
    a, b = page.js(view)
    assert b - a == pytest.approx(0.6 * (whole[1] - whole[0]))
    canvas.send_keys(Keys.ARROW_RIGHT)
    assert page.js(view)[0] > a
    canvas.send_keys("-")
    canvas.send_keys("0")
    assert page.js(view) == pytest.approx(whole, abs=0.02 * whole[1])
    canvas.send_keys("n")
    first = page.text("#task h3")
    canvas.send_keys("n")
    assert page.text("#task h3") != first
    canvas.send_keys("p")
    assert page.text("#task h3") == first
    canvas.send_keys(Keys.ENTER)
    assert page.js("return document.activeElement.id") == "task"
    canvas.send_keys(Keys.ESCAPE)
    assert page.js("return document.getElementById('task').hidden")


def test_dragging_moves_and_brushes(page: Browser) -> None:
    """Shift and drag chooses a range, drag moves it, and the overview does the same."""
    canvas = page.driver.find_element(By.ID, "canvas")
    view = "return [strata.timeline.view.a / 1e6, strata.timeline.view.b / 1e6]"
    page.js("document.getElementById('canvas').scrollIntoView({block: 'center'})")
    chain = ActionChains(page.driver).move_to_element(canvas).key_down(Keys.SHIFT).click_and_hold()
    chain.move_by_offset(200, 0).release().key_up(Keys.SHIFT).perform()
    a, b = page.js(view)
    assert 1 < b - a < 3
    ActionChains(page.driver).move_to_element(canvas).click_and_hold().move_by_offset(
        -100, 0
    ).release().perform()
    assert page.js(view)[0] > a
    overview = page.driver.find_element(By.ID, "overview")
    ActionChains(page.driver).move_to_element(overview).click_and_hold().move_by_offset(
        100, 0
    ).release().perform()
    assert page.js(view)[1] - page.js(view)[0] < 1.5


@pytest.mark.parametrize("dark", [False, True])
def test_it_is_for_everyone(page: Browser, dark: bool) -> None:
    """Contrast, labels and structure pass axe-core, in light and dark, with a task chosen."""
    page.dark(on=dark)
    page.js(
        "strata.choose(0); document.querySelectorAll('details').forEach((d) => { d.open = true })"
    )
    assert page.violations() == []


HOSTILE = (
    "<script>window.ran = 1</script>", "</script><script>window.ran = 2</script>", "<img src=x onerror='window.ran=3'>",
    '"><svg onload=window.ran=4>', "' onmouseover='window.ran=5", "{{ 7*7 }}", "\u202egpj.exe\u2066", "<!--<script>", "]]>",
    "javascript:window.ran=6", "\x00\x01\x02", "a\nb\\n", "&lt;b&gt;", "\ud800", "Ünïcode 漢字 🎉",
)  # fmt: skip


def test_nothing_that_came_as_data_runs(browser: Browser, tmp_path: Path) -> None:
    """Keys, exceptions, paths, script, annotations and names are shown as text, with escapes."""
    folder = new_run(tmp_path / "r")
    scheduler = Process(folder, "scheduler-1", address=HOSTILE[0])
    hostile = [h for h in HOSTILE if h != "\ud800"]
    rows = []
    for n, text in enumerate(hostile):
        key = f"{text}-{n}"
        rows += moves(key, (1, "released", "waiting"), (1 + n / 10, "waiting", "processing"), (3, "processing", "erred"),
                      worker=text, thread=n, exception=text, traceback=text, typename=text, metadata=text,
                      startstops=intervals(("compute", 1 + n / 10, 3)))  # fmt: skip
    scheduler.write(
        "worker_events",
        [{"time": T0, "worker": t, "name": t, "action": "add", "reason": t} for t in hostile],
    )
    scheduler.write(
        "worker_events",
        [
            {"time": T0 + 5 * SECOND, "worker": t, "name": t, "action": "remove", "reason": t}
            for t in hostile
        ],
    )
    scheduler.write("scheduler_transitions", sorted(rows, key=lambda r: r["time"]))
    scheduler.write(
        "submissions",
        [{"submission": t, "time": T0, "client": t, "code": t, "span": t} for t in hostile],
    )
    scheduler.write(
        "graph_tasks",
        [
            {
                "submission": t,
                "key": f"{t}-{n}",
                "prefix": t,
                "group": t,
                "function": t,
                "annotations": t,
            }
            for n, t in enumerate(hostile)
        ],
    )
    scheduler.write(
        "claimed_inputs",
        [{"key": f"{t}-{n}", "uri": t, "dataset": t} for n, t in enumerate(hostile)],
    )
    scheduler.write("config", [{"name": t, "value": t, "source": t} for t in hostile])
    scheduler.write("job", [{"name": t, "value": t, "source": t} for t in hostile])
    scheduler.write("losses", [{"time": T0, "what": t, "count": 1, "reason": t} for t in hostile])
    scheduler.end()
    client = Process(folder, "client-1")
    client.write("script", [{"name": t, "value": t} for t in hostile])
    client.end()
    html = browser.show(folder)
    assert browser.errors() == []
    browser.js("for (let i = 0; i < strata.model.n; i++) strata.choose(i)")
    browser.js("document.querySelectorAll('details').forEach((d) => { d.open = true });"
               "document.querySelectorAll('button[data-filter]').forEach((b) => b.click())")  # fmt: skip
    assert browser.js("return window.ran === undefined")
    assert browser.js(
        "return [document.scripts.length, document.images.length, document.querySelectorAll('svg[onload]').length]"
    ) == [8, 0, 0]
    assert HOSTILE[0] in browser.text("body")
    assert "\u202e" not in html
    assert "\\u202e" in browser.text("body")
    assert len(re.findall("<script", html)) == 8
    assert browser.errors() == []


def test_its_policy_lets_nothing_else_run(page: Browser) -> None:
    """A script that is inserted into the page neither runs nor connects to a server."""
    page.js("const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s);"
            "const i = new Image(); i.src = 'http://127.0.0.1:1/x.png'; document.body.append(i)")  # fmt: skip
    assert page.js("return window.ran === undefined")
    assert any("Content Security Policy" in message for message in page.errors())


def test_without_scripts_verdict_and_tables_are_there(browser: Browser, tmp_path: Path) -> None:
    """Without scripts, the HTML has the verdict, the tables and a note about the timeline."""
    browser.show(pipeline(tmp_path / "r"))
    browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.driver.get((tmp_path / "r.html").as_uri())
        body = browser.driver.find_element(By.TAG_NAME, "body").text
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert "1 task failed." in body
    assert "The timeline needs JavaScript" in body
    assert "load" in body


def odd_runs(folder: Path) -> Iterator[tuple[str, Path, int]]:
    """Create unusual runs: name, folder, number of bars."""
    yield "empty", new_run(folder / "empty"), 0

    cut = new_run(folder / "cut")
    scheduler = Process(cut, "scheduler-1", address="tcp://s:1")
    scheduler.write("scheduler_transitions", life("a-1", 1, 2, W) + life("b-1", 2, 9, W)[:2])
    scheduler.sink.close()
    yield "cut", cut, 2

    rows = (
        coupler.worker("('x', 0)", "ready", "executing", coupler.T0),
        coupler.worker("('x', 0)", "executing", "memory", coupler.T0 + 2),
    )
    files = coupler.write(folder / "csv", {"worker_transition": rows})
    yield "imported", import_files(find_files(files), folder / "runs", name="csv").path, 1

    one = new_run(folder / "one")
    scheduler = Process(one, "scheduler-1", address="tcp://s:1")
    scheduler.write("scheduler_transitions", life("a-1", 1, 2, W))
    scheduler.end()
    yield "one", one, 1

    day = new_run(folder / "day")
    scheduler = Process(day, "scheduler-1", address="tcp://s:1")
    short = [r for n in range(5) for r in life(f"b-{n}", 2 + n * 1e-5, 2 + n * 1e-5 + 1e-6, W)]
    scheduler.write(
        "scheduler_transitions", sorted(life("a-1", 1, 86401, V) + short, key=lambda r: r["time"])
    )
    scheduler.end(at=T0 + 86402 * SECOND)
    yield "day", day, 6


def test_odd_runs_have_a_page(browser: Browser, tmp_path: Path) -> None:
    """Pages of runs that are empty, killed, imported, of one task, or of a day and microseconds."""
    for name, folder, bars in odd_runs(tmp_path):
        browser.show(folder)
        assert browser.errors() == [], name
        assert browser.js("return strata.model.n") == bars, name
        assert browser.js("return document.getElementById('timeline-app').hidden") == (bars == 0), (
            name
        )
        assert browser.text("#verdict p"), name
        assert browser.violations() == [], name
    lengths = browser.js(
        "return [...strata.model.stop].map((s, i) => s - strata.model.start[i]).sort((a, b) => a - b)"
    )
    assert lengths[0] <= 2
    assert lengths[-1] == pytest.approx(86400e6)
    browser.js("const t = strata.timeline; t.see(1.99999e6, 2.0001e6)")
    over(
        browser,
        int(
            browser.js(
                "return [...strata.model.task].findIndex((t) => strata.model.key(t) === 'b-3')"
            )
        ),
    ).perform()
    assert "b-3" in browser.text("#tip")


def test_what_is_left_out_is_said(browser: Browser, tmp_path: Path) -> None:
    """Above its limits the page leaves out edges, keys and bars, counts them, and still works."""
    folder = new_run(tmp_path / "r")
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1")
    rows = [r for n in range(200) for r in life(f"a-{n}", 1 + n / 100, 1.009 + n / 100, W)]
    scheduler.write("scheduler_transitions", sorted(rows, key=lambda r: r["time"]))
    scheduler.end()
    browser.show(folder, Options(Limits(edges=100)))
    assert "Dependencies of single tasks are left out above 100" in browser.text("#timeline-note")
    assert browser.js("return [strata.model.key(0), strata.model.needs]") == ["a-0", None]
    browser.show(folder, Options(Limits(edges=100, exact=100, text=100)))
    note = browser.text("#timeline-note")
    assert "Of single tasks, sizes of results, CPU times, bytes read, CPU times of other" in note
    browser.js("strata.choose(0)")
    assert browser.text("#task").count("left out of a large page") == 4
    browser.show(folder, Options(Limits(edges=100, keys=100, bars=50)))
    note = browser.text("#timeline-note")
    assert "200 attempts are drawn as" in note
    assert "Keys of single tasks are left out" in note
    assert 2 <= browser.js("return strata.model.n") <= 120
    browser.js("strata.choose(0)")
    assert browser.errors() == []


def test_the_verdict_has_the_numbers_of_the_command_line(
    browser: Browser, tmp_path: Path, strata
) -> None:
    """The numbers of the verdict are those of `show`."""
    folder = small_run(tmp_path / "r")
    shown = strata("show", folder, check=True).stdout
    browser.show(folder)
    assert "2 tasks  10 s  1 worker × 2 threads" in shown
    assert "2 tasks · 10 s · 1 worker × 2 threads" in browser.text("#verdict")
    assert open_run(folder).check().sentence in browser.text("#verdict")
