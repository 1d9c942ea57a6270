"""The history server in a real browser: each page, by keyboard alone, narrow, in both themes."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from random import Random
from urllib.parse import parse_qs, urlsplit

import pytest
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.common.by import By

from dask_strata.store.manifest import Manifest
from dask_strata.store.summaries.notes import change_notes
from tests.support.browsing import CHROMIUM, DRIVER, Browser, chromium
from tests.support.growing import Replay
from tests.support.synthetic import T0, Process, life, new_run, small_run

if not (CHROMIUM and DRIVER):
    warnings.warn(
        "chromium is absent: THE SERVER'S PAGES ARE NOT TESTED (apt-get install chromium "
        "chromium-driver)",
        stacklevel=1,
    )
    pytest.skip(
        "chromium or chromedriver is absent: THE SERVER'S PAGES ARE NOT TESTED",
        allow_module_level=True,
    )


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all pages."""
    yield from chromium()


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A folder with two runs."""
    folder = tmp_path / "runs"
    folder.mkdir()
    small_run(folder / "2026-01-01-first")
    small_run(folder / "2026-01-02-second")
    return folder


@pytest.fixture
def address(browser: Browser, runs: Path) -> Iterator[str]:
    """The address of a server of the runs, whose printed address the browser has opened."""
    command = [sys.executable, "-m", "dask_strata", "serve", str(runs), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    found = re.search(r"(http://\S+?/)\?token=\S+", process.stdout.readline())
    assert found
    browser.driver.get(found[0])
    assert browser.driver.current_url == found[1]
    yield found[1]
    browser.driver.get("about:blank")  # no open page sends requests to a stopped server
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0


def another_run(folder: Path) -> None:
    """Make a run with another id, to compare with."""
    Manifest("other", "synthetic", T0, "0").write(folder)
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1")
    scheduler.write("scheduler_transitions", life("a-1", 1, 6, "tcp://w:1"))
    scheduler.end()
    Process(folder, "worker-1", address="tcp://w:1", name="w", nthreads=2).end()


def names(browser: Browser) -> list[str]:
    """Return the names of the runs in the list, in their order."""
    return browser.js(
        "return [...document.querySelectorAll('#runs input[name=run]')].map((box) => box.value)"
    )


def press(browser: Browser, *keys: str) -> None:
    """Press keys wherever the focus is."""
    ActionChains(browser.driver).send_keys(*keys).perform()


def chord(browser: Browser, key: str) -> None:
    """Press a key together with Ctrl."""
    ActionChains(browser.driver).key_down(Keys.CONTROL).send_keys(key).key_up(
        Keys.CONTROL
    ).perform()


def focus(browser: Browser, selector: str) -> None:
    """Press Tab until an element has the focus: it can be reached without a mouse."""
    browser.js("document.activeElement.blur()")
    for _ in range(200):
        press(browser, Keys.TAB)
        if browser.js("return document.activeElement.matches(arguments[0])", selector):
            return
    pytest.fail(f"Tab does not reach {selector}")


def test_the_list_by_keyboard_alone(browser: Browser, address: str, runs: Path) -> None:
    """It is sorted, searched, updated and compared; ticks and focus stay through updates."""
    browser.errors()
    browser.driver.get(address)
    assert names(browser) == ["2026-01-02-second", "2026-01-01-first"]
    focus(browser, "#runs th:nth-child(2) a")
    press(browser, Keys.ENTER)
    browser.until("return document.querySelector('#runs [aria-sort]') !== null")
    assert names(browser) == ["2026-01-01-first", "2026-01-02-second"]
    assert browser.js("return document.activeElement.closest('th').cellIndex") == 1
    focus(browser, "input[value='2026-01-01-first']")
    press(browser, " ")
    new_run(runs / "2026-01-03-third")
    browser.until("return document.querySelectorAll('#runs tbody tr').length === 3")
    assert names(browser)[2] == "2026-01-03-third"
    assert browser.js("return document.activeElement.value") == "2026-01-01-first"
    assert browser.driver.current_url == address + "?sort=run"
    focus(browser, "#filter")
    press(browser, "second")
    browser.until("return document.querySelectorAll('#runs tbody tr').length === 1")
    assert names(browser) == ["2026-01-02-second"]
    assert browser.text("#count") == "1 of 3 runs"
    assert "q=second" in browser.driver.current_url
    focus(browser, "input[value='2026-01-02-second']")
    press(browser, " ")
    assert browser.text("#ticked") == "2 runs ticked", "one that the search hides counts"
    focus(browser, "#compare > .bottom button")
    press(browser, Keys.ENTER)
    browser.until("return location.pathname === '/compare'")
    asked = parse_qs(urlsplit(browser.driver.current_url).query)["run"]
    assert sorted(asked) == ["2026-01-01-first", "2026-01-02-second"]
    assert [text for text in browser.errors() if "400" not in text] == []


@pytest.mark.long
def test_ticks_are_there_after_the_way_back_from_a_comparison(
    browser: Browser, address: str, runs: Path
) -> None:
    """Also the tick of a run that the search hides, and after an update of the list."""
    browser.driver.get(address)
    browser.js("for (const box of document.querySelectorAll('#runs input')) box.click()")
    browser.js("document.getElementById('filter').focus()")
    press(browser, "second")
    browser.until("return document.querySelectorAll('#runs tbody tr').length === 1")
    browser.js("document.querySelector('#compare > .bottom button').click()")
    browser.until("return location.pathname === '/compare'")
    browser.driver.back()
    browser.until("return document.getElementById('ticked')?.textContent === '2 runs ticked'")
    change_notes(runs / "2026-01-02-second", add=["new"])
    browser.until("return document.querySelector('#runs .tag') !== null")
    assert browser.js("return document.querySelector('#runs input').checked")
    assert browser.text("#ticked") == "2 runs ticked"


def test_a_query_is_completed_and_run_by_keyboard(browser: Browser, address: str) -> None:
    """Tables after `from`, columns of the table, the permanent address, downloads."""
    browser.errors()
    browser.driver.get(address + "runs/2026-01-01-first/sql")
    focus(browser, "#query")
    chord(browser, "a")
    press(browser, "select n from sched")
    options = "return [...document.querySelectorAll('#completions [role=option]')].map((o) => o.id && o.textContent)"
    assert browser.js(options) == ["scheduler_samples", "scheduler_transitions"]
    press(browser, Keys.ARROW_DOWN, Keys.TAB)
    press(browser, " t where t.fini", Keys.TAB, " = 'memory'")
    expected = "select n from scheduler_transitions t where t.finish_state = 'memory'"
    assert browser.js("return document.getElementById('query').value") == expected
    press(browser, " and sta", Keys.ESCAPE)
    assert browser.js("return document.getElementById('completions').hidden")
    press(browser, Keys.TAB)
    assert browser.js("return document.activeElement.id") != "query", "Tab leaves the query"
    focus(browser, "#query")
    chord(browser, "a")
    press(browser, "select key from tasks order by 1")
    chord(browser, Keys.ENTER)
    browser.until("return document.getElementById('rows') !== null")
    assert browser.text("#rows tbody").split() == ["a-1", "b-1"]
    assert "sql?q=select+key" in browser.driver.current_url
    browser.driver.refresh()
    assert browser.text("#rows tbody").split() == ["a-1", "b-1"]
    browser.js("document.getElementById('schema-filter').focus()")
    press(browser, "finish_state")
    shown = browser.js(
        "return [...document.querySelectorAll('#schema details')].filter((d) => !d.hidden)"
        ".map((d) => d.dataset.table)"
    )
    assert "scheduler_transitions" in shown
    assert "tasks" not in shown
    assert browser.errors() == []


@pytest.mark.long
def test_from_a_run_to_a_task_and_back(browser: Browser, address: str) -> None:
    """The page of a run has no frame; links and forms lead on, by keyboard."""
    browser.errors()
    browser.driver.get(address)
    focus(browser, "a[href='/runs/2026-01-01-first']")
    press(browser, Keys.ENTER)
    browser.until("return document.body.dataset.ready === 'yes'")
    assert browser.js("return document.querySelectorAll('iframe').length") == 0
    focus(browser, "#strata-bar input[name=key]")
    press(browser, "no-such-task", Keys.ENTER)
    browser.until("return document.querySelector('h1').innerText === 'Not Found'")
    assert "dask-strata" not in browser.text("main")
    browser.driver.back()
    browser.until("return document.body.dataset.ready === 'yes'")
    focus(browser, "#strata-bar a[href$='/tables']")
    press(browser, Keys.ENTER)
    browser.until("return location.pathname.endsWith('/tables')")
    browser.driver.find_element(By.LINK_TEXT, "tasks").send_keys(Keys.ENTER)
    browser.until("return document.getElementById('rows') !== null")
    focus(browser, "#rows a[href*='story']")
    press(browser, Keys.ENTER)
    browser.until("return document.querySelector('h1').innerText === 'a-1'")
    assert [text for text in browser.errors() if "404" not in text] == []


@pytest.mark.long
def test_a_run_that_is_recorded_updates_by_itself(
    browser: Browser, address: str, runs: Path, tmp_path: Path
) -> None:
    """Its line while it grows, its page at its end."""
    replay = Replay(small_run(tmp_path / "source"), runs / "2026-01-04-live")
    replay.grow(0.3, Random(0), jitter=0)
    browser.errors()
    browser.driver.get(address + "runs/2026-01-04-live")
    browser.until("return document.body.dataset.ready === 'yes'")
    assert browser.js("return document.getElementById('strata-bar').dataset.live") == "yes"
    browser.until("return document.getElementById('strata-live').textContent !== ''")
    assert browser.text("#strata-live").startswith("recording")
    replay.grow(1, Random(0))
    browser.until("return document.getElementById('strata-bar')?.dataset.live === ''")
    browser.until("return document.body.dataset.ready === 'yes'")
    assert "2 tasks" in browser.text("#verdict")
    assert browser.errors() == []


@pytest.mark.long
def test_a_slow_server_gets_fewer_requests_from_an_open_page(
    browser: Browser, address: str, runs: Path, tmp_path: Path
) -> None:
    """After an answer that took 1 s, the page of a growing run waits 4 s."""
    replay = Replay(small_run(tmp_path / "source"), runs / "2026-01-04-live")
    replay.grow(0.3, Random(0), jitter=0)
    browser.driver.get(address + "runs/2026-01-04-live")
    browser.until("return document.body.dataset.ready === 'yes'")
    browser.js(
        "const plain = window.fetch; window.asked = []; window.fetch = async (...of) => {"
        "window.asked.push(Date.now()); await new Promise((f) => setTimeout(f, 1000));"
        "return plain(...of); }"
    )
    browser.until("return window.asked.length > 1")
    first, second = browser.js("return window.asked.slice(0, 2)")
    assert second - first >= 4_900


PAGES = (
    "",
    "?q=first&sort=-duration&name=synthetic",
    "trend?name=synthetic",
    "runs/2026-01-01-first",
    "runs/2026-01-01-first/tables",
    "runs/2026-01-01-first/tables/tasks?f=prefix:eq:a",
    "runs/2026-01-01-first/tables/scheduler_transitions",
    "runs/2026-01-01-first/sql?q=select+*+from+workers",
    "runs/2026-01-01-first/story?key=a-1",
    "compare?run=2026-01-01-first&run=2026-01-02-other",
    "no-such-page",
)


@pytest.mark.long
@pytest.mark.parametrize(("dark", "width"), [(False, 1300), (True, 390)])
def test_each_page_is_readable(
    browser: Browser, address: str, runs: Path, *, dark: bool, width: int
) -> None:
    """Contrast and labels suffice in both themes; at 390 pixels, no page is wider than that."""
    another_run(runs / "2026-01-02-other")
    change_notes(runs / "2026-01-01-first", add=["fast", "size=big"], note="node 7\nwas slow")
    browser.dark(on=dark)
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        for path in PAGES:
            browser.driver.get(address + path)
            if path == "runs/2026-01-01-first":
                browser.until("return document.body.dataset.ready === 'yes'")
            if "/sql" in path:
                browser.driver.find_element(By.ID, "query").send_keys(" wor")
                browser.until("return !document.getElementById('completions').hidden")
            assert browser.violations() == [], path
            assert browser.js("return document.documentElement.scrollWidth") <= width, path
            assert browser.js("return document.querySelector('h1') !== null"), path
    finally:
        browser.dark(on=False)
        browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
