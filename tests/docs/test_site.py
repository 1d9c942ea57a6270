"""The documentation is a site: built strictly, complete, searchable, and without other hosts."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import yaml

import dask_strata
from tests.support.browsing import CHROMIUM, DRIVER, Browser, chromium

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

#: Attributes with an address that a browser loads without a click.
LOADED = {"src", "srcset", "data", "poster", "background"}


def configuration() -> dict[str, Any]:
    """Return mkdocs.yml with texts only, whatever its tags."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    return yaml.load(text, Loader=yaml.BaseLoader)  # it makes nothing but texts


def pages(nav: Any) -> Iterator[str]:
    """Yield the pages of the nav, in its order."""
    if isinstance(nav, str):
        yield nav
        return
    for each in nav.values() if isinstance(nav, dict) else nav:
        yield from pages(each)


NAV = list(pages(configuration()["nav"]))


def test_every_page_is_in_the_nav() -> None:
    """Each page of docs/ is in the nav, once."""
    assert sorted(NAV) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


def test_the_nav_has_the_kinds_of_diataxis() -> None:
    """Evidence for maintainers is apart from what users read."""
    titles = [next(iter(each)) for each in configuration()["nav"]]
    assert titles == [
        "Home", "Tutorial", "How-to guides", "Reference", "Explanation", "Help", "For maintainers",
    ]  # fmt: skip


def test_every_public_name_is_on_the_page_of_the_python_interface() -> None:
    """What the package exports is documented from its docstring, or by a sentence."""
    page = (DOCS / "python.md").read_text(encoding="utf-8")
    generated = set(re.findall(r"^::: dask_strata\.(\w+)$", page, re.MULTILINE))
    named = set(re.findall(r"`dask_strata\.(\w+)`", page))
    assert set(dask_strata.__all__) - {"StrataError"} == (generated - {"errors"}) | named
    assert "errors" in generated


def test_messages_in_the_troubleshooting_page_are_those_of_the_code() -> None:
    """Each message that is a heading has its texts between … in the package."""
    texts = "\n".join(
        node.value
        for path in (ROOT / "src").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    page = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    messages = re.findall(r"^### `(.{20,})`$", page, re.MULTILINE)
    assert len(messages) > 20
    for message in messages:
        parts = [part.strip() for part in message.split("…")]
        assert max(map(len, parts)) >= 8, message
        assert not [part for part in parts if part not in texts], message


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site; a warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


def address(page: str) -> str:
    """Return the address of a page in the site."""
    return re.sub(r"README$", "index", page.removesuffix(".md")) + ".html"


@pytest.mark.long
def test_every_page_is_in_the_site_and_its_search(site: Path) -> None:
    """Each page is there, with each of its headings of the second level in the search index."""
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    found: dict[str, list[str]] = {}
    for entry in index["docs"]:
        found.setdefault(urlsplit(entry["location"]).path or "index.html", []).append(
            re.sub(r"<[^>]+>", "", entry["title"])
        )
    for page in NAV:
        assert (site / address(page)).is_file(), page
        text = (DOCS / page).read_text(encoding="utf-8")
        prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        headings = re.findall(r"^## ([\w ,]+)$", prose, re.MULTILINE)
        assert set(headings) <= set(found[address(page)]), page


class Loads(HTMLParser):
    """Collects the addresses that a page loads without a click."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a browser loads for the element."""
        names = LOADED | ({"href"} if tag in {"link", "use", "image"} else set())
        self.addresses += [value for name, value in attrs if name in names and value]


@pytest.mark.long
def test_the_site_loads_nothing_from_other_hosts(site: Path) -> None:
    """Scripts, styles, fonts and pictures of all pages are files of the site."""
    n_loads = 0
    for page in site.rglob("*.html"):
        if page.name == "404.html":  # a server shows it at any address
            continue
        loads = Loads()
        loads.feed(page.read_text(encoding="utf-8"))
        for each in loads.addresses:
            n_loads += 1
            parts = urlsplit(each)
            assert not parts.scheme or parts.scheme == "data", f"{page}: {each}"
            assert not parts.netloc, f"{page}: {each}"
            assert not parts.path or (page.parent / unquote(parts.path)).exists(), f"{page}: {each}"
    assert n_loads > len(NAV)
    for style in site.rglob("*.css"):
        urls = re.findall(r"(?:@import\s+|url\()[\"']?([^\"')\s]+)", style.read_text("utf-8"))
        assert not [url for url in urls if re.match(r"(?:https?:)?//", url)], style


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start a browser."""
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("NOT TESTED: there is no chromium with chromedriver")
    yield from chromium()


@pytest.mark.long
def test_the_site_works_and_is_searched_as_a_folder_of_files(site: Path, browser: Browser) -> None:
    """Opened from its file, it has no error, requests no host, and its search finds a page."""
    browser.errors()
    browser.driver.get((site / "how-to" / "slurm.html").as_uri())
    browser.js("document.querySelector('.md-search__input').focus()")
    browser.driver.switch_to.active_element.send_keys("KillWait")
    browser.until("return document.querySelector('.md-search-result__link')")
    links = browser.js(
        "return [...document.querySelectorAll('.md-search-result__link')].map(a => a.pathname)"
    )
    assert any(link.endswith("/how-to/slurm.html") for link in links), links
    loaded = browser.js("return performance.getEntries().map(e => e.name)")
    assert not [name for name in loaded if urlsplit(name).scheme in {"http", "https"}], loaded
    assert browser.errors() == []


@pytest.mark.long
def test_a_broken_link_is_an_error(tmp_path: Path) -> None:
    """The strict build refuses links to pages and headings that do not exist, and lost pages."""
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "index.md").write_text("# One\n\n[a](nope.md) [b](#nope) [c](two.md#nope)\n")
    (folder / "two.md").write_text("# Two\n")
    (folder / "lost.md").write_text("# Lost\n")
    (tmp_path / "mkdocs.yml").write_text(
        f"INHERIT: {ROOT / 'mkdocs.yml'}\nplugins: []\nnav: [index.md, two.md]\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(tmp_path / "site")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    for text in ("nope.md", "'#nope'", "'two.md#nope'", "lost.md"):
        assert text in done.stderr
