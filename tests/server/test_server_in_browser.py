"""The history server in a real browser: lists update, sort and filter, without errors."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Keys
from selenium.webdriver.common.by import By

from tests.support.browsing import CHROMIUM, DRIVER, Browser, chromium
from tests.support.synthetic import new_run, small_run

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


def names(browser: Browser) -> list[str]:
    """Return the names of the visible runs, in their order."""
    return browser.js(
        "return [...document.querySelectorAll('#runs tbody tr')].filter((r) => !r.hidden)"
        ".map((r) => r.cells[1].innerText)"
    )


def test_the_list_is_sorted_filtered_and_updated(
    browser: Browser, address: str, runs: Path
) -> None:
    """Newest first, or by a selected column; a new run appears without a reload."""
    browser.errors()
    browser.driver.get(address)
    assert names(browser) == ["2026-01-02-second", "2026-01-01-first"]
    assert browser.violations() == []
    head = browser.driver.find_element(By.CSS_SELECTOR, "#runs th:nth-child(2) button")
    head.send_keys(Keys.ENTER)
    assert names(browser) == ["2026-01-01-first", "2026-01-02-second"]
    new_run(runs / "2026-01-03-third")
    browser.until("return document.querySelectorAll('#runs tbody tr').length === 3")
    assert names(browser)[2] == "2026-01-03-third"
    browser.driver.find_element(By.ID, "filter").send_keys("second")
    assert names(browser) == ["2026-01-02-second"]
    assert browser.text("#count") == "1 runs"
    assert browser.errors() == []


@pytest.mark.long
def test_from_a_run_to_a_task_and_back(browser: Browser, address: str) -> None:
    """The page is in its frame, and the forms lead to the story of a task and to SQL."""
    browser.errors()
    browser.driver.get(address)
    browser.driver.find_element(By.LINK_TEXT, "2026-01-01-first").click()
    browser.until("return document.getElementById('page') !== null")
    browser.until(
        "const inner = document.getElementById('page').contentDocument;"
        "return inner && inner.body && inner.body.dataset.ready === 'yes'"
    )
    assert browser.violations() == []
    browser.driver.find_element(By.NAME, "key").send_keys("no-such-task", Keys.ENTER)
    browser.until("return document.querySelector('h1').innerText === 'Not Found'")
    browser.driver.back()
    browser.until("return document.getElementById('page') !== null")
    browser.driver.find_element(By.XPATH, "//button[text()='SQL']").click()
    browser.until("return document.querySelector('textarea') !== null")
    assert "prefix" in browser.text("table thead")
    assert browser.violations() == []
    messages = [text for text in browser.errors() if "404" not in text]
    assert messages == []


@pytest.mark.long
@pytest.mark.parametrize("dark", [False, True])
def test_pages_are_readable_in_both_themes(browser: Browser, address: str, *, dark: bool) -> None:
    """Contrast and labels suffice in light and dark, in the comparison too."""
    browser.dark(on=dark)
    try:
        for path in ("", "compare?run=2026-01-01-first&run=2026-01-02-second", "no-such-page"):
            browser.driver.get(address + path)
            assert browser.violations() == [], path
    finally:
        browser.dark(on=False)
