"""The page for queries in SQL: by GET, with a permanent address, or by POST; downloads."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import Any

from dask_strata.errors import QueryError, UsageError
from dask_strata.report.words import count
from dask_strata.schema import TABLES, Table
from dask_strata.server.hints import browser_hint
from dask_strata.server.page import LONGEST_LINK, status_of
from dask_strata.server.pages.asking import FORMATS, Asking, link, run_path
from dask_strata.server.pages.cells import cells_of
from dask_strata.server.sql import BusyError

EXAMPLE = "select prefix, count(*) as n, sum(compute_seconds) as seconds from tasks group by 1"

#: Tables that most queries are about, which the schema shows first.
_FIRST = ("tasks", "attempts", "transfers", "workers", "processes", "task_inputs")


class Sql(Asking):
    """A form for one SQL query that reads, the schema, and the answer."""

    async def get(self, name: str) -> None:
        """Respond with the form; with the answer to the query ``q``, unless another site asks."""
        await self.in_short_thread(self.context.runs.path, name)
        query = self.get_query_argument("q", "")
        if not query:
            await self._show(name, EXAMPLE)
        elif self.is_from_elsewhere():
            note = "A page of another site leads here: read the query before you run it."
            await self._show(name, query, note=note)
        else:
            await self._respond(name, query)

    async def post(self, name: str) -> None:
        """Respond with the answer to the query, or its error."""
        query = self.get_body_argument("query", "") or self.get_body_argument("q", "")
        await self._respond(name, query)

    async def _respond(self, name: str, query: str) -> None:
        if self.is_too_long(query):
            return
        try:
            answers = await self.ask(name, [query])
        except (QueryError, BusyError) as error:
            self.respond_with(status_of(error))
            await self._show(name, query, error=(error.message, browser_hint(error)))
            return
        if answers is None:
            return
        (answer,) = answers
        note = answer["more"] or count(len(answer["rows"]), "row")
        await self._show(name, query, note=note, answer=answer)

    async def _show(
        self,
        name: str,
        query: str,
        *,
        note: str = "",
        error: tuple[str, str | None] | None = None,
        answer: Mapping[str, Any] | None = None,
    ) -> None:
        path = run_path(name)
        downloads = {}
        if answer is not None:
            downloads = {suffix[1:]: link(f"sql{suffix}", q=query) for suffix in FORMATS}
        permanent = link("sql", q=query)
        make = partial(
            self.page_of,
            "sql.html",
            name=name,
            query=query,
            note=note,
            error=error,
            columns=() if answer is None else answer["columns"],
            rows=() if answer is None else answer["rows"],
            cells=cells_of(name, () if answer is None else answer["columns"]),
            downloads=downloads,
            permanent=permanent if len(path) + len(permanent) < LONGEST_LINK else None,
            tables=_tables(),
        )
        page = await self.in_thread(make)
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.finish(page)


class SqlFile(Asking):
    """Download of the answer to a query."""

    async def get(self, name: str, suffix: str) -> None:
        """Send the file."""
        query = self.get_query_argument("q", "")
        if self.is_from_elsewhere():
            self.redirect(link(f"{run_path(name)}/sql", q=query))
            return
        if not query:
            raise UsageError("No query was given.", hint="Run one first; its page has the links.")
        await self.send_result(name, query, suffix)


@cache
def _tables() -> list[Table]:
    """Return all tables, those that most queries are about first."""
    first = [TABLES[name] for name in _FIRST]
    return first + sorted((t for t in TABLES.values() if t not in first), key=lambda t: t.name)
