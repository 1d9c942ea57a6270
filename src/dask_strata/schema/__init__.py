"""Every table and column of a run, once.

The recorder writes by these definitions, the reader builds Arrow tables from them, the
documentation and ``dask-strata map`` are made from them. Nothing heavy is imported here,
because this module is loaded into every worker.

A column has a *kind*:

=========  ==========================================  ============================
kind       on reading (Arrow)                          how the recorder hands it over
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

Unknown is null in each of them.
"""

from __future__ import annotations

from dask_strata.schema.columns import INTERVAL, LEFT_OUT, NO_USER, REDACTED, Column, Kind, Table
from dask_strata.schema.derived import DERIVED as _DERIVED
from dask_strata.schema.dynamic import RECORD, SCHEDULER, WORKERS
from dask_strata.schema.executions import PROCESSES, THREADS
from dask_strata.schema.keys import KEY_MARK, split_wire_key, wire_key
from dask_strata.schema.processes import SYSTEM, SYSTEM_DERIVED
from dask_strata.schema.profiles import PROFILES
from dask_strata.schema.static import CLIENT, JOB

FORMAT_VERSION = 1

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        *(*JOB, *CLIENT, *SCHEDULER, *WORKERS, *PROCESSES, *THREADS, *SYSTEM, *PROFILES, *RECORD),
        *(*_DERIVED, *SYSTEM_DERIVED),
    )
}

RECORDED = {name: table for name, table in TABLES.items() if not table.derived}
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
    "Column",
    "Kind",
    "Table",
    "split_wire_key",
    "wire_key",
]
