"""The address of each page; the story of a task, runs compared, style sheets and scripts."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

from dask_strata.analysis.compare import compare
from dask_strata.analysis.story import story
from dask_strata.errors import UsageError
from dask_strata.report.comparison.page import comparison_part
from dask_strata.report.page.templates import asset
from dask_strata.server.page import Page, ServerContext
from dask_strata.server.pages.asking import FORMATS
from dask_strata.server.pages.index import Runs, Trend
from dask_strata.server.pages.run_page import ExportFile, OneRun, RunFile, RunPage, State
from dask_strata.server.pages.sql_page import Sql, SqlFile
from dask_strata.server.pages.tables import TableFile, TableRows, Tables

#: Least number of runs of a comparison.
_LEAST_COMPARED = 2

_ASSETS = Path(__file__).parent / "assets"


def routes(context: ServerContext) -> list[Any]:
    """Return the handler of each address, as a pattern."""
    arguments = {"context": context}
    run = r"/runs/([^/]+)"
    suffix = f"({'|'.join(map(re.escape, FORMATS))})"
    assets = "|".join(re.escape(path.name) for path in sorted(_ASSETS.iterdir()))
    pages: list[tuple[str, type[Page]]] = [
        (r"/", Runs),
        (r"/trend", Trend),
        (run, OneRun),
        (rf"{run}/page", RunPage),
        (rf"{run}/state", State),
        (rf"{run}/story", TaskStory),
        (rf"{run}/sql", Sql),
        (rf"{run}/sql{suffix}", SqlFile),
        (rf"{run}/tables", Tables),
        (rf"{run}/tables/([a-z_]+)", TableRows),
        (rf"{run}/tables/([a-z_]+){suffix}", TableFile),
        (rf"{run}/run\.tar", RunFile),
        (rf"{run}/export", ExportFile),
        (r"/compare", Compare),
        (rf"/assets/({assets})", Asset),
    ]
    return [(pattern, handler, arguments) for pattern, handler in pages]


class TaskStory(Page):
    """Everything about one task."""

    async def get(self, name: str) -> None:
        """Respond with the story."""
        key = self.get_query_argument("key", "")
        kind = self.get_query_argument("type", None) or None
        if not key:
            raise UsageError("No key was given.", hint="The table of tasks leads to each story.")

        def read_story() -> Any:
            return story(self.context.runs.run(name).task(key, kind))

        self.show("story.html", name=name, story=await self.in_thread(read_story))


class Compare(Page):
    """Runs compared: two with each other, more as one group, or in groups by a fact."""

    async def get(self) -> None:
        """Respond with the comparison."""
        await self._respond()

    async def post(self) -> None:
        """Respond with the comparison of more runs than an address can name."""
        await self._respond()

    async def _respond(self) -> None:
        joined = self.get_argument("runs", "")  # by POST: Tornado accepts 1,000 fields
        names = list(dict.fromkeys([*self.get_arguments("run"), *filter(None, joined.split("/"))]))
        if len(names) < _LEAST_COMPARED:
            raise UsageError(
                "Select two runs or more to compare.", hint="Tick them in the list of runs."
            )
        by = self.get_argument("by", "").strip() or None
        exclude = self.get_argument("exclude_spoiled", "") == "on"
        paths = await self.in_short_thread(self.context.runs.paths, names)
        found = await self.in_thread(partial(compare, *paths, by=by, exclude_spoiled=exclude))
        body = await self.in_thread(comparison_part, found)
        self.show(
            "compare.html",
            names=names,
            body=body,
            by=by or "",
            exclude=exclude,
            method=self.request.method.lower(),
        )


class Asset(Page):
    """Style sheets and scripts of the pages."""

    def get(self, name: str) -> None:
        """Send the file."""
        kind = "text/css" if name.endswith(".css") else "text/javascript"
        self.set_header("Content-Type", f"{kind}; charset=utf-8")
        text = (_ASSETS / name).read_text(encoding="utf-8")
        self.finish(text + asset("comparison.css") if name == "serve.css" else text)
