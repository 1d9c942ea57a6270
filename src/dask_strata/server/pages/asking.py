"""The base of pages that answer queries of users."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa

from dask_strata.report.formats import formats_of
from dask_strata.server.page import LONGEST, Page, quoted

#: Formats of a table that can be downloaded, by suffix.
FORMATS = {f.suffix: f for f in formats_of(pa.Table) if f.media_type is not None}

#: Values of `Sec-Fetch-Site` of a link on a page of another site.
_ELSEWHERE = ("cross-site", "same-site")

_CHUNK = 1 << 20


class Asking(Page):
    """A page that answers queries; they end when the browser has closed the connection."""

    _answering: asyncio.Task[Any] | None = None

    def is_from_elsewhere(self) -> bool:
        """Return whether a link on a page of another site leads to this request.

        Such a link shows a query and does not run it: otherwise pages of other sites could keep
        the server busy.
        """
        return self.request.headers.get("Sec-Fetch-Site", "none") in _ELSEWHERE

    async def ask(self, name: str, queries: Sequence[str]) -> list[dict[str, Any]] | None:
        """Return the answers to queries about a run; None if the browser has gone.

        Raises
        ------
        QueryError, BusyError
            A query has no answer.
        """
        folder, kept = await self.in_thread(self.context.runs.folder_of, name)
        try:
            answers = []
            for query in queries:
                answer = await self._answer(folder, query)
                if answer is None:
                    return None
                answers.append(answer)
            return answers
        finally:
            del kept

    async def send_result(self, name: str, query: str, suffix: str) -> None:
        """Send the answer to a query as a file."""
        form = FORMATS[suffix]
        folder, kept = await self.in_thread(self.context.runs.folder_of, name)
        with tempfile.TemporaryDirectory(prefix="dask-strata-") as temporary:
            path = Path(temporary) / f"result{suffix}"
            answer = await self._answer(folder, query, form.name, path)
            del kept
            if answer is None:
                return
            self.set_header("Content-Type", form.media_type)
            self.set_header("Content-Disposition", f'attachment; filename="{path.name}"')
            with path.open("rb") as file:
                while piece := file.read(_CHUNK):
                    await self.send(piece)

    async def _answer(self, folder: Path, query: str, *file: Any) -> dict[str, Any] | None:
        self._answering = asyncio.ensure_future(self.context.sql.answer(folder, query, *file))
        try:
            return dict(await self._answering)
        except asyncio.CancelledError:
            if self._answering.cancelled():
                return None  # the browser has closed the connection
            raise

    def is_too_long(self, query: str) -> bool:
        """Return whether a query is too long, which the response states."""
        if len(query) <= LONGEST:
            return False
        self.refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The query is too long.")
        return True

    def on_connection_close(self) -> None:
        """End the query, as nobody waits for its answer."""
        if self._answering is not None:
            self._answering.cancel()


def link(path: str, **arguments: str) -> str:
    """Return an address with arguments."""
    return f"{path}?{urlencode(arguments, errors='replace')}"


def run_path(name: str) -> str:
    """Return the address of a run, by the name of its folder."""
    return f"/runs/{quoted(name)}"
