"""The published JSON Schema: it is that of the code, and agrees with `decode`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from dask_strata.brokers.json_rows import column_kinds
from dask_strata.brokers.json_schema import schema_text
from dask_strata.brokers.message import decode
from dask_strata.errors import MessageError
from dask_strata.schema import RECORDED
from tests.support.streams import first_and_last, messages_of, simple_messages

PAGE = Path(__file__).parents[2] / "docs" / "messages.schema.json"


@pytest.fixture(scope="module")
def validator() -> Any:
    """A validator of the published file."""
    schema = json.loads(PAGE.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_the_file_is_up_to_date() -> None:
    """Made by `python -m dask_strata.brokers.json_schema > docs/messages.schema.json`."""
    assert PAGE.read_text(encoding="utf-8") == schema_text()


def test_messages_are_valid(validator: Any) -> None:
    """Rows of all tables with values of all kinds, and the first and last message."""
    for message in (*first_and_last("r"), *messages_of("r", "worker-1", rows=4)):
        validator.validate(json.loads(message.data))


def test_each_column_is_in_the_schema(validator: Any) -> None:
    """Another implementation than the generator's: by the names in the file."""
    for name, table in RECORDED.items():
        properties = validator.schema["$defs"][f"row-{name}"]["properties"]
        assert list(properties) == list(column_kinds(table))


@pytest.mark.parametrize(
    "changes",
    [
        {"strata": 2},
        {"kind": "drop"},
        {"table": "nope"},
        {"table": "attempts"},
        {"seq": -1},
        {"seq": None},
        {"process": None},
        {"row": [1]},
        {"row": {"name": 3}},
        {"table": "losses", "row": {"count": 1.5}},
        {"table": "losses", "row": {"time": -1}},
        {"table": "executions", "row": {"cpu_seconds": "NaN"}},
        {"table": "scheduler_transitions", "row": {"startstops": [{"start": "now"}]}},
        {"kind": "end", "row": {"rows": {}}},
        {"kind": "run", "row": {"run": "r"}},
    ],
)
def test_the_schema_refuses_what_the_reader_refuses(
    validator: Any, changes: dict[str, Any]
) -> None:
    """So that a producer can check its messages with the schema."""
    facts = {**json.loads(simple_messages("r", "p", range(1))[0].data), **changes}
    assert not validator.is_valid(facts)
    with pytest.raises(MessageError):
        decode(json.dumps(facts).encode())
