"""The JSON Schema of messages, generated from the definitions of tables and columns."""

from __future__ import annotations

import json
import sys
from typing import Any

from dask_strata.brokers.json_rows import column_kinds
from dask_strata.brokers.message import MESSAGE_VERSION
from dask_strata.schema import RECORDED, Kind, Table
from dask_strata.store.limits import COUNT, TIME_NS
from dask_strata.store.segments.collect import ARROW_TYPES

_INT64 = 1 << 63
_TIME = {"type": "integer", "minimum": 0, "maximum": TIME_NS}
_NOT_FINITE = {"enum": ["NaN", "Infinity", "-Infinity"]}

#: Schema of a value of each kind.
_KINDS: dict[Kind, dict[str, Any]] = {
    "time": {**_TIME, "description": "nanoseconds since the epoch"},
    "seconds": {"type": "number", "minimum": -COUNT, "maximum": COUNT},
    "bytes": {"type": "integer", "minimum": -COUNT, "maximum": COUNT},
    "int": {"type": "integer", "minimum": -_INT64, "maximum": _INT64 - 1},
    "float": {"anyOf": [{"type": "number"}, _NOT_FINITE]},
    "bool": {"type": "boolean"},
    "text": {"type": "string"},
    "long": {"type": "string"},
    "key": {"type": "string", "description": "text of a key; the column key_type has its type"},
    "intervals": {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "action": {"type": ["string", "null"]},
                "start": {"anyOf": [_TIME, {"type": "null"}]},
                "stop": {"anyOf": [_TIME, {"type": "null"}]},
                "source": {"type": ["string", "null"]},
            },
        },
    },
}


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of all messages, with the Arrow type of each kind of value.

    >>> json_schema()["$defs"]["kind-time"]["arrow"]
    'timestamp[ns, tz=UTC]'
    """
    kinds = {
        f"kind-{kind}": {"anyOf": [schema, {"type": "null"}], "arrow": str(ARROW_TYPES[kind])}
        for kind, schema in _KINDS.items()
    }
    rows = {f"row-{name}": _row(table) for name, table in RECORDED.items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Message of a stream of dask-strata",
        "type": "object",
        "required": ["strata", "run", "kind", "row"],
        "properties": {
            "strata": {"const": MESSAGE_VERSION},
            "run": {"type": "string", "description": "id of the run"},
            "kind": {"enum": ["row", "run", "end"]},
            "table": {"enum": [*RECORDED, None]},
            "process": {"type": ["string", "null"], "description": "process of the row"},
            "seq": {
                "type": ["integer", "null"],
                "minimum": 0,
                "description": "number of the row among all rows of its process",
            },
            "cut": {
                "type": "array",
                "items": {"type": "string"},
                "description": "columns that are missing because the row was too large",
            },
            "row": {"type": "object"},
        },
        "allOf": [
            {
                "if": _property("kind", "row"),
                "then": {
                    "required": ["table", "process", "seq"],
                    "properties": {
                        "table": {"type": "string"},
                        "process": {"type": "string"},
                        "seq": {"type": "integer"},
                    },
                    "allOf": [{"$ref": "#/$defs/row-of-table"}],
                },
            },
            {"if": _property("kind", "run"), "then": _property_ref("row", "run")},
            {"if": _property("kind", "end"), "then": _property_ref("row", "end")},
        ],
        "$defs": {**kinds, "run": _RUN, "end": _END, "row-of-table": _row_of_table(), **rows},
    }


_RUN = {
    "description": "contents of run.json",
    "type": "object",
    "required": ["run", "name", "created_ns", "version"],
    "properties": {
        "run": {"type": "string"},
        "name": {"type": "string"},
        "created_ns": _TIME,
        "version": {"type": "string"},
    },
}

_END = {
    "description": "state of the run, and number of rows by process and table",
    "type": "object",
    "required": ["state", "rows"],
    "properties": {
        "state": {"type": "string"},
        "rows": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "additionalProperties": {"type": "integer", "minimum": 0},
            },
        },
    },
}


def _row_of_table() -> dict[str, Any]:
    """Return the choice of a row's schema by the table."""
    return {
        "allOf": [
            {"if": _property("table", name), "then": _property_ref("row", f"row-{name}")}
            for name in RECORDED
        ]
    }


def _property(name: str, value: str) -> dict[str, Any]:
    return {"properties": {name: {"const": value}}}


def _property_ref(name: str, definition: str) -> dict[str, Any]:
    return {"properties": {name: {"$ref": f"#/$defs/{definition}"}}}


def _row(table: Table) -> dict[str, Any]:
    """Return the schema of a row; a missing column is null."""
    columns = {name: {"$ref": f"#/$defs/kind-{kind}"} for name, kind in column_kinds(table).items()}
    return {"description": f"one row per {table.row}", "type": "object", "properties": columns}


def schema_text() -> str:
    """Return the JSON Schema as text, a definition a line."""
    schema = json_schema()
    lines = [f"{json.dumps(name)}: {json.dumps(d)}" for name, d in schema.pop("$defs").items()]
    head = json.dumps(schema, indent=1)
    return f'{head[:-2]},\n "$defs": {{\n  ' + ",\n  ".join(lines) + "\n }\n}\n"


if __name__ == "__main__":
    sys.stdout.write(schema_text())
