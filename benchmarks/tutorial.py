"""Run the commands of docs/tutorial.md, and write their outputs and the pictures into docs/.

    python benchmarks/tutorial.py            # on a terminal of 80 columns, in a new folder
    python benchmarks/tutorial.py --check    # fail if a command fails or prints other words

The pictures need Chromium with its driver, and selenium.
"""

from __future__ import annotations

import argparse
import difflib
import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "tutorial.md"

COLUMNS, LINES = 80, 60

#: Width of a picture, space for the frame of the window, and around a part; in pixels.
WIDTH, _FRAME, _MARGIN = 1280, 200, 16

#: A block of the page that is a file of the reader, or commands with their outputs.
_BLOCK = re.compile(
    r'^```(?:python title="(?P<file>[\w.]+)"|console)\n(?P<text>.*?)^```$', re.DOTALL | re.MULTILINE
)

#: Keeps the variables in capitals that a command sets for the next one, and its status.
_KEEP = "declare -p KEY > .variables 2> /dev/null; exit $status"

#: In the output of `compare`, if no other program took the CPUs from the runs.
_QUIET = "no run is spoiled"

#: Share of equal words from which an output is like that on the page.
_ALIKE = 0.4


def run(command: str, folder: Path) -> tuple[int, str]:
    """Run a command on a terminal; return its status and its output."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    environment = {name: v for name, v in os.environ.items() if not name.startswith("DASK_")}
    process = subprocess.Popen(
        ["bash", "-c", f"touch .variables; . ./.variables; {command}\n status=$?; {_KEEP}"],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env={
            **environment,
            # Readers who install the extra `demo` have no gilknocker, which may print warnings.
            "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__GIL__ENABLED": "False",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "TERM": "dumb",
            "TZ": "UTC",
        },
    )
    os.close(theirs)
    printed = b""
    while True:
        try:
            part = os.read(ours, 1 << 16)
        except OSError:  # Linux reports the end of a terminal like this
            break
        if not part:
            break
        printed += part
    os.close(ours)
    lines = printed.decode(errors="replace").replace("\r\n", "\n").split("\n")
    shown = [line.rpartition("\r")[2].rstrip() for line in lines]
    text = "\n".join(shown).strip("\n").replace(f"{folder}/", "")
    return process.wait(), text


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Yield the commands of a block, each with the output below it; an indented line continues."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        first, *rest = part.splitlines()
        more = list(takewhile(lambda line: line.startswith("  "), rest))
        yield "\n".join([first, *more]), "\n".join(rest[len(more) :]).strip("\n")


def words(text: str) -> list[str]:
    """Return the words of an output, without numbers, ids and names of files."""
    return re.findall(r"(?<![\w/.-])[a-z]{3,}(?![\w/-])", text)


def play(page: str, folder: Path, *, check: bool) -> str:
    """Run all commands of a page in a folder; return the page with their outputs."""

    def block(found: re.Match[str]) -> str:
        if found["file"]:
            (folder / found["file"]).write_text(found["text"], encoding="utf-8")
            return found[0]
        parts = ["```console\n"]
        for command, before in commands(found["text"]):
            status, now = run(command, folder)
            print(f"$ {command}\n{now}\n", flush=True)
            if status:
                sys.exit(f"{command}: status {status}")
            alike = difflib.SequenceMatcher(None, words(before), words(now)).ratio()
            print(f"{alike:.0%} of the words are equal\n")
            if check and alike < _ALIKE:
                sys.exit(f"{command}: the page has\n{before}")
            parts.append(f"$ {command}\n{now}\n" if now else f"$ {command}\n")
        return "".join([*parts, "```"])

    return _BLOCK.sub(block, page)


@contextmanager
def browser(*, dark: bool = False) -> Iterator[Any]:
    """Start a headless browser, and end it."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--window-size=1280,900",
        "--hide-scrollbars",
    ):
        options.add_argument(argument)
    driver = webdriver.Chrome(
        options=options, service=webdriver.ChromeService(shutil.which("chromedriver"))
    )
    try:
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        yield driver
    finally:
        driver.quit()


def picture(driver: Any, page: Path, target: Path, part: tuple[str, str], script: str = "") -> None:
    """Save a picture of a page, from the first to the last element of a part, with few colours."""
    from PIL import Image
    from selenium.webdriver.support.ui import WebDriverWait

    driver.set_window_size(WIDTH, 900)
    driver.get(page.as_uri())
    done: Callable[[Any], bool] = lambda d: d.execute_script(  # noqa: E731
        "return document.body.dataset.ready === 'yes' || !document.querySelector('canvas')"
    )
    WebDriverWait(driver, 30).until(done)
    driver.execute_script(script)
    height = driver.execute_script("return document.documentElement.scrollHeight")
    driver.set_window_size(WIDTH, height + _FRAME)
    top, bottom = driver.execute_async_script(
        "const [first, last, done] = arguments;"
        "const box = (each) => document.querySelector(each).getBoundingClientRect();"
        "scrollTo(0, 0);"
        "requestAnimationFrame(() => requestAnimationFrame("
        "() => done([box(first).top, box(last).bottom])))",
        *part,
    )
    target.parent.mkdir(exist_ok=True)
    driver.save_screenshot(str(target))
    with Image.open(target) as image:
        box = (0, max(0, int(top) - _MARGIN), image.width, int(bottom) + _MARGIN)
        shown = image.crop(box).convert("RGB")
        shown.quantize(128, dither=Image.Dither.NONE).save(target, optimize=True)


def pictures(folder: Path) -> None:
    """Take the pictures of the page's runs."""
    demo, comparison = folder / "demo.html", folder / "compare.html"
    choose = (
        "const box = document.getElementById('search');"
        "box.value = 'save_labels'; box.dispatchEvent(new Event('input'));"
        "document.querySelector('#found button').click()"
    )
    summary = ("header", "#where table")
    with browser() as driver:
        picture(driver, demo, DOCS / "report-light.png", summary)
        picture(driver, demo, DOCS / "pictures" / "task.png", ("#timeline", "#task"), choose)
        before = DOCS / "pictures" / "before.png"
        picture(driver, folder / "before.html", before, ("header", "#verdict"))
        picture(driver, comparison, DOCS / "pictures" / "compare.png", ("h1", "table"))
    with browser(dark=True) as driver:
        picture(driver, demo, DOCS / "report-dark.png", summary)


def main() -> None:
    """Run the commands and, unless they are only checked, write the page and its pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tutorial-") as temporary:
        folder = Path(temporary).resolve()
        text = play(PAGE.read_text(encoding="utf-8"), folder, check=chosen.check)
        if not chosen.check:
            if _QUIET not in text:
                sys.exit("Other programs disturbed the runs: nothing is written. Try again.")
            PAGE.write_text(text, encoding="utf-8")
            pictures(folder)


if __name__ == "__main__":
    main()
