"""The rules of WfFormat 1.5's JSON schema, as WfCommons publishes them, stated here anew.

No package contains the schema, and WfCommons downloads it, which tests do not do.
"""

from __future__ import annotations

from typing import Any

#: Ids of tasks are stricter in the first schema 1.5 than in later ones: these hold for all.
_ID = r"^[0-9a-zA-Z-_.]*$"


def _text(**rules: Any) -> dict[str, Any]:
    return {"type": "string", "minLength": 1, **rules}


def _list(items: dict[str, Any], least: int = 0) -> dict[str, Any]:
    return {"type": "array", "minItems": least, "items": items}


def _object(required: str = "", /, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required.split()}


_NUMBER = {"type": "number"}
_IDS = _list({"type": "string", "pattern": _ID})
_COUNT = {"type": "integer", "minimum": 1}

_TASK = _object(
    "name id parents children",
    name=_text(),
    id=_text(pattern=_ID),
    parents=_IDS,
    children=_IDS,
    inputFiles=_list(_text(pattern=_ID)),
    outputFiles=_list(_text(pattern=_ID)),
)

_EXECUTED = _object(
    "id runtimeInSeconds",
    id=_text(),
    runtimeInSeconds=_NUMBER,
    executedAt=_text(),
    command=_object(program=_text(), arguments=_list(_text())),
    coreCount={"type": "number", "minimum": 1},
    avgCPU=_NUMBER,
    readBytes=_NUMBER,
    writtenBytes=_NUMBER,
    memoryInBytes=_NUMBER,
    priority=_NUMBER,
    machines=_list(_text()),
)

_MACHINE = _object(
    "nodeName",
    system=_text(enum=["linux", "macos", "windows"]),
    architecture=_text(),
    nodeName=_text(format="hostname"),
    release=_text(),
    memoryInBytes=_COUNT,
    cpu=_object(coreCount=_COUNT, speedInMHz=_COUNT, vendor=_text()),
)

_SPECIFICATION = _object(
    "tasks",
    tasks=_list(_TASK, 1),
    files=_list(
        _object(
            "id sizeInBytes", id=_text(pattern=_ID), sizeInBytes={"type": "integer", "minimum": 0}
        )
    ),
)

_EXECUTION = _object(
    "makespanInSeconds executedAt tasks",
    makespanInSeconds=_NUMBER,
    executedAt=_text(),
    tasks=_list(_EXECUTED, 1),
    machines=_list(_MACHINE, 1),
)


def schema(*versions: str) -> dict[str, Any]:
    """Return the schema, for instances of some versions."""
    return {
        "$schema": "http://json-schema.org/schema#",
        **_object(
            "name schemaVersion workflow",
            name=_text(),
            description=_text(),
            createdAt=_text(format="date-time"),
            schemaVersion=_text(enum=list(versions)),
            runtimeSystem=_object(
                "name version", name=_text(), version=_text(), url=_text(format="uri")
            ),
            author=_object("name email", name=_text(), email=_text(format="email")),
            workflow=_object("specification", specification=_SPECIFICATION, execution=_EXECUTION),
        ),
    }
