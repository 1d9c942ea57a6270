"""A real browser that opens pages of runs."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from selenium import webdriver

from dask_strata import open_run
from dask_strata.report.page.page import Options, make_page

#: Path in Debian's package; other systems may have another name.
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")


def chromium() -> Iterator[Browser]:
    """Start a headless browser, and close it at the end of the block."""
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for argument in (
        "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1300,900",
        "--force-device-scale-factor=1", "--disable-background-networking",
    ):  # fmt: skip
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.set_script_timeout(60)
    try:
        yield Browser(driver)
    finally:
        driver.quit()


class Browser:
    """A browser with one page at a time."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def show(self, folder: Path, options: Options | None = None) -> str:
        """Make the page of a run, open it from its file, and return its HTML."""
        page = folder.with_suffix(".html")
        html = make_page(open_run(folder), options)
        page.write_text(html, encoding="utf-8", errors="backslashreplace")
        self.open(page)
        return html

    def open(self, page: Path) -> None:
        """Open a page and wait for its script."""
        self.errors()
        self.driver.get(page.as_uri())
        self.until("return document.body.dataset.ready === 'yes'")

    def js(self, script: str, *arguments: Any) -> Any:
        """Run a script in the page and return its result."""
        return self.driver.execute_script(script, *arguments)

    def until(self, script: str, seconds: float = 30) -> Any:
        """Wait until a script returns something true, and return it."""
        deadline = time.monotonic() + seconds
        while not (value := self.js(script)):
            assert time.monotonic() < deadline, f"{script}: {self.errors()}"
            time.sleep(0.05)
        return value

    def text(self, selector: str) -> str:
        """Return the visible text of an element."""
        return str(self.js("return document.querySelector(arguments[0]).innerText", selector))

    def errors(self) -> list[str]:
        """Return the errors and warnings of the browser since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def dark(self, *, on: bool) -> None:
        """Select the dark or the light theme."""
        value = "dark" if on else "light"
        features = [{"name": "prefers-color-scheme", "value": value}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def violations(self) -> list[str]:
        """Return the violations of accessibility rules that axe-core finds on the page."""
        self.js((files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8"))
        found = self.driver.execute_async_script(
            "const done = arguments[arguments.length - 1];"
            "axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'best-practice']})"
            ".then((r) => done(r.violations), (e) => done([{id: String(e), nodes: []}]))"
        )
        return [f"{v['id']}: {[n['target'] for n in v['nodes']][:3]}" for v in found]
