"""Provenance Run Crate: the run as a research object, a folder that archives accept."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, ClassVar

from dask_strata.analysis.outcome import exit_status_of, outcome_of
from dask_strata.errors import UsageError
from dask_strata.export.exporter import Exporter, Job, Option
from dask_strata.export.provenance import crate_actions as actions
from dask_strata.export.provenance import crate_workflow as workflow
from dask_strata.export.provenance.crate_files import UsedFile, used_files
from dask_strata.export.provenance.crate_graph import (
    CRATE,
    PROFILES,
    WORKFLOW_CRATE,
    Graph,
    moment,
    ref,
    refs,
)
from dask_strata.export.provenance.facts import Facts, facts_of
from dask_strata.export.provenance.identifiers import encode
from dask_strata.export.provenance.reading import Reading
from dask_strata.export.tabular.parquet_files import ParquetFiles
from dask_strata.run import Run

_METADATA = "ro-crate-metadata.json"
_BUFFER = 1 << 20
_RUN = "#run"

_LICENSE = re.compile(r"https?://[^\s<>\"{}|\\^`]+")

#: Of a crate whose license was not chosen: nothing is granted in the name of others.
_NO_LICENSE = {
    "@id": "#license",
    "@type": "CreativeWork",
    "name": "No license was stated",
    "description": "Whoever wrote this crate chose no license: ask the owner of the run.",
}

_STATUS = {
    "finished": actions.COMPLETED,
    "failed": actions.FAILED,
    "cancelled": actions.FAILED,
    "cut off": actions.FAILED,
}


@dataclass
class _Crate:
    """What the parts of a crate share."""

    folder: Path
    graph: Graph
    reading: Reading
    facts: Facts
    agents: list[str]
    files: list[UsedFile]
    tools: list[workflow.Tool]
    edges: list[tuple[str, str]]
    #: Data of the root, and values of parameters.
    parts: list[str] = field(default_factory=list)
    values: list[str] = field(default_factory=list)

    @property
    def job(self) -> Job:
        """The export."""
        return self.reading.job


class RoCrate(Exporter):
    """A run as a Provenance Run Crate 0.5, on RO-Crate 1.1."""

    name: ClassVar[str] = "ro-crate"
    summary: ClassVar[str] = "Provenance Run Crate 0.5: a folder for archives and WorkflowHub"
    suffix: ClassVar[str] = ""
    options: ClassVar[tuple[Option, ...]] = (
        Option("tables", "all tables inside, as Parquet"),
        Option("tasks", "an action for each task, in place of each prefix"),
        Option("no-hashes", "do not read input and output files to hash them"),
    )
    value_names: ClassVar[tuple[str, ...]] = ("license",)

    def write(self, run: Run, path: Path, job: Job) -> None:
        """Write the folder.

        Parameters
        ----------
        run : Run
            The run.
        path : Path
            The folder.
        job : Job
            The options and the license.

        Raises
        ------
        UsageError
            The license is no URL.
        """
        license_ = job.values.get("license")
        if license_ is not None and not _LICENSE.fullmatch(license_):
            raise UsageError(
                f"The license {license_!r} is not a URL.",
                hint="For example: --license https://spdx.org/licenses/CC-BY-4.0",
            )
        path.mkdir()
        reading = Reading(run, job)
        facts = facts_of(run)
        files = used_files(reading, facts, hashes="no-hashes" not in job.options)
        tools, edges = workflow.tools_of(reading), actions.edges_of(reading)
        agents = [f"#user-{encode(name)}" for name in facts.user_names]
        with (path / _METADATA).open("w", encoding="utf-8", buffering=_BUFFER) as file:
            graph = Graph(file)
            crate = _Crate(path, graph, reading, facts, agents, files, tools, edges)
            _write(crate, license_)
            graph.end()


def _write(crate: _Crate, license_: str | None) -> None:
    graph, facts, job = crate.graph, crate.facts, crate.job
    graph.add(
        {
            "@id": _METADATA,
            "@type": "CreativeWork",
            "about": ref("./"),
            "conformsTo": [ref(CRATE), ref(WORKFLOW_CRATE)],
        }
    )
    for profile, (name, version) in PROFILES.items():
        graph.add({"@id": profile, "@type": "CreativeWork", "name": name, "version": version})
    for identifier, name in zip(crate.agents, facts.user_names, strict=True):
        graph.add({"@id": identifier, "@type": "Person", "name": name})
    engine = workflow.add_software(graph, facts)
    workflow.add_language(graph, facts)
    if not crate.tools:
        crate.tools.append(_nothing(job))
    workflow.add_tools(graph, crate.tools)
    for file in crate.files:
        graph.add(file.entity)
    crate.parts += [file.id for file in crate.files]
    main = _add_workflow(crate)
    mentions = _add_actions(crate, main, engine)
    if "tables" in job.options:
        _add_tables(crate)
    _add_root(crate, main, mentions, license_)
    outside = len({file.id for file in crate.files})
    job.counts.update(files=outside, tools=len(crate.tools))


def _nothing(job: Job) -> workflow.Tool:
    job.note("No task ran: the only tool of the workflow is a placeholder.")
    return workflow.Tool("nothing ran", 0, 0, 0, None, None, None, None, None, None)


def _add_workflow(crate: _Crate) -> str:
    """Write the scripts, the list of packages, and parameters; return the main script."""
    graph, facts, folder = crate.graph, crate.facts, crate.folder
    scripts = workflow.write_scripts(folder, facts)
    first = facts.scripts[0] if facts.scripts else None
    if first is not None and first.process in scripts:
        main, description = scripts[first.process]
    else:
        main = workflow.write_outline(folder, crate.tools, crate.edges)
        description = "The steps of the workflow; the text of its script is not on record."
        crate.job.note("The text of the script is not on record: the workflow is its steps.")
    packages = workflow.write_requirements(folder, crate.reading)
    settings, crate.values = workflow.add_settings(graph, crate.reading, first)
    inputs = [file.id for file in crate.files if file.read and not file.id.endswith("/")]
    outputs = [file.id for file in crate.files if file.written and not file.id.endswith("/")]
    given = workflow.add_file_parameter(graph, "input", inputs)
    made = workflow.add_file_parameter(graph, "output", outputs)
    graph.add(
        workflow.main_workflow(
            folder,
            main,
            facts,
            crate.tools,
            description=description,
            input=refs([*settings, *given]),
            output=refs(made),
            codeRepository=None if first is None else first.fact("git_remote"),
            version=None if first is None else first.fact("git_commit"),
            buildInstructions=None if packages is None else ref(packages),
        )
    )
    for path, text in scripts.values():
        if path != main:
            entity = workflow.file_entity(folder, path, description=text)
            graph.add(entity | {"@type": ["File", "SoftwareSourceCode"]})
            crate.parts.append(entity["@id"])
    if packages is not None:
        graph.add(workflow.requirements_entity(folder, packages))
        crate.parts.append(packages)
    crate.parts.append(main)
    return main


def _add_actions(crate: _Crate, main: str, engine: str) -> list[str]:
    """Write all actions, and return those that the crate mentions."""
    graph, facts, job = crate.graph, crate.facts, crate.job
    ids = {file.uri: file.id for file in crate.files}
    detailed = "tasks" in job.options and crate.tools[0].n_tasks > 0
    made = set(actions.add_results(graph, crate.reading))
    if detailed:
        job.counts["tasks"] = actions.add_tasks(
            graph, crate.reading, crate.tools, ids, crate.agents
        )
    else:
        job.note("Tasks are aggregated: an action is a prefix. `--with tasks` writes each task.")
        uses = actions.uses_of(crate.reading, crate.edges, ids)
        n = actions.add_prefixes(graph, crate.tools, uses, made, crate.agents)
        job.counts["prefixes"] = n
    graph.add(_run_action(crate, main, made))
    graph.add(
        {
            "@id": "#orchestration",
            "@type": "OrganizeAction",
            "name": "Scheduling by Dask.distributed",
            "instrument": ref(engine),
            "agent": refs(crate.agents),
            "startTime": moment(facts.start),
            "endTime": moment(facts.stop),
            "object": refs(actions.control_id(tool.prefix) for tool in crate.tools),
            "result": ref(_RUN),
        }
    )
    return [_RUN, *([] if detailed else [actions.action_id(tool) for tool in crate.tools])]


def _run_action(crate: _Crate, main: str, made: set[str]) -> dict[str, Any]:
    facts, run = crate.facts, crate.reading.run
    requested = crate.reading.columns(
        "select distinct prefix from graph_tasks where requested and prefix is not null order by 1"
    )
    results = [actions.results_id(prefix) for (prefix,) in requested if prefix in made]
    status = _STATUS.get(outcome_of(run.state, exit_status_of(run)))
    return {
        "@id": _RUN,
        "@type": "CreateAction",
        "name": f"Run of {facts.name}",
        "description": f"Run {facts.run_id}, recorded by dask-strata.",
        "instrument": ref(main),
        "agent": refs(crate.agents),
        "startTime": moment(facts.start),
        "endTime": moment(facts.stop),
        "actionStatus": status,
        "object": refs([*(f.id for f in crate.files if f.read), *crate.values]),
        "result": refs([*(f.id for f in crate.files if f.written), *results]),
    }


def _add_tables(crate: _Crate) -> None:
    """Write all tables of the run as Parquet, and describe them."""
    folder = crate.folder / "tables"
    ParquetFiles().write(crate.reading.run, folder, crate.job)
    found = []
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            path = file.relative_to(crate.folder).as_posix()
            kind = "application/vnd.apache.parquet" if file.suffix == ".parquet" else None
            crate.graph.add(workflow.file_entity(crate.folder, path, encodingFormat=kind))
            found.append(path)
    crate.graph.add(
        {
            "@id": "tables/",
            "@type": "Dataset",
            "name": "Tables of the run",
            "description": "All recorded and derived tables, by dask-strata.",
            "hasPart": refs(found),
        }
    )
    crate.parts.append("tables/")


def _add_root(crate: _Crate, main: str, mentions: list[str], license_: str | None) -> None:
    facts, run = crate.facts, crate.reading.run
    if license_ is None:
        crate.job.note("No license was chosen: the crate states that (--license URL).")
        crate.graph.add(_NO_LICENSE)
    else:
        crate.graph.add({"@id": license_, "@type": "CreativeWork", "name": license_})
    created = datetime.fromtimestamp(run.manifest.created_ns // 10**9, timezone.utc).isoformat()
    about = f"The run {facts.run_id} of {facts.name} on Dask.distributed, recorded by dask-strata."
    crate.graph.add(
        {
            "@id": "./",
            "@type": "Dataset",
            "name": f"{facts.name} {facts.run_id}",
            "description": " ".join([about, *crate.job.notes]),
            # The run's end, so that two exports of a run are equal.
            "datePublished": moment(facts.stop) or created,
            "license": ref(license_ or "#license"),
            "conformsTo": refs(PROFILES),
            "mainEntity": ref(main),
            "hasPart": refs(crate.parts),
            "mentions": refs(mentions),
        }
    )
