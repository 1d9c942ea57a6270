"""The workflow of a crate: its script, tools, steps, software, and settings."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dask_strata.export.provenance.crate_graph import Graph, ref, refs
from dask_strata.export.provenance.facts import MOMENT, Facts, Script
from dask_strata.export.provenance.identifiers import encode
from dask_strata.export.provenance.reading import Reading
from dask_strata.schema import LEFT_OUT

#: Prefixes whose tasks had attempts, in the order of their start.
TOOLS = f"""
    with ran as (
        select prefix, count(*) as n_tasks, count(*) filter (state = 'erred') as n_erred,
               min(exception) filter (state = 'erred') as exception,
               list_sort(list(distinct function) filter (function is not null))
                   as functions
        from tasks where n_attempts > 0 and prefix is not null group by prefix
    ), timed as (
        select prefix, min(start) as first, {MOMENT.format("min(start)")} as start,
               case when count(*) = count(stop) then {MOMENT.format("max(stop)")} end as stop,
               count(*) as n_attempts, sum(compute_seconds) as compute_seconds,
               sum(cpu_seconds) as cpu_seconds
        from attempts where prefix is not null group by prefix
    )
    select prefix, n_tasks, n_attempts, n_erred, exception, functions, start, stop,
           compute_seconds, cpu_seconds
    from ran left join timed using (prefix) order by first, prefix
"""  # noqa: S608  expressions of this package

#: Settings that are not defaults. The recorder's own are no part of the workflow.
_SETTINGS = """
    select distinct name, value from config
    where source is distinct from 'default' and value is not null
      and not starts_with(name, 'dask_strata.') order by name, value limit 2000
"""

_PACKAGES = """
    select distinct k.name, k.version from packages k where k.process = (
        select k.process from packages k join processes p using (process)
        order by case p.role when 'client' then 0 when 'scheduler' then 1 else 2 end,
                 p.start, k.process limit 1)
    order by k.name, k.version
"""

_HOMES = {
    "dask": "https://docs.dask.org/",
    "distributed": "https://distributed.dask.org/",
    "dask-strata": "https://pypi.org/project/dask-strata/",
    "Python": "https://www.python.org/",
}

_PARAMETER = "https://bioschemas.org/profiles/FormalParameter/1.0-RELEASE"
_WORKFLOW = "https://bioschemas.org/profiles/ComputationalWorkflow/1.0-RELEASE"
_REQUIREMENTS = "https://pip.pypa.io/en/stable/reference/requirements-file-format/"


@dataclass(frozen=True)
class Tool:
    """A prefix whose tasks had attempts: the columns of `TOOLS`."""

    prefix: str
    n_tasks: int
    n_attempts: int | None
    n_erred: int
    exception: str | None
    functions: list[str] | None
    start: str | None
    stop: str | None
    compute_seconds: float | None
    cpu_seconds: float | None

    @property
    def id(self) -> str:
        """Identifier of the tool."""
        return f"#tool-{encode(self.prefix)}"

    @property
    def step(self) -> str:
        """Identifier of the step."""
        return f"#step-{encode(self.prefix)}"


def tools_of(reading: Reading) -> list[Tool]:
    """Return the prefixes whose tasks had attempts."""
    return [Tool(*row) for row in reading.columns(TOOLS)]


def software_id(name: str, version: str) -> str:
    """Return the IRI of a version of a package."""
    if name == "Python":
        return f"https://www.python.org/downloads/release/python-{quote(version.replace('.', ''))}/"
    return f"https://pypi.org/project/{quote(name)}/{quote(version, safe='+')}/"


def add_software(graph: Graph, facts: Facts) -> str:
    """Write the software, and return the identifier of the engine: Dask.distributed."""
    engine = None
    for name, version in facts.software:
        graph.add(
            {
                "@id": software_id(name, version),
                "@type": "SoftwareApplication",
                "name": "Dask.distributed" if name == "distributed" else name,
                "softwareVersion": version,
                "url": ref(_HOMES[name]),
            }
        )
        if name == "distributed":
            engine = engine or software_id(name, version)
    if engine is None:
        engine = "https://pypi.org/project/distributed/"
        named = {"@id": engine, "@type": "SoftwareApplication", "name": "Dask.distributed"}
        graph.add({**named, "url": ref(_HOMES["distributed"])})
    return engine


def add_tools(graph: Graph, tools: Iterable[Tool]) -> None:
    """Write a tool and a step for each prefix."""
    for position, tool in enumerate(tools, 1):
        functions = ", ".join(tool.functions or ())
        graph.add(
            {
                "@id": tool.id,
                "@type": "SoftwareApplication",
                "name": tool.prefix,
                "description": f"Tasks of Dask with this prefix; functions: {functions}."
                if functions
                else "Tasks of Dask with this prefix.",
            }
        )
        graph.add(
            {
                "@id": tool.step,
                "@type": "HowToStep",
                "name": tool.prefix,
                "position": str(position),
                "workExample": ref(tool.id),
            }
        )


def add_settings(graph: Graph, reading: Reading, script: Script | None) -> tuple[list[str], ...]:
    """Write arguments and settings; return identifiers of parameters and of their values."""
    rows: dict[str, list[str]] = {}
    argv = None if script is None else script.fact("argv")
    if argv is not None:
        rows["#arguments"] = [argv]
    names = {"#arguments": "command line of the script, as JSON"}
    for name, value in reading.columns(_SETTINGS):
        if value == LEFT_OUT:
            continue
        identifier = f"#setting-{encode(name)}"
        names[identifier] = name
        rows.setdefault(identifier, []).append(value)
    parameters, found = [], []
    for identifier, values in rows.items():
        ids = [f"{identifier}-value-{n}" for n in range(1, len(values) + 1)]
        for each, value in zip(ids, values, strict=True):
            described = {"@id": each, "@type": "PropertyValue", "name": names[identifier]}
            graph.add({**described, "value": value, "exampleOfWork": ref(identifier)})
        graph.add(_parameter(identifier, names[identifier], "Text", ids))
        parameters.append(identifier)
        found += ids
    return parameters, found


def add_file_parameter(graph: Graph, kind: str, files: list[str]) -> list[str]:
    """Write the parameter of files that are read (input) or written (output); return its id."""
    if not files:
        return []
    names = {"input": "files that tasks read", "output": "files that tasks wrote"}
    graph.add(_parameter(f"#{kind}-files", names[kind], "File", files) | {"multipleValues": True})
    return [f"#{kind}-files"]


def _parameter(identifier: str, name: str, kind: str, examples: list[str]) -> dict[str, Any]:
    return {
        "@id": identifier,
        "@type": "FormalParameter",
        "name": name,
        "additionalType": kind,
        "conformsTo": ref(_PARAMETER),
        "workExample": refs(examples),
    }


def write_scripts(folder: Path, facts: Facts) -> dict[str, tuple[str, str | None]]:
    """Write the scripts whose text is on record.

    Returns
    -------
    dict of str to (str, str or None)
        Path in the crate and description by process.
    """
    found: dict[str, tuple[str, str | None]] = {}
    for script in facts.scripts:
        text = script.fact("text")
        if text is None:
            continue
        name = re.sub(r"[^A-Za-z0-9._-]", "_", script.name)[:100].lstrip(".") or "script"
        # Of a notebook, the code of its cells is on record.
        name += ".py" if script.name.endswith(".ipynb") or "." not in name else ""
        path = f"script/{name}"
        if path in [each for each, _ in found.values()]:
            path = f"script/{encode(script.process)}-{name}"
        (folder / "script").mkdir(exist_ok=True)
        raw = text.encode("utf-8", "replace")
        (folder / path).write_bytes(raw)
        same = hashlib.sha256(raw).hexdigest() == script.fact("sha256")
        found[script.process] = path, None if same else _DIFFERS
    return found


_DIFFERS = (
    "The text as it is on record; it differs from the file, as secrets were redacted, it was cut, "
    "or only the code of a notebook is on record."
)


def write_outline(folder: Path, tools: Iterable[Tool], edges: Iterable[tuple[str, str]]) -> str:
    """Write the steps of a workflow whose script is not on record; return the path."""
    outline = {
        "steps": [{"name": tool.prefix, "functions": tool.functions or []} for tool in tools],
        "dependencies": [{"step": a, "depends_on": b} for a, b in edges],
    }
    (folder / "workflow.json").write_text(json.dumps(outline, indent=1) + "\n", encoding="utf-8")
    return "workflow.json"


def write_requirements(folder: Path, reading: Reading) -> str | None:
    """Write the packages of a client, or of another process; return the path."""
    name, version = re.compile(r"[A-Za-z0-9][\w.-]*"), re.compile(r"[\w.+!-]+")
    lines = [
        f"{row[0]}=={row[1]}\n"
        for row in reading.columns(_PACKAGES)
        if name.fullmatch(row[0] or "") and version.fullmatch(row[1] or "")
    ]
    if not lines:
        return None
    (folder / "requirements.txt").write_text("".join(lines), encoding="utf-8")
    return "requirements.txt"


def file_entity(folder: Path, path: str, **more: Any) -> dict[str, Any]:
    """Return the entity of a file in the crate."""
    with (folder / path).open("rb") as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
    return {
        "@id": quote(path),
        "@type": "File",
        "name": path.rpartition("/")[2],
        "contentSize": str((folder / path).stat().st_size),
        "sha256": digest.hexdigest(),
        **more,
    }


def main_workflow(
    folder: Path, path: str, facts: Facts, tools: list[Tool], **more: Any
) -> dict[str, Any]:
    """Return the entity of the workflow: the script, or the outline of its steps."""
    versions = [software_id(name, version) for name, version in facts.software]
    entity = file_entity(folder, path)
    return {
        **entity,
        "@type": ["File", "SoftwareSourceCode", "ComputationalWorkflow", "HowTo"],
        "conformsTo": ref(_WORKFLOW),
        "encodingFormat": "application/json" if path.endswith(".json") else "text/x-python",
        "programmingLanguage": ref("#python"),
        "softwareRequirements": refs(versions),
        "hasPart": refs(tool.id for tool in tools),
        "step": refs(tool.step for tool in tools),
        **more,
    }


def add_language(graph: Graph, facts: Facts) -> None:
    """Write the language of the workflow."""
    versions = [version for name, version in facts.software if name == "Python"]
    graph.add(
        {
            "@id": "#python",
            "@type": "ComputerLanguage",
            "name": "Python",
            "url": ref(_HOMES["Python"]),
            "version": versions[0] if len(versions) == 1 else None,
        }
    )


def requirements_entity(folder: Path, path: str) -> dict[str, Any]:
    """Return the entity of the list of packages."""
    return file_entity(folder, path, encodingFormat="text/plain", conformsTo=ref(_REQUIREMENTS))
