"""The graph of an RO-Crate's metadata file, which is written entity by entity."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TextIO

from dask_strata.export.provenance.identifiers import plain

CRATE = "https://w3id.org/ro/crate/1.1"
WORKFLOW_CRATE = "https://w3id.org/workflowhub/workflow-ro-crate/1.0"
PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": ("Process Run Crate", "0.5"),
    "https://w3id.org/ro/wfrun/workflow/0.5": ("Workflow Run Crate", "0.5"),
    "https://w3id.org/ro/wfrun/provenance/0.5": ("Provenance Run Crate", "0.5"),
    WORKFLOW_CRATE: ("Workflow RO-Crate", "1.0"),
}

#: The terms of Workflow Run Crates that the context of RO-Crate 1.1 lacks.
_TERMS = {"resourceUsage": "https://w3id.org/ro/terms/workflow-run#resourceUsage"}


def ref(identifier: str) -> dict[str, str]:
    """Return a reference to an entity."""
    return {"@id": identifier}


def refs(identifiers: Iterable[str]) -> list[dict[str, str]]:
    """Return references to entities, each once."""
    return [ref(each) for each in dict.fromkeys(identifiers)]


class Graph:
    """Writes entities into the metadata file.

    Parameters
    ----------
    file : text file
        The file.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._n = 0
        file.write(f'{{"@context": {json.dumps([f"{CRATE}/context", _TERMS])}, "@graph": [')

    def add(self, entity: Mapping[str, Any]) -> None:
        """Write an entity.

        Parameters
        ----------
        entity : mapping
            Its properties. Those that are None or an empty list are left out, and the identifiers
            of an iterator are written as references, one at a time.
        """
        self._file.write(",\n{" if self._n else "\n{")
        self._n += 1
        separator = ""
        for name, value in entity.items():
            if value is None or value == []:
                continue
            self._file.write(f'{separator}"{name}": ')
            separator = ", "
            if isinstance(value, Iterator):
                self._references(value)
            else:
                self._file.write(json.dumps(_clean(value)))
        self._file.write("}")

    def _references(self, identifiers: Iterator[str]) -> None:
        self._file.write("[")
        for n, each in enumerate(identifiers):
            self._file.write(f"{', ' if n else ''}{json.dumps(ref(each))}")
        self._file.write("]")

    def end(self) -> None:
        """Write the end of the file."""
        self._file.write("\n]}\n")


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, list):
        return [_clean(each) for each in value]
    if isinstance(value, dict):
        return {name: _clean(each) for name, each in value.items()}
    return value
