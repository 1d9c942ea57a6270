"""The clients of a run, by their ids and by the names of their scripts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from dask_strata.errors import UsageError

if TYPE_CHECKING:
    from dask_strata.run.run import Run

#: Most clients that an error message lists.
_HINTS = 10


@dataclass(frozen=True)
class RunClient:
    """A client; script and host are None unless its process was recorded."""

    client: str
    script: str | None
    host: str | None

    @property
    def name(self) -> str:
        """Its script and host if they are on record, and its id."""
        known = " on ".join(filter(None, (self.script, self.host)))
        return f"{known} ({self.client})" if known else self.client


def clients(run: Run) -> list[RunClient]:
    """Return the clients that submitted or requested tasks, in order of their ids.

    Parameters
    ----------
    run : Run
        The run.
    """
    rows = run.rows("""
        with named as (
            select p.address as client, any_value(p.host) as host,
                   any_value(s.value) filter (s.name = 'path') as path,
                   any_value(s.value) filter (s.name = 'module') as module
            from processes p left join script s on s.process = p.process
            where p.role = 'client' group by p.address
        ), used as (
            select distinct unnest(string_split(clients, ', ')) as client from _task_clients
        )
        select u.client, n.host, n.path, n.module from used u left join named n
        on n.client = u.client where u.client is not null order by u.client
    """)
    return [
        RunClient(
            row["client"],
            row["module"] or (PurePath(row["path"]).name if row["path"] else None),
            row["host"],
        )
        for row in rows
    ]


def find_client(run: Run, text: str) -> str:
    """Return the id of a client.

    Parameters
    ----------
    run : Run
        The run.
    text : str
        Its id, the start of its id, or the name of its script.

    Raises
    ------
    UsageError
        No client, or more than one, has this id or script.
    """
    known = clients(run)
    found = [c for c in known if text in (c.client, c.script)]
    found = found or [c for c in known if text and c.client.startswith(text)]
    if len(found) == 1:
        return found[0].client
    listed = found or known
    some = ", ".join(c.name for c in listed[:_HINTS]) + (", …" if len(listed) > _HINTS else "")
    number = f"{len(found)} clients match" if found else "No client matches"
    raise UsageError(f"{number} {text}.", hint=f"There are: {some or 'none'}")
