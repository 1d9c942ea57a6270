"""The tables of a run with the tasks of one client only: those of the run itself, or a selection.

In a recording of one client's tasks the scheduler's recorder leaves out those of other clients.
Workers cannot, as Dask sends them no clients: their segments have the rows of all tasks, which
reading separates.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dask_strata.run.key_ids import KeyIds
from dask_strata.run.table_view import as_type

#: Table of the transitions of other clients' tasks on workers, for derived tables.
OTHERS_TABLE = "_other_transitions"

#: The recorded table that it is a part of.
TRANSITIONS = "worker_transitions"

#: Tables whose rows are about own tasks: their keys are those of the run.
OWN = ("scheduler_transitions", "graph_tasks", "present_tasks")

#: The table that has the lives of keys.
_LIVES = "scheduler_transitions"

#: Tables of the state of a whole worker, whose rows are kept without the key.
WITHOUT_KEY = frozenset({"spills"})

#: Tables that rows of other clients' tasks are removed from, by the column of the key.
BY_KEY = frozenset({
    "claimed_inputs", "executions", "file_opens", "graph_edges", "graph_tasks", "library_reads",
    "log_records", "present_tasks", "reports", "scheduler_transitions", "seen_chunks", "spills",
    "steals", "task_samples", "transfer_end_keys", "unmatched_reports", "worker_log", TRANSITIONS,
})  # fmt: skip

#: The same, by the column of the client.
_BY_CLIENT = frozenset({
    "client_calls", "client_graphs", "client_samples", "client_submissions", "graph_layers",
    "submissions",
})  # fmt: skip

SHARED = BY_KEY | _BY_CLIENT


class OwnKeys:
    """The keys of a client's own tasks.

    Parameters
    ----------
    tables : iterable of pyarrow.Table
        Tables with the keys and their types.
    client : str, optional
        Id of the client, if the run has submissions of others.
    other_lives : pyarrow.Table, optional
        ``process`` and ``seq`` of the scheduler's transitions in lives of these keys that belong to
        other clients.
    """

    def __init__(
        self,
        tables: Iterable[pa.Table],
        client: str | None = None,
        other_lives: pa.Table | None = None,
    ) -> None:
        self._ids, self._client, self._other_lives = KeyIds(), client, other_lives
        self._own = np.unique(np.concatenate([self._numbers(table) for table in tables]))

    def _numbers(self, table: pa.Table) -> npt.NDArray[np.int64]:
        ids = self._ids.add_to(table.select(["key", "key_type"]))["_key"]
        return pc.fill_null(ids, -1).to_numpy()  # type: ignore[no-any-return]

    def split(self, name: str, table: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Return the rows of a table about own tasks and about no task, and those of others.

        Parameters
        ----------
        name : str
            Name of the table.
        table : pyarrow.Table
            Its rows.
        """
        if name in _BY_CLIENT and self._client is not None:
            own = pc.equal(table["client"].cast(pa.string()), self._client)
            return table.filter(pc.fill_null(own, False)), table.slice(0, 0)  # noqa: FBT003
        if name not in BY_KEY or not len(table):
            return table, table.slice(0, 0)
        keys = self._numbers(table)
        others = (keys >= 0) & ~np.isin(keys, self._own)
        if name == _LIVES and self._other_lives is not None:
            others |= _contained(table, self._other_lives)
        if not others.any():
            return table, table.slice(0, 0)
        own = pa.array(~others)
        if name in WITHOUT_KEY:
            for column in ("key", "key_type"):
                text = pc.if_else(
                    own, table[column].cast(pa.string()), pa.scalar(None, pa.string())
                )
                index = table.schema.get_field_index(column)
                field = table.schema.field(index)
                table = table.set_column(index, field, as_type(text, field.type))
            return table, table.slice(0, 0)
        return table.filter(own), table.filter(pa.array(others))


def _contained(table: pa.Table, rows: pa.Table) -> npt.NDArray[np.bool_]:
    """Return whether the process and seq of each row are among others."""
    found = np.zeros(len(table), bool)
    seqs, processes = table["seq"].to_numpy(), table["process"].cast(pa.string())
    for process in pc.unique(rows["process"].cast(pa.string())):
        of_process = rows.filter(pc.equal(rows["process"].cast(pa.string()), process))
        same = pc.fill_null(pc.equal(processes, process), False).to_numpy()  # noqa: FBT003
        found |= same & np.isin(seqs, of_process["seq"].to_numpy())
    return found
