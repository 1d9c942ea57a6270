"""The charts of a page in a real browser: each drawn number is that of the plan of the run."""

from __future__ import annotations

import re
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.common.by import By

from dask_strata.report.words import duration, size
from tests.support.browsing import CHROMIUM, DRIVER, Browser, chromium
from tests.support.planned_runs import Plan, PlannedTask, fused, planned, write
from tests.support.synthetic import small_run

if not (CHROMIUM and DRIVER):
    warnings.warn(
        "chromium is absent: THE CHARTS ARE NOT TESTED (apt-get install chromium chromium-driver)",
        stacklevel=1,
    )
    pytest.skip(
        "chromium or chromedriver is absent: THE CHARTS ARE NOT TESTED", allow_module_level=True
    )


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all pages."""
    yield from chromium()


@pytest.fixture(scope="module")
def plan() -> Plan:
    """The plan of a run."""
    return planned(31)


@pytest.fixture(scope="module")
def file(browser: Browser, plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the plan."""
    parts = fused(["m.read", "m.clean"], ["read-1", "clean-2"], ["read", "clean"])
    folder = write(tmp_path_factory.mktemp("charts") / "r", plan, p1=parts)
    browser.show(folder)
    return folder.with_suffix(".html")


@pytest.fixture
def page(browser: Browser, file: Path) -> Browser:
    """The page, opened anew, without errors so far."""
    browser.dark(on=False)
    browser.open(file)
    assert browser.errors() == []
    return browser


def select(page: Browser, prefix: str) -> None:
    """Select the prefix whose durations are drawn."""
    page.js(
        "const s = document.getElementById('durations-of');"
        "s.value = [...s.options].findIndex((o) => o.text === arguments[0]);"
        "s.dispatchEvent(new Event('change'))",
        prefix,
    )


def seconds_of(plan: Plan, prefix: str, worker: str | None = None) -> list[float]:
    """Return the durations of tasks."""
    return [
        (t.stop - t.start) / 1e3
        for t in plan.tasks
        if t.prefix == prefix and worker in {None, t.worker}
    ]


def test_the_histogram_has_the_attempts_of_each_bin(page: Browser, plan: Plan) -> None:
    """Counts, heights and edges of the bars, for each prefix that is selected."""
    for prefix in sorted({task.prefix for task in plan.tasks}):
        select(page, prefix)
        bars = page.js(
            "return [...document.querySelectorAll('#durations-chart .bin')].map((r) =>"
            " [Number(r.dataset.n), Number(r.getAttribute('height')), r.textContent])"
        )
        seconds = np.array(seconds_of(plan, prefix)) * (1 + 1e-9)
        counts, edges = np.histogram(seconds, 10.0 ** (np.arange(-15, 40) / 5))
        expected = [
            (n, f"{duration(a)} to {duration(b)}: {n} attempt{'' if n == 1 else 's'}")
            for n, a, b in zip(counts.tolist(), edges, edges[1:], strict=False)
            if n
        ]
        assert [(n, text) for n, _, text in bars] == expected
        assert [h for _, h, _ in bars] == pytest.approx(
            [130 * n / counts.max() for n in counts if n]
        )


def test_boxes_are_at_their_quartiles(page: Browser, plan: Plan) -> None:
    """Boxes, lines and medians of all workers and of each, on the logarithmic scale."""
    select(page, "p2")
    boxes = page.js(
        "return [...document.querySelectorAll('#durations-chart .box')].map((g) => {"
        " const at = (s, end) => { const r = g.querySelector(s);"
        " return Number(r.getAttribute('x')) + (end ? Number(r.getAttribute('width')) : 0); };"
        " return [g.querySelector('text').textContent, at('.axis-line'), at('.quartiles'),"
        " at('.median') + 1, at('.quartiles', true), at('.axis-line', true)]; })"
    )
    assert boxes[0][0] == "all workers"
    assert {name for name, *_ in boxes[1:]} == {str(n) for n in range(len(plan.workers))}
    lines = page.js(
        "return [...document.querySelectorAll('#durations-chart .grid-line')].map((r) =>"
        " [Number(r.dataset.seconds), Number(r.getAttribute('x'))])"
    )
    assert len(lines) > 1
    seconds, at = np.array(lines).T
    scale, left = np.polyfit(np.log10(seconds), at, 1)
    for name, *drawn in boxes:
        worker = None if name == "all workers" else plan.workers[int(name)]
        true = np.log10(np.quantile(seconds_of(plan, "p2", worker), [0, 0.25, 0.5, 0.75, 1]))
        assert drawn == pytest.approx((left + true * scale).tolist(), abs=0.6)
    page.js("document.querySelectorAll('#prefixes details').forEach((d) => { d.open = true })")
    table = page.text("#durations-tables table")
    assert duration(float(np.median(seconds_of(plan, "p2")))) in table


def test_tables_of_charts_can_be_saved(page: Browser, plan: Plan) -> None:
    """The CSV of a chart's table has the numbers behind its texts."""
    select(page, "p2")
    csv = page.js("return strata.csv(document.querySelector('#durations-tables table'))")
    rows = [line.split(",") for line in csv.splitlines()]
    assert rows[0][:3] == ["worker", "attempts", "shortest"]
    seconds = seconds_of(plan, "p2")
    assert [float(cell) for cell in rows[1][1:]] == pytest.approx(
        [len(seconds), *np.quantile(seconds, [0, 0.25, 0.5, 0.75, 1])], rel=1e-5
    )


def test_activity_is_drawn_where_tasks_ran(page: Browser, plan: Plan) -> None:
    """Each prefix has its row, its largest number, and text at the pointer."""
    rows = page.js(
        "return [...document.querySelectorAll('#activity-table tbody tr')].map((r) =>"
        " [r.cells[0].innerText.trim(), r.cells[2].innerText,"
        " r.querySelector('polygon').getAttribute('points')])"
    )
    begin = min(t.start for t in plan.tasks)
    end = max(t.stop for t in plan.tasks)
    assert {name for name, *_ in rows} == {t.prefix for t in plan.tasks}
    for name, most, points in rows:
        own = [t for t in plan.tasks if t.prefix == name]
        assert int(most) == max(sum(a.start <= t.start < a.stop for a in own) for t in own)
        xy = [tuple(map(float, point.split(","))) for point in points.split()]
        n = xy[-1][0]
        busy = {int(x) for x, y in xy if y < 25.9 and x < n}
        low = (min(t.start for t in own) - begin) / (end - begin) * n
        assert min(busy) <= low + 1
    svg = page.driver.find_element(By.CSS_SELECTOR, "#activity-table .lane svg")
    ActionChains(page.driver).move_to_element(svg).perform()
    assert re.fullmatch(r"[0-9.]+ at once\n.* to .* into the run", page.text("#tip"))


PAIRS = (
    "return [...document.querySelectorAll('#heat [data-pair]')].map((r) =>"
    " [r.dataset.pair, Number(r.getAttribute('fill-opacity')), r.textContent])"
)


@pytest.mark.parametrize("by", ["nbytes", "seconds", "n"])
def test_the_heat_map_has_the_transfers(page: Browser, plan: Plan, by: str) -> None:
    """The shade of each pair is its share of the largest; its text has all of its numbers."""
    page.js(f"document.querySelector('input[name=heat][value={by}]').click()")
    true: dict[str, list[float]] = defaultdict(lambda: [0, 0, 0])
    known = set()
    for source, to, start, stop, nbytes, _ in plan.transfers:
        column = plan.workers.index(to) if to else len(plan.workers)
        pair = f"{plan.workers.index(source)} {column}"
        true[pair] = [
            x + y for x, y in zip(true[pair], (nbytes or 0, (stop - start) / 1e3, 1), strict=True)
        ]
        known |= {pair} if nbytes is not None else set()
    place = ["nbytes", "seconds", "n"].index(by)
    largest = max(numbers[place] for numbers in true.values())
    drawn = {pair: (opacity, text) for pair, opacity, text in page.js(PAIRS)}
    assert set(drawn) == set(true)
    for pair, numbers in true.items():
        opacity, text = drawn[pair]
        if by == "nbytes" and pair not in known:
            assert opacity == 0
        else:
            assert opacity == pytest.approx(0.1 + 0.9 * numbers[place] / largest, abs=6e-4)
        row, column = pair.split()
        end = "a client" if int(column) == len(plan.workers) else column
        n = int(numbers[2])
        shown = size(numbers[0]) if pair in known else "–"
        assert text.startswith(
            f"{row} → {end}: {n} transfer{'' if n == 1 else 's'} of {3 * n} results, "
            f"{shown} in {duration(numbers[1])}, "
        )


def test_the_heat_map_answers_to_the_keyboard_and_the_pointer(page: Browser) -> None:
    """Arrow keys move between pairs; the pair is read out."""
    svg = page.driver.find_element(By.ID, "heat")
    svg.send_keys(Keys.ARROW_DOWN)
    assert page.text("#heat-value").startswith("0 → 0: no transfer on record")
    svg.send_keys(Keys.ARROW_DOWN, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert page.text("#heat-value").startswith("1 → 2: ")
    cell = page.driver.find_element(By.CSS_SELECTOR, "#heat [data-pair]")
    page.js("arguments[0].scrollIntoView({block: 'center'})", cell)
    ActionChains(page.driver).move_to_element(cell).perform()
    assert page.text("#tip") == page.text("#heat-value") == page.js(PAIRS)[0][2]


def edges_of(page: Browser) -> dict[tuple[str, str], list[int]]:
    """Return the number and bytes of the drawn edges, by the names of their ends."""
    found = page.js(
        "const names = strata.graph.g.nodes.map((n) => n.name);"
        "return [...document.querySelectorAll('#graph-svg .edge')].map((p) =>"
        " [names[p.dataset.from], names[p.dataset.to], Number(p.dataset.n), p.dataset.bytes])"
    )
    return {(a, b): [n, int(nbytes)] for a, b, n, nbytes in found}


def true_edges(plan: Plan, name: dict[str, str]) -> dict[tuple[str, str], list[int]]:
    """Return the same from the plan, by the names of the nodes of the tasks."""
    sizes = {task.key: task.nbytes or 0 for task in plan.tasks}
    found: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for key, dependency in plan.edges:
        if name[dependency] != name[key]:
            sum_ = found[name[dependency], name[key]]
            sum_[0] += 1
            sum_[1] += sizes[dependency]
    return dict(found)


def node(page: Browser, name: str) -> str:
    """Return the selector of the drawn node of a name."""
    number = page.js(
        "return strata.graph.shown().shown.find((n) => n.name === arguments[0]).id", name
    )
    return f"#graph-svg [data-node='{number}']"


def press(page: Browser, name: str, *keys: str) -> None:
    """Focus the drawn node of a name and press keys."""
    page.js("document.querySelector(arguments[0]).focus({preventScroll: true})", node(page, name))
    ActionChains(page.driver).send_keys(*keys).perform()


def rounded(edges: dict[tuple[str, str], list[int]]) -> dict[tuple[str, str], list[float]]:
    """Return edges with bytes as the page's script has them: floats."""
    return {ends: [n, float(nbytes)] for ends, (n, nbytes) in edges.items()}


def test_the_graph_has_the_edges_of_the_plan_at_each_level(page: Browser, plan: Plan) -> None:
    """By prefix, with one prefix as groups, with a small or large group as tasks; and back."""
    name = {task.key: task.prefix for task in plan.tasks}
    assert rounded(edges_of(page)) == rounded(true_edges(plan, name))
    press(page, "p4", "+")
    name |= {task.key: task.group for task in plan.tasks if task.prefix == "p4"}
    assert rounded(edges_of(page)) == rounded(true_edges(plan, name))
    group = next(task.group for task in plan.tasks if task.prefix == "p4")
    press(page, group, "+")
    name |= {task.key: task.key for task in plan.tasks if task.group == group}
    assert rounded(edges_of(page)) == rounded(true_edges(plan, name))
    key = next(task.key for task in plan.tasks if task.group == group)
    press(page, key, "-")
    press(page, group, "-")
    name = {task.key: task.prefix for task in plan.tasks}
    assert rounded(edges_of(page)) == rounded(true_edges(plan, name))
    # A prefix of one large group: its failed and longest tasks, and a node for the others.
    press(page, "p0", "+")
    own = sorted(
        (task for task in plan.tasks if task.prefix == "p0"),
        key=lambda t: (not t.erred, t.start - t.stop),
    )
    others = {task.key: f"{len(own) - 23} other tasks" for task in own[23:]}
    assert len(others) > 1
    shown = name | {task.key: task.key for task in own} | others
    assert rounded(edges_of(page)) == rounded(true_edges(plan, shown))
    press(page, f"{len(own) - 23} other tasks", Keys.ENTER)
    assert f"{len(others)} other tasks" in page.text("#graph-node h3")
    press(page, "p4", "+")
    page.js("document.getElementById('graph-collapse').click()")
    assert rounded(edges_of(page)) == rounded(true_edges(plan, name))


def test_nodes_do_not_overlap_and_have_their_numbers(page: Browser, plan: Plan) -> None:
    """Boxes of an expanded graph are apart; a label has tasks, compute and bytes."""
    press(page, "p4", "+")
    press(page, "p1", "+")
    boxes = page.js(
        "return [...document.querySelectorAll('#graph-svg .node-box')].map((r) => {"
        " const b = r.getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom]; })"
    )
    assert len(boxes) > 8
    for i, (a, b, c, d) in enumerate(boxes):
        for e, f, g, h in boxes[:i]:
            assert a >= g or e >= c or b >= h or f >= d
    own = [task for task in plan.tasks if task.prefix == "p2"]
    label = page.js(
        "return document.querySelector(arguments[0]).getAttribute('aria-label')", node(page, "p2")
    )
    sizes = [t.nbytes for t in own if t.nbytes is not None]
    assert f"p2: {len(own)} tasks" in label
    assert f"{duration(sum(t.stop - t.start for t in own) / 1e3)} of compute" in label
    assert f"{size(sum(sizes))} of results" in label
    failed = sum(t.erred for t in own)
    assert (f"{failed} failed" in label) == bool(failed)


def test_a_chain_goes_from_left_to_right(browser: Browser, tmp_path: Path) -> None:
    """Without circles each arrow leads to the right; a long one passes between the nodes."""
    plan = Plan(["tcp://w:1"])
    for i, prefix in enumerate("abcdef"):
        key = f"('{prefix}-{i:032x}', 0)"
        plan.tasks.append(
            PlannedTask(
                key, prefix, key[2:35], "tcp://w:1", 1000 * i + 900, 1000 * i + 1500, 8, erred=False
            )
        )
    keys = [task.key for task in plan.tasks]
    plan.edges = [*zip(keys[1:], keys, strict=False), (keys[5], keys[0]), (keys[3], keys[1])]
    browser.show(write(tmp_path / "chain", plan))
    assert rounded(edges_of(browser)) == rounded(
        true_edges(plan, {t.key: t.prefix for t in plan.tasks})
    )
    left = browser.js(
        "return Object.fromEntries([...document.querySelectorAll('#graph-svg .node')].map((n) =>"
        " [n.dataset.node, n.getBoundingClientRect().left]))"
    )
    ends = browser.js(
        "return [...document.querySelectorAll('#graph-svg .edge')].map((e) =>"
        " [e.dataset.from, e.dataset.to])"
    )
    assert all(left[a] < left[b] for a, b in ends)
    # The long edge has points in each layer, and none of them is within a node.
    inside = browser.js(
        "const boxes = [...document.querySelectorAll('#graph-svg .node-box')]"
        ".map((r) => r.getBoundingClientRect());"
        "let n = 0; for (const e of document.querySelectorAll('#graph-svg .edge')) {"
        " const at = e.getScreenCTM(), length = e.getTotalLength();"
        " for (let s = 6; s < length - 6; s += 4) {"
        " const p = e.getPointAtLength(s).matrixTransform(at);"
        " if (boxes.some((b) => p.x > b.left + 2 && p.x < b.right - 2 && p.y > b.top"
        " && p.y < b.bottom)) n++; } }"
        " return n"
    )
    assert inside == 0


def test_a_node_shows_what_its_tasks_contain(page: Browser, plan: Plan) -> None:
    """Functions and fused layers that are on record, edges as tables, a way to the timeline."""
    press(page, "p1", Keys.ENTER)
    panel = page.text("#graph-node")
    n = sum(task.prefix == "p1" for task in plan.tasks)
    assert f"{n} tasks call" in panel
    assert "m.read → m.clean" in panel
    assert "read-1, clean-2" in panel
    assert page.js("return document.activeElement.id") == "graph-node"
    edges = true_edges(plan, {task.key: task.prefix for task in plan.tasks})
    numbers, nbytes = edges["p0", "p1"]
    assert re.search(rf"p0\s+{numbers}\s+{re.escape(size(nbytes))}", panel)
    press(page, "p0", Keys.ENTER)
    assert "nothing" in page.text("#graph-node")
    page.js("document.querySelector('#graph-node button[data-filter]').click()")
    assert page.js("return document.getElementById('f-prefix').value") == "p0"
    assert "m.read → m.clean" in page.text("#graph table.sortable")
    press(page, "p0", Keys.ESCAPE)
    assert page.js("return document.getElementById('graph-node').hidden")
    press(page, "p1", "+")
    group = next(task.group for task in plan.tasks if task.prefix == "p1")
    press(page, group, Keys.ENTER)
    assert f"of its prefix, {n} tasks call" in page.text("#graph-node")


def test_unrecorded_contents_are_a_dash(browser: Browser, tmp_path: Path) -> None:
    """A run without definitions of tasks does not claim that nothing was fused."""
    browser.show(small_run(tmp_path / "r"))
    assert "–: what tasks contain is not on record" in browser.text("#graph")
    browser.js("document.querySelector('#graph-svg .node').dispatchEvent(new MouseEvent('click'))")
    assert re.search(r"contains\s+–", browser.text("#graph-node"))
    assert not browser.js("return document.getElementById('heat')")
    assert browser.errors() == []


@pytest.mark.parametrize(("dark", "width"), [(False, 390), (True, 1300)])
def test_charts_are_for_everyone(page: Browser, *, dark: bool, width: int) -> None:
    """Expanded charts pass axe-core in both themes; a narrow screen does not scroll sideways."""
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        page.dark(on=dark)
        press(page, "p4", "+")
        press(page, "p1", Keys.ENTER)
        page.js("document.querySelectorAll('details').forEach((d) => { d.open = true })")
        assert page.violations() == []
        for name in ("prefixes", "graph", "transfers"):
            [most] = page.js(
                "return [Math.max(...[...document.querySelectorAll(`#${arguments[0]} > *`)]"
                ".map((e) => e.getBoundingClientRect().right))]",
                name,
            )
            assert most <= width
    finally:
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_charts_fit_on_paper(page: Browser) -> None:
    """A page that was drawn on a wide screen is printed within the paper's width."""
    page.until("return document.querySelector('#activity-table .axis svg text') !== null")
    try:
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
        metrics = {"width": 700, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        right = page.js(
            "return ['#activity-table', '#durations-chart svg', '#heat', '#graph-svg'].map((s) =>"
            " document.querySelector(s).getBoundingClientRect().right)"
        )
        assert max(right) <= 700
    finally:
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_names_are_text(browser: Browser, tmp_path: Path) -> None:
    """Prefixes, groups, workers, functions and layers may have any characters; none is executed."""
    bad = "<img src=x onerror='window.ran=1'>"
    plan = Plan([f"tcp://{bad}:1", "</script><script>window.ran=2</script>"])
    for i in range(4):
        plan.tasks.append(
            PlannedTask(
                f"{bad}{i}",
                f"{bad}{i % 2}",
                f"g{bad}{i}",
                plan.workers[i % 2],
                1000,
                2000,
                8,
                erred=False,
            )
        )
    plan.edges = [(plan.tasks[1].key, plan.tasks[0].key), (plan.tasks[3].key, plan.tasks[2].key)]
    plan.transfers = [(plan.workers[0], plan.workers[1], 1000, 1500, 100, 1)]
    parts = fused([bad, bad], [bad], ["{{ 7*7 }}"])
    browser.show(write(tmp_path / "r", plan, **{f"{bad}0": parts, f"{bad}1": parts}))
    press(browser, f"{bad}0", "+")
    press(browser, f"g{bad}0", Keys.ENTER)
    assert bad in browser.text("#graph-node")
    assert "{{ 7*7 }}" in browser.text("#graph table.sortable")
    assert bad in browser.js("return document.getElementById('durations-of').innerText")
    browser.driver.find_element(By.ID, "heat").send_keys(Keys.ARROW_DOWN, Keys.ARROW_RIGHT)
    assert browser.js("return window.ran") is None
    assert browser.errors() == []
