"""Views of the page in a real browser: folded start-up, permalinks, pictures, CSV, patterns."""

from __future__ import annotations

import base64
import csv
import io
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from selenium.webdriver.common.by import By

from dask_strata import Run, open_run
from dask_strata.report.page.colors import color_of, patterns
from dask_strata.report.page.data import Limits
from dask_strata.report.page.page import Options, make_page
from tests.support.browsing import CHROMIUM, DRIVER, Browser, chromium
from tests.support.synthetic import SECOND, T0, Process, life, moves, new_run

if not (CHROMIUM and DRIVER):
    pytest.skip("chromium or chromedriver is absent", allow_module_level=True)

W, V = "tcp://w:1", "tcp://v:1"

#: Prefixes of one colour of Dask's dashboard.
ALIKE = ("load", "join")

#: A key that HTML, SVG, an address or a spreadsheet could take for something else.
ODD = "=1+1<b>&\"'#t=0-1&key=x%00-é"

FIRST = 3.0


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all pages."""
    yield from chromium()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run whose first task is submitted after 3 s, with a barrier and a rescheduled attempt."""
    folder = new_run(tmp_path_factory.mktemp("views") / "r")
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1")
    scheduler.write(
        "worker_events",
        [{"time": T0, "worker": w, "name": n, "action": "add"} for w, n in ((W, "w"), (V, "v"))],
    )
    rows = [row for n in range(4) for row in life(f"{ALIKE[0]}-{n}", 3.1 + n, 3.9 + n, W)]
    rows += [row for n in range(3) for row in life(f"{ALIKE[1]}-{n}", 3.2 + n, 4 + n, V)]
    rows += life(ODD, 6.5, 7.5, V) + life("shuffle-barrier-0123", 5, 5.01, V)
    again = moves("again-1", (3, "released", "waiting"), (7.1, "waiting", "processing"))
    again += moves("again-1", (8, "processing", "released"), worker=V)
    again[-1]["stimulus_id"] = "reschedule-again-1-1"
    rows += again
    scheduler.write("scheduler_transitions", sorted(rows, key=lambda r: r["time"]))
    scheduler.end()
    for n, (address, name) in enumerate(((W, "w"), (V, "v"))):
        worker = Process(folder, f"worker-{n}", address=address, name=name, nthreads=1, pid=70 + n)
        worker.write(
            "process_samples",
            [{"time": T0 + t * SECOND, "cpu_seconds": t / 2, "read_bytes": 0} for t in range(10)],
        )
        worker.end()
    return open_run(folder)


@pytest.fixture(scope="module")
def file(run: Run) -> Path:
    """The file of its page."""
    file = Path(run.path).with_suffix(".html")
    file.write_text(make_page(run), encoding="utf-8")
    return file


@pytest.fixture
def page(browser: Browser, file: Path) -> Browser:
    """Its page in the browser."""
    browser.driver.get("about:blank")  # otherwise a changed hash would not load the page again
    browser.open(file)
    return browser


def view(page: Browser) -> list[float]:
    """Return the visible range in seconds."""
    return page.js("return [strata.timeline.view.a / 1e6, strata.timeline.view.b / 1e6]")  # type: ignore[no-any-return]


def follow(page: Browser, file: Path, hash_: str) -> None:
    """Open the page at a permalink."""
    page.driver.get("about:blank")
    page.driver.get(f"{file.as_uri()}#{hash_}")
    page.until("return document.body.dataset.ready === 'yes'")


def test_the_timeline_starts_at_the_first_submission(page: Browser, run: Run) -> None:
    """Start-up is folded, and a button shows it; the overview has the same start."""
    [first] = run.rows("select epoch_ns(min(time)) as t from scheduler_transitions")
    assert view(page) == pytest.approx([(first["t"] - T0) / 1e9, 10])
    assert view(page)[0] == pytest.approx(FIRST, abs=0.11)
    button = page.driver.find_element(By.ID, "fold")
    assert button.text == f"Start-up: {round(view(page)[0], 3):g} s"
    assert button.get_attribute("aria-pressed") == "false"
    page.js("strata.timeline.zoom(0.5); strata.timeline.see(-5e6, 2e6)")
    assert view(page)[0] > 2.8, "the folded time is not visible"
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    assert view(page) == pytest.approx([0, 10])
    button.click()
    assert view(page) == pytest.approx([FIRST, 10], abs=0.11)
    page.js("strata.timeline.mark([[1e6, 2e6, '', '']])")
    assert view(page) == pytest.approx([0.9, 2.1])
    page.js("document.getElementById('clear').click()")


def test_a_short_start_up_is_not_folded(browser: Browser, tmp_path: Path) -> None:
    """Time before the first submission is folded only where it is over 1 % of the run."""
    scheduler = Process(new_run(tmp_path / "r"), "scheduler-1", address="tcp://s:1")
    scheduler.write("scheduler_transitions", life("a-1", 0.15, 8, W))
    scheduler.end()
    browser.show(tmp_path / "r")
    assert browser.js("return document.getElementById('fold').hidden")
    assert view(browser) == pytest.approx([0, 10])


def test_search_does_not_move_the_page(page: Browser) -> None:
    """The found keys cover the page in place of moving it; the page is not scrolled."""
    page.js("document.getElementById('timeline').scrollIntoView()")
    place = "return [scrollY, document.getElementById('canvas').getBoundingClientRect().top]"
    before = page.js(place)
    box = page.driver.find_element(By.ID, "search")
    box.send_keys(ALIKE[0])
    assert "4 keys found" in page.text("#found")
    assert page.js(place) == before
    box.send_keys("-2")
    assert "1 key found" in page.text("#found")
    assert page.text("#task h3").startswith(f"{ALIKE[0]}-2")
    assert page.js(place) == before
    box.send_keys("\ue00c")  # Escape
    assert page.js("return document.getElementById('found').hidden")
    assert page.js(place) == before


def test_a_permalink_restores_range_filters_and_task(page: Browser, file: Path) -> None:
    """The address follows the view; opened anew it shows the same range, filters and task."""
    page.js(
        "const s = document.getElementById('f-prefix'); s.value = arguments[0]; s.dispatchEvent(new Event('change'));"
        "const m = strata.model; strata.choose([...m.task].findIndex((t) => m.key(t) === arguments[1]));"
        "strata.timeline.see(4.25e6, 8.5e6); document.getElementById('r-worker').value = '2';"
        "document.getElementById('r-worker').dispatchEvent(new Event('change'))",
        ALIKE[1], ODD,
    )  # fmt: skip
    page.until("return location.hash.includes('t=4.25-8.5') && location.hash.includes('resources')")
    address = page.driver.current_url
    parts = urllib.parse.parse_qs(address.partition("#")[2])
    assert parts["prefix"] == [ALIKE[1]]
    assert parts["key"] == [ODD]
    follow(page, file, address.partition("#")[2])
    assert view(page) == pytest.approx([4.25, 8.5])
    assert page.js("return document.getElementById('f-prefix').value") == ALIKE[1]
    assert page.js("return strata.panel.row") == 2
    assert ODD in page.text("#task h3")
    assert "3 of" in page.text("#status")
    page.js(
        "document.getElementById('clear').click(); strata.timeline.fit(); strata.panel.choose(0)"
    )
    page.until("return location.hash === ''")
    page.js("location.hash = '#t=4-5'")
    page.until("return Math.abs(strata.timeline.view.a - 4e6) < 1")
    page.js("location.hash = '#path'")
    assert view(page) == pytest.approx([4, 5]), "a link to a section leaves the view as it is"


HASHES = (
    "t=", "t=5", "t=5-4", "t=-1e99-1e99", "t=NaN-NaN", "t=0-99999999999999999999", "t=Infinity-Infinity", "t=1-2-3",
    "key=<img src=x onerror=window.ran=1>", "prefix=__proto__&worker=constructor&state=toString&__proto__=1", "key=%", "key=%00%ff&t=%ED%A0%80",
    "prefix=%3Cscript%3Ewindow.ran=1%3C/script%3E", "attempt=1e9&key=again-1", "attempt=-1&key=again-1", "attempt=__proto__&key=again-1",
    "resources=<svg onload=window.ran=1>", "t=1-2&t=<b>", "=&=&&==", "javascript:window.ran=1//=", "key=" + "x" * 30_000,
)  # fmt: skip


def test_hostile_addresses_do_nothing(page: Browser, file: Path) -> None:
    """Parts that the page does not offer are ignored; nothing is executed or inserted."""
    scripts = page.js("return document.querySelectorAll('*').length")
    for hash_ in HASHES:
        page.js(
            "location.hash = arguments[0]; window.dispatchEvent(new HashChangeEvent('hashchange'))",
            hash_,
        )
        a, b = view(page)
        assert -0.2 <= a < b <= 10.2, hash_
    follow(
        page,
        file,
        urllib.parse.quote("key=<img src=x onerror=window.ran=1>&prefix=<script>", safe="=&<>"),
    )
    assert page.js("return window.ran === undefined")
    assert page.js("return document.getElementById('f-prefix').value") == ""
    page.js("document.getElementById('clear').click()")
    assert page.js("return document.querySelectorAll('*').length") == scripts
    assert page.errors() == []


def svg_of(page: Browser) -> ET.Element:
    """Return the picture of the view."""
    return ET.fromstring(page.js("return strata.timeline.svg()"))


SVG = "{http://www.w3.org/2000/svg}"


def test_the_svg_has_the_bars_of_the_record(page: Browser, run: Run) -> None:
    """Rectangles are where SQL has the attempts of the view; texts are escaped."""
    page.js("strata.timeline.show(3e6, 8e6)")
    root = svg_of(page)
    groups = [
        g for g in root.findall(f"{SVG}g") if g.get("transform", "").startswith("translate(8 ")
    ]
    bars = groups[2]  # after the title and the strips
    width = page.js("return document.getElementById('canvas').clientWidth") - 150
    per_second = width / 5
    drawn = [
        (float(r.get("x")) - 150, float(r.get("width")))  # type: ignore[arg-type]
        for r in bars.findall(f"{SVG}rect") if float(r.get("y")) == 0 and r.get("fill", "").upper() == color_of(ALIKE[0])
    ]  # fmt: skip
    rows = run.rows(
        "select epoch_ns(p.start) as a, epoch_ns(p.stop) as b from phases p join attempts using (attempt)"
        f" where action = 'compute' and attempts.worker = '{V}' and prefix = '{ALIKE[1]}' order by 1"
    )
    on_w = [
        (float(r.get("x")) - 150, float(r.get("width")))  # type: ignore[arg-type]
        for r in bars.findall(f"{SVG}rect") if r.get("fill", "").upper() == color_of(ALIKE[1])
    ]  # fmt: skip
    assert drawn
    assert rows
    for row in rows:
        a, b = ((t - T0) / 1e9 - 3 for t in (row["a"], row["b"]))
        inside = [
            (x, w) for x, w in on_w if a * per_second - 1.5 <= x and x + w <= b * per_second + 1.5
        ]
        assert min(x for x, _ in inside) == pytest.approx(a * per_second, abs=1.5)
        assert max(x + w for x, w in inside) == pytest.approx(b * per_second, abs=1.5)
    texts = [t.text for t in root.iter(f"{SVG}text")]
    assert any(t and t.startswith("synthetic: 3 s to 8 s") for t in texts)
    assert "CPU" in texts
    assert not [
        e.tag
        for e in root.iter()
        if e.tag.removeprefix(SVG) not in {"svg", "g", "rect", "text", "path"}
    ]


def test_barriers_and_reschedules_are_labelled(page: Browser, run: Run) -> None:
    """The barrier's label is at its start, that of a rescheduled attempt at its end."""
    page.js("strata.timeline.show(3e6, 9e6)")
    [barrier] = run.rows(
        "select epoch_ns(phases.start) as t from phases join attempts using (attempt)"
        " where attempts.key = 'shuffle-barrier-0123' and action = 'compute'"
    )
    [again] = run.rows("select epoch_ns(stop) as t, outcome from attempts where key = 'again-1'")
    assert again["outcome"] == "rescheduled"
    places = {t.text: float(t.get("x", "nan")) for t in svg_of(page).iter(f"{SVG}text")}
    for text, row in (("P2P barrier", barrier), ("rescheduled", again)):
        expected = page.js("return strata.timeline.xAt(arguments[0])", (row["t"] - T0) / 1e3)
        assert places[text] == pytest.approx(expected + 5, abs=1)
    page.js(
        "const s = document.getElementById('f-prefix'); s.value = arguments[0]; s.dispatchEvent(new Event('change'))",
        ALIKE[0],
    )
    texts = {t.text for t in svg_of(page).iter(f"{SVG}text")}
    assert not texts & {"P2P barrier", "rescheduled"}, "filtered attempts have no label"


def test_similar_colours_have_patterns(page: Browser) -> None:
    """Two prefixes of one colour differ: the bars of one are striped, and its key too."""
    assert color_of(ALIKE[0]) == color_of(ALIKE[1])
    assert len(set(patterns(ALIKE))) == 2
    colors = page.js(
        "const c = document.getElementById('canvas'), m = strata.model, t = strata.timeline; t.fit(); t.draw();"
        "return arguments[0].map((key) => { const i = [...m.task].findIndex((t) => m.key(t) === key);"
        " const d = c.getContext('2d').getImageData(t.xAt(m.start[i]) + 2, t.yAt(i) - 2, t.xAt(m.stop[i]) - t.xAt(m.start[i]) - 4, 1).data;"
        " return new Set(Array.from({length: d.length / 4}, (_, k) => d.slice(4 * k, 4 * k + 3).join())).size })",
        [f"{ALIKE[0]}-1", f"{ALIKE[1]}-1"],
    )  # fmt: skip
    assert sorted(colors) == [1, 2]
    swatches = page.js(
        "return [...document.querySelectorAll('#legend li')].map((li) => [li.textContent.trim(), li.querySelectorAll('rect').length])"
    )
    striped = [dict(swatches)[prefix] > 1 for prefix in ALIKE]
    assert striped == [n == 2 for n in colors]


def test_patterns_tell_neighbouring_colours_apart() -> None:
    """Prefixes whose colours are equal or neighbours in the palette differ, up to six of them."""
    many = [f"p{n}" for n in range(40)]
    found = dict(zip(many, patterns(many), strict=True))
    by_color: dict[str, list[int]] = {}
    for prefix in many:
        by_color.setdefault(color_of(prefix), []).append(found[prefix])
    for used in by_color.values():
        assert len(set(used)) == min(len(used), 6)


def test_shortened_hashes_are_found(browser: Browser, tmp_path: Path) -> None:
    """A search for a whole key finds it by its first digits; the page has a query for the rest."""
    keys = [f"map-{n * 7919:06x}{'0123456789abcdef' * 2}"[:36] for n in range(1, 9)]
    scheduler = Process(new_run(tmp_path / "r"), "scheduler-1", address="tcp://s:1")
    rows = [row for n, key in enumerate(keys) for row in life(key, 1 + n, 1.5 + n, W)]
    scheduler.write("scheduler_transitions", sorted(rows, key=lambda r: r["time"]))
    scheduler.end()
    browser.show(tmp_path / "r", Options(Limits(tokens=30)))
    assert "Keys have the first 6 of the 32 digits of their hashes" in browser.text(
        "#timeline-note"
    )
    browser.driver.find_element(By.ID, "search").send_keys(keys[3])
    assert browser.text("#task h3").startswith(f"{keys[3][:10]}…")
    command = browser.text("#task code")
    assert command.startswith("dask-strata query ")
    [row] = open_run(tmp_path / "r").rows(command[command.index("select") :].rstrip("'\""))
    assert row["key"] == keys[3]
    assert browser.errors() == []


def test_a_picture_of_many_bars_is_that_of_each(page: Browser) -> None:
    """The picture from which views of many bars are made has colours where bars are."""
    page.js("strata.timeline.fit()")
    script = (
        "const t = strata.timeline, w = 850, rows = strata.model.facts.rows.length, [a, b] = [new Uint32Array(w * rows), new Uint32Array(w * rows)];"
        "t.coarse(t.view, w, a); t.exact(t.view, w, b);"
        "return [a, b].map((p) => [...p].map((v) => [v & 0xffffff, v >>> 24]))"
    )
    coarse, exact = page.js(script)
    same = sum(x[0] == y[0] and abs(x[1] - y[1]) < 60 for x, y in zip(coarse, exact, strict=True))
    assert same > 0.97 * len(exact)
    assert sum(alpha > 0 for _, alpha in exact) > 300


def test_the_png_is_the_view(page: Browser) -> None:
    """The picture contains the pixels of the timeline's canvas."""
    page.js("strata.timeline.fit()")
    data = page.driver.execute_async_script(
        "const done = arguments[0]; strata.timeline.png().then((blob) => { const r = new FileReader();"
        "r.onload = () => done(r.result.split(',')[1]); r.readAsDataURL(blob); })"
    )
    image = pytest.importorskip("imageio.v3").imread(base64.b64decode(data), extension=".png")
    size, top = page.js(
        "const [s, c] = ['strips', 'canvas'].map((i) => document.getElementById(i)); return [[c.width, c.height], 30 + s.height + 6]"
    )
    pixels = page.js(
        "const c = document.getElementById('canvas'); return [...c.getContext('2d').getImageData(150, 5, c.width - 150, 1).data]"
    )
    expected = np.array(pixels, np.uint8).reshape(-1, 4)[:, :3]
    assert image.shape[1] == size[0] + 16
    assert (image[top + 5, 158 : 158 + len(expected), :3] == expected).all()
    assert image.shape[0] > top + size[1] + 100


def test_the_csv_of_each_table_is_its_content(page: Browser) -> None:
    """Each table has a button; numbers are in full, and no cell is a formula for a spreadsheet."""
    n = page.js("return document.querySelectorAll('main table.sortable').length")
    assert n > 5
    for at in range(n):
        text, heads, cells = page.js(
            "const t = document.querySelectorAll('main table.sortable')[arguments[0]];"
            "const drawn = (row) => [...row.cells].filter((_, i) => !t.tBodies[0].rows[0].cells[i].querySelector('svg[role=img]'));"
            "return [strata.csv(t), drawn(t.tHead.rows[0]).map((c) => c.textContent.trim()), [...t.tBodies[0].rows].map((r) => drawn(r).map((c) => c.dataset.v ?? c.textContent.trim().replace(/\\s+/g, ' ')))]",
            at,
        )  # fmt: skip
        rows = list(csv.reader(io.StringIO(text)))
        assert rows[0] == heads
        assert [
            [c.removeprefix("'") if c[:2] == "'=" else c for c in row] for row in rows[1:]
        ] == cells
        assert not [c for row in rows for c in row if c.startswith(("=", "@"))]
    table = "document.querySelector('#prefixes table')"
    rows = list(csv.reader(io.StringIO(page.js(f"return strata.csv({table})"))))
    [alike] = [row for row in rows if row[0] == ALIKE[0]]
    assert dict(zip(rows[0], alike, strict=True))["tasks"] == "4"
    assert float(dict(zip(rows[0], alike, strict=True))["compute"]) == pytest.approx(3.2)
    saved = page.js(
        "const made = []; const old = URL.createObjectURL; URL.createObjectURL = (b) => { made.push([b.type, b.size]); return old.call(URL, b); };"
        f"{table}.querySelector('caption button').click(); for (const id of ['save-svg']) document.getElementById(id).click();"
        "URL.createObjectURL = old; return made"
    )
    assert [kind for kind, _ in saved] == ["text/csv", "image/svg+xml"]
    assert page.errors() == []
