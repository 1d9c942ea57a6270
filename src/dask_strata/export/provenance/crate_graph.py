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
_TERMS = {
    "resourceUsage": "https://w3id.org/ro/terms/workflow-run#resourceUsage",
    "sha256": "https://w3id.org/ro/terms/workflow-run#sha256",
    "buildInstructions": "https://codemeta.github.io/terms/buildInstructions",
}


def ref(identifier: str) -> dict[str, str]:
    """Return a reference to an entity."""
    return {"@id": identifier}


def refs(identifiers: Iterable[str]) -> list[dict[str, str]]:
    """Return references to entities, each once."""
    return [ref(each) for each in dict.fromkeys(identifiers)]


def moment(text: str | None) -> str | None:
    """Return a moment in milliseconds, which validators of crates accept.

    >>> moment("2026-11-26T13:30:32.281510+00:00")
    '2026-11-26T13:30:32.281+00:00'
    """
    return None if text is None else f"{text[:23]}+00:00"


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
            of an iterator, which has one at least, are written as references, one at a time. A
            list with one value is written as the value.
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
                single = isinstance(value, list) and len(value) == 1
                self._file.write(json.dumps(_clean(value[0] if single else value)))
        self._file.write("}")

    def _references(self, identifiers: Iterator[str]) -> None:
        first = json.dumps(ref(next(identifiers)))
        second = next(identifiers, None)
        if second is None:
            self._file.write(first)
            return
        self._file.write(f"[{first}, {json.dumps(ref(second))}")
        self._file.writelines(f", {json.dumps(ref(each))}" for each in identifiers)
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
