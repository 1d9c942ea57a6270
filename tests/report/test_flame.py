"""The flame graph of the page: bounded, escaped, and as wide as the samples say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from dask_strata import open_run
from dask_strata.report.page.page import make_page
from tests.analysis.test_stacks import frame_row, sample_row
from tests.support.browsing import CHROMIUM, DRIVER, Browser, chromium
from tests.support.synthetic import Process, small_run

EVIL = "<script>document.title='evil'</script>\x1b[31m"


def profiled(folder: Path) -> Path:
    """Make a run with a function of 3/4 of the samples, and one with a hostile name and file."""
    small_run(folder)
    worker = Process(folder, "worker-2", address="tcp://w:2", name="w2", nthreads=1)
    frames = [
        frame_row(1, None, "outer", "/home/u/a.py", 1),
        frame_row(2, 1, "three_quarters", "/home/u/a.py", 5),
        frame_row(3, 1, EVIL, f"/home/{EVIL}.py", 9),
        frame_row(4, 1, "tiny", "/home/u/a.py", 20),
    ]
    worker.write("stack_frames", frames)
    samples = ((2, 7500), (3, 2495), (4, 5))
    worker.write("stacks", [sample_row(0, "tcp://w:2", "work", f, n) for f, n in samples])
    worker.write("stacks", [sample_row(0, "tcp://w:2", f"{EVIL}", 1, 10)])
    worker.end()
    return folder


def test_names_are_escaped(tmp_path: Path) -> None:
    """Of functions, files and prefixes; control characters are spelled out."""
    html = make_page(open_run(profiled(tmp_path / "r")))
    section = html[html.index('<section id="profile"') :]
    section = section[: section.index("</section>")]
    assert "<script" not in section
    assert "&lt;script&gt;" in section
    assert "\x1b" not in section
    assert "three_quarters" in section
    assert "/home/u/a.py:5" in section


def test_small_frames_are_counted_only(tmp_path: Path) -> None:
    """A function below 0.2 % of the samples is not drawn."""
    html = make_page(open_run(profiled(tmp_path / "r")))
    assert "tiny" not in html
    assert "1 frame not shown: below 0.2 %" in html


def test_a_run_without_samples(tmp_path: Path) -> None:
    """The section says so."""
    html = make_page(open_run(small_run(tmp_path / "r")))
    assert "No sample of Dask's statistical profile is on record." in html
    assert not re.search(r'<svg class="flame"', html)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser."""
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("chromium is absent")
    yield from chromium()


@pytest.mark.long
def test_widths_in_a_browser(browser: Browser, tmp_path: Path) -> None:
    """Widths on the screen are shares of samples; a prefix that is opened closes the other."""
    browser.show(profiled(tmp_path / "r"))
    widths = browser.js("""
        const graph = document.querySelectorAll("details.flames")[1];
        graph.open = true;
        const frames = [...graph.querySelectorAll("svg.flame > svg")];
        return frames.map(f => [f.querySelector("title").textContent.split("\\n")[0],
                                f.querySelector("rect").getBoundingClientRect().width]);
    """)
    found = dict(widths)
    assert found["three_quarters"] / found["outer"] == pytest.approx(0.75, abs=0.01)
    assert found["outer"] > 600
    assert browser.js("return document.title") != "evil"
    browser.driver.execute_script("document.querySelector('details.flames').open = true")
    browser.until("return document.querySelectorAll('details.flames[open]').length === 1")
    for on in (False, True):
        browser.dark(on=on)
        assert browser.violations() == []
