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
    run : Run
        The run.
    key : str
        Text that Dask shows for the key.
    key_type : str
        Name of the key's type.
    """

    run: Run
    key: str
    key_type: str

    def rows(self, table: str, column: str = "key") -> list[dict[str, Any]]:
        """Return the rows of a table with this task's key, in the table's order.

        Parameters
        ----------
        table : str
            Name of the table.
        column : str, optional
            Name of the column of keys.
        """
        return self.run.rows(
            f'select * from {table} where "{column}" = ? and "{column}_type" = ?',  # noqa: S608  names from the schema
            self.key,
            self.key_type,
        )

    @property
    def facts(self) -> dict[str, Any]:
        """The row of the task's last life in `tasks`; empty if there is none."""
        columns = self.run["tasks"].schema.names
        rows = self.rows("tasks")
        return {name: rows[-1][name] for name in columns} if rows else {}

    @property
    def state(self) -> str | None:
        """The state in the task's last life; memory or erred also after the key was released."""
        return self.facts.get("state")

    @property
    def dependencies(self) -> list[str]:
        """Keys of the tasks that this task depends on."""
        return list(dict.fromkeys(r["dependency"] for r in self.rows("graph_edges")))

    @property
    def dependents(self) -> list[str]:
        """Keys of the tasks that depend on this task."""
        return list(dict.fromkeys(r["key"] for r in self.rows("graph_edges", "dependency")))

    @property
    def attempts(self) -> list[dict[str, Any]]:
        """The task's attempts, in order."""
        rows = sorted(self.rows("attempts"), key=lambda a: a["attempt"])
        return [{name: v for name, v in row.items() if not name.startswith("_")} for row in rows]

    @property
    def transfers(self) -> list[dict[str, Any]]:
        """Transfers of the task's result, in order."""
        numbers = [r["transfer"] for r in self.rows("transfer_keys")]
        return self.run.rows(
            "select * from transfers where list_contains(?, transfer) order by start", numbers
        )
