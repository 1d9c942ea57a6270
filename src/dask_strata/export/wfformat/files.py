"""Files that tasks read and wrote, with their sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dask_strata.analysis.series.columns import Ints, columns
from dask_strata.export.json_text import Items, Lists, member

if TYPE_CHECKING:
    from dask_strata.export.wfformat.lives import Lives
    from dask_strata.run import Run

#: Files of known size: as their processes saw them when they opened them to read, or claimed as a
#: whole with their number of bytes.
_SIZES = """
    select uri, max(bytes)::bigint as bytes, min(bytes)::bigint as least from (
        select uri, file_bytes as bytes from file_opens
        union all
        select uri, nbytes from claimed_inputs where first is null and selection is null
    ) where bytes >= 0 and uri is not null group by uri
"""

#: The ending of a name, which WfChef groups files by.
_ENDING = r"regexp_extract(uri, '(\.[0-9A-Za-z]{1,12})$', 1)"

_FILES = f"""
    select *, row_number() over (order by uri) - 1 as number from ({_SIZES}) order by uri
"""  # noqa: S608  no value of the record

_TEXTS = f"""
    select '"file_' || lpad(number::varchar, 7, '0') || {_ENDING} || '"' as id,
           '{{"id":' || id || ',"sizeInBytes":' || bytes || {member("uri", "uri")} || '}}' as text
    from ({_FILES}) order by number
"""  # noqa: S608  no value of the record

_USES = f"""
    with files as ({_FILES})
    select distinct i._key::bigint as key, f.number, i.mode <> 'write' as reads,
           i.mode <> 'read' as writes
    from (select _key, uri, coalesce(mode, 'read') as mode from task_inputs) i
    join files f using (uri) where i._key is not null
"""  # noqa: S608  no value of the record

_COUNTS = f"""
    select (select count(distinct uri) from task_inputs) - count(*) as unknown,
           count(*) filter (bytes <> least) as changed
    from ({_SIZES}) where uri in (select uri from task_inputs)
"""  # noqa: S608  no value of the record


class Files:
    """The files of a run, and which task read and wrote which.

    Parameters
    ----------
    run : Run
        The run.
    lives : Lives
        Its tasks.
    """

    def __init__(self, run: Run, lives: Lives) -> None:
        self._run = run
        counts = run.rows(_COUNTS)[0]
        #: Files whose size is not on record, and files that were seen with several sizes.
        self.unknown, self.changed = counts["unknown"], counts["changed"]
        ids = [batch.column(0) for batch in run.batches(_TEXTS)]
        self._ids = pa.chunked_array(ids, pa.string()).combine_chunks()
        uses = columns(run, _USES)
        rows, task = lives.of_key(uses["key"])
        self.inputs, self.outputs = (
            self._lists(task, uses["number"][rows], uses[mode][rows].astype(np.bool_), len(lives))
            for mode in ("reads", "writes")
        )

    def _lists(self, task: Ints, file: Ints, chosen: Ints, n: int) -> Lists:
        pairs = np.unique(np.column_stack([task[chosen], file[chosen]]), axis=0)
        return Lists(pairs[:, 0], pairs[:, 1], self._id_of, n)

    def _id_of(self, numbers: Ints) -> pa.Array:
        return self._ids.take(pa.array(numbers))

    def __len__(self) -> int:
        return len(self._ids)

    def write(self, items: Items) -> None:
        """Write the list of files."""
        for batch in self._run.batches(_TEXTS):
            items.write(batch.column(1))
