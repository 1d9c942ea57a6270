"""One task of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dask_strata.run.run import Run


@dataclass(frozen=True)
class Task:
    """One task of a run, with its rows in each table.

    Attributes
    ----------
    key, key_type : str
        Text that Dask shows for the key, and name of the type of the key.
    """

    run: Run
    key: str
    key_type: str

    def rows(self, table: str, column: str = "key") -> list[dict[str, Any]]:
        """Return the rows of a table that are about this task, in the table's order."""
        return self.run.rows(
            f'select * from {table} where "{column}" = ? and "{column}_type" = ?',  # noqa: S608  names are ours
            self.key,
            self.key_type,
        )

    @property
    def facts(self) -> dict[str, Any]:
        """The row of its last life in `tasks`; empty if the scheduler's record has none."""
        rows = self.rows("tasks")
        return rows[-1] if rows else {}

    @property
    def state(self) -> str | None:
        """The last state that mattered."""
        return self.facts.get("state")

    @property
    def dependencies(self) -> list[str]:
        """Keys that it needs."""
        return list(dict.fromkeys(r["dependency"] for r in self.rows("graph_edges")))

    @property
    def dependents(self) -> list[str]:
        """Keys that need it."""
        return list(dict.fromkeys(r["key"] for r in self.rows("graph_edges", "dependency")))

    @property
    def attempts(self) -> list[dict[str, Any]]:
        """Its stays in processing on a worker, in order."""
        rows = sorted(self.rows("attempts"), key=lambda a: a["attempt"])
        return [{name: v for name, v in row.items() if not name.startswith("_")} for row in rows]

    @property
    def transfers(self) -> list[dict[str, Any]]:
        """Transfers of its result, in order."""
        numbers = [r["transfer"] for r in self.rows("transfer_keys")]
        return self.run.rows(
            "select * from transfers where list_contains(?, transfer) order by start", numbers
        )
