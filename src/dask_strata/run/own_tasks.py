"""The tables of a run that has the tasks of one client only.

The scheduler's recorder leaves out the tasks of other clients. Workers cannot, as Dask sends them
no clients: their segments have the rows of all tasks, which reading separates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
_OWN = ("scheduler_transitions", "graph_tasks", "present_tasks")

#: Tables of the state of a whole worker, whose rows are kept without the key.
_WITHOUT_KEY = frozenset({"spills"})

#: Tables that rows of other clients' tasks are removed from.
SHARED = frozenset({
    "executions", "file_opens", "library_reads", "reports", "seen_chunks", "spills", "steals",
    "transfer_end_keys", "worker_log", TRANSITIONS,
})  # fmt: skip


class OwnKeys:
    """The keys of a run's own tasks.

    Parameters
    ----------
    columns : callable
        Returns some columns of a recorded table, for its name and theirs.
    """

    def __init__(self, columns: Callable[[str, Sequence[str]], pa.Table]) -> None:
        self._ids = KeyIds()
        found = [self._numbers(columns(name, ("key", "key_type"))) for name in _OWN]
        self._own = np.unique(np.concatenate(found))

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
        if name not in SHARED or not len(table):
            return table, table.slice(0, 0)
        keys = self._numbers(table)
        others = (keys >= 0) & ~np.isin(keys, self._own)
        if not others.any():
            return table, table.slice(0, 0)
        own = pa.array(~others)
        if name in _WITHOUT_KEY:
            for column in ("key", "key_type"):
                text = pc.if_else(own, table[column].cast(pa.string()), pa.scalar(None, pa.string()))
                index = table.schema.get_field_index(column)
                field = table.schema.field(index)
                table = table.set_column(index, field, as_type(text, field.type))
            return table, table.slice(0, 0)
        return table.filter(own), table.filter(pa.array(others))
