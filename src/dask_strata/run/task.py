"""One task of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dask_strata.schema import RECORDED, TABLES
from dask_strata.store.arrow import arrow_schema
from dask_strata.store.key_texts import key_columns

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
        """Return the rows of a table with this task's key, without internal columns.

        Parameters
        ----------
        table : str
            Name of the table.
        column : str, optional
            Name of the column of keys.
        """
        number = self.run.key_id(self.key, self.key_type)
        if number is None:
            rows = self.run.rows(
                f'select * from {table} where "{column}" = ? and "{column}_type" = ?',  # noqa: S608  names from the schema
                self.key,
                self.key_type,
            )
        elif table in RECORDED:
            rows = self._recorded(table, column, number)
        else:
            rows = self.run.rows(f"select * from {table} where _{column} = ?", number)  # noqa: S608  as above
        return [{name: v for name, v in row.items() if not name.startswith("_")} for row in rows]

    def _recorded(self, table: str, column: str, number: int) -> list[dict[str, Any]]:
        """Return rows of a recorded table without a join with all keys, which takes longest."""
        keys = key_columns(RECORDED[table])
        names = arrow_schema(RECORDED[table]).names
        texts = {f"{key}{end}" for key in keys for end in ("", "_type")}
        selected = [f'"{name}"' for name in names if name not in texts]
        selected += [f"_{key}" for key in keys]
        query = f"select {', '.join(selected)} from {table} where _{column} = ?"  # noqa: S608  as above
        rows = self.run.rows(query, number)
        ids = sorted({row[f"_{key}"] for row in rows for key in keys} - {None})
        known = {None: (None, None)}
        if ids:
            listed = ", ".join(map(str, ids))
            found = self.run.rows(f"from _keys where _key in ({listed})")  # integers
            known |= {row["_key"]: (row["key"], row["key_type"]) for row in found}
        for row in rows:
            for key in keys:
                row[key], row[f"{key}_type"] = known[row[f"_{key}"]]
        return [{name: row[name] for name in names} for row in rows]

    @property
    def facts(self) -> dict[str, Any]:
        """The row of the task's last life in `tasks`; empty if there is none."""
        columns = arrow_schema(TABLES["tasks"]).names
        rows = self.rows("tasks")
        return {name: rows[-1][name] for name in columns} if rows else {}

    @property
    def worker(self) -> str | None:
        """Address of the worker of the last attempt; None if it is not on record."""
        return None if (worker := self.facts.get("worker")) is None else str(worker)

    @property
    def host(self) -> str | None:
        """Name of the host of the last attempt; None if it is not on record."""
        return None if (host := self._place["host"]) is None else str(host)

    @property
    def pid(self) -> int | None:
        """Process id of the last attempt's worker; None if it is not on record."""
        return None if (pid := self._place["pid"]) is None else int(pid)

    @property
    def thread(self) -> int | None:
        """Identity of the thread of the last attempt; None if it is not on record."""
        return None if (thread := self._place["thread"]) is None else int(thread)

    @property
    def _place(self) -> dict[str, Any]:
        number = self.run.key_id(self.key, self.key_type)
        place = "select host, pid, thread from attempts a join _places using (attempt) where "
        last = " order by attempt desc limit 1"
        if number is None:
            is_own = "a.key = ? and a.key_type = ?"
            rows = self.run.rows(place + is_own + last, self.key, self.key_type)
        else:
            rows = self.run.rows(f"{place}a._key = ?{last}", number)
        return rows[0] if rows else {"host": None, "pid": None, "thread": None}

    @property
    def files(self) -> list[dict[str, Any]]:
        """Files and ranges of files that the task's definition names or that it opened.

        Each has its ``uri``, ``mode``, whether it is ``claimed`` by the definition and ``seen``
        opened, the part (``dataset``, ``tree``, ``first``, ``last``, ``unit``, ``columns``), its
        ``nbytes`` and ``events`` where they are known, ``read_bytes`` and their source
        (``bytes_from``), and the place of the last attempt (``worker``, ``thread``, ``process``,
        ``host``, ``pid``).
        """
        return self.rows("_file_uses")

    @property
    def inputs(self) -> list[dict[str, Any]]:
        """The `files` that the task does not only write."""
        return [row for row in self.files if row["mode"] != "write"]

    @property
    def outputs(self) -> list[dict[str, Any]]:
        """The `files` that the task opened for writing."""
        return [row for row in self.files if row["mode"] != "read"]

    @property
    def chunks(self) -> list[dict[str, Any]]:
        """The task's rows of the table ``chunks``: ranges of entries that it processes."""
        return self.rows("chunks")

    @property
    def chunk(self) -> dict[str, Any] | None:
        """The task's chunk; None if it has none or several, see `chunks`."""
        chunks = self.chunks
        return chunks[0] if len(chunks) == 1 else None

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
        return sorted(self.rows("attempts"), key=lambda a: a["attempt"])

    @property
    def transfers(self) -> list[dict[str, Any]]:
        """Transfers of the task's result, in order."""
        numbers = [r["transfer"] for r in self.rows("transfer_keys")]
        return self.run.rows(
            "select * from transfers where list_contains(?, transfer) order by start", numbers
        )
