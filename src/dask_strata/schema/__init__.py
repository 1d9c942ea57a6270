"""The only definition of all tables and columns of a run.

The recorder writes rows by these definitions, the reader builds Arrow tables from them, and the
documentation and ``dask-strata map`` are generated from them. This module is imported into every
worker, so it imports nothing heavy.

A column has a *kind*:

=========  ==========================================  ============================
kind       on reading (Arrow)                          in the recorder (Python)
=========  ==========================================  ============================
time       timestamp[ns, UTC]                          int, nanoseconds since the epoch
seconds    float64                                     float
bytes      int64                                       int
int        int64                                       int
float      float64                                     float
bool       bool                                        bool
text       dictionary of string (few distinct values)  str
long       string                                      str
key        two columns, ``name`` and ``name_type``     wire text, see :func:`wire_key`
intervals  list of structs, see :data:`INTERVAL`       list of 4-tuples
=========  ==========================================  ============================

An unknown value is null in each of them.
"""

from __future__ import annotations

from dask_strata.schema.client import CLIENT
from dask_strata.schema.columns import INTERVAL, LEFT_OUT, NO_USER, REDACTED, Column, Kind, Table
from dask_strata.schema.derived import DERIVED as _DERIVED
from dask_strata.schema.executions import EXECUTIONS
from dask_strata.schema.graph import GRAPH
from dask_strata.schema.imported import DARSHAN, IMPORTS
from dask_strata.schema.job import JOB
from dask_strata.schema.keys import KEY_MARK, recorded_text, split_wire_key, wire_key
from dask_strata.schema.measured.interruptions import INTERRUPTIONS
from dask_strata.schema.measured.logs import DERIVED_LOGS, LOGS
from dask_strata.schema.measured.spans import SPANS, SPANS_DERIVED
from dask_strata.schema.measured.stuck import STUCK
from dask_strata.schema.processes import PROCESSES
from dask_strata.schema.profiles import MEASUREMENTS, PROFILES
from dask_strata.schema.record import RECORD
from dask_strata.schema.scheduler import SCHEDULER
from dask_strata.schema.worker import WORKERS

FORMAT_VERSION = 2

#: All tables by name, in the order of the documentation.
TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        *(*JOB, *CLIENT, *GRAPH, *SCHEDULER, *WORKERS, *PROCESSES, *EXECUTIONS, *INTERRUPTIONS),
        *(*SPANS, *STUCK, *LOGS, *DARSHAN, *PROFILES, *MEASUREMENTS, *RECORD, *IMPORTS),
        *(*_DERIVED, *SPANS_DERIVED, *DERIVED_LOGS),
    )
}

RECORDED = {name: table for name, table in TABLES.items() if not table.derived}
#: Recorded tables whose rows have no column ``seq``, though the recorder numbers them, too.
WITHOUT_SEQ = frozenset(name for name, table in RECORDED.items() if not table.events)
DERIVED = {name: table for name, table in TABLES.items() if table.derived}

__all__ = [
    "DERIVED",
    "FORMAT_VERSION",
    "INTERVAL",
    "KEY_MARK",
    "LEFT_OUT",
    "NO_USER",
    "RECORDED",
    "REDACTED",
    "TABLES",
    "WITHOUT_SEQ",
    "Column",
    "Kind",
    "Table",
    "recorded_text",
    "split_wire_key",
    "wire_key",
]
