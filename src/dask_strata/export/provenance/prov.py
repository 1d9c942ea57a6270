"""W3C PROV: where each result comes from, as entities, activities and agents."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import ClassVar

from dask_strata.errors import UsageError
from dask_strata.export.exporter import Exporter, Job, Option
from dask_strata.export.provenance import prov_elements, prov_relations
from dask_strata.export.provenance.facts import facts_of
from dask_strata.export.provenance.prov_document import Notation, ProvJson, ProvN, ProvO
from dask_strata.export.provenance.reading import Reading
from dask_strata.run import Run

_BUFFER = 1 << 20

_NAMELESS = "select count(*) as n from attempts where prefix is null"


class Prov(Exporter):
    """The provenance of a run as a W3C PROV document."""

    name: ClassVar[str] = "prov"
    summary: ClassVar[str] = "W3C PROV (PROV-JSON, PROV-N or PROV-O) by prefix or by attempt"
    suffix: ClassVar[str] = ProvJson.suffix
    media_type: ClassVar[str | None] = ProvJson.media_type
    options: ClassVar[tuple[Option, ...]] = (
        Option("attempts", "each attempt is an activity, in place of each prefix"),
        Option("n", "PROV-N in place of PROV-JSON"),
        Option("o", "PROV-O in Turtle in place of PROV-JSON"),
    )

    def output(self, options: Collection[str]) -> tuple[str, str | None]:
        """Return suffix and media type of the chosen notation."""
        notation = _notation(options)
        return notation.suffix, notation.media_type

    def write(self, run: Run, path: Path, job: Job) -> None:
        """Write the document.

        Parameters
        ----------
        run : Run
            The run.
        path : Path
            The file.
        job : Job
            The options.

        Raises
        ------
        UsageError
            Two notations were chosen.
        """
        if {"n", "o"} <= job.options:
            raise UsageError(
                "PROV-N and PROV-O were both chosen, and a document has one notation.",
                hint="Choose one: --with n or --with o",
            )
        detailed = "attempts" in job.options
        reading = Reading(run, job)
        _note(reading, detailed=detailed)
        with path.open("w", encoding="utf-8", buffering=_BUFFER) as file:
            _write(reading, _notation(job.options)(file), detailed=detailed)


def _notation(options: Collection[str]) -> type[Notation]:
    return ProvN if "n" in options else ProvO if "o" in options else ProvJson


def _note(reading: Reading, *, detailed: bool) -> None:
    if not detailed:
        reading.job.note(
            "Attempts are aggregated: an activity is a prefix, its results are one entity. "
            "`--with attempts` writes each attempt."
        )
        nameless = reading.run.rows(_NAMELESS)[0]["n"]
        if nameless:
            reading.job.note(f"Attempts without a known prefix are left out: {nameless:,}.")
        return
    unknown = reading.run.rows(prov_relations.UNKNOWN_USES)[0]["n"]
    if unknown:
        reading.job.note(
            f"Uses of results whose attempt is not on record are left out: {unknown:,}."
        )


def _write(reading: Reading, document: Notation, *, detailed: bool) -> None:
    facts = facts_of(reading.run)
    document.begin(prov_elements.namespaces(facts))
    elements = {
        "agents": ("agent", prov_elements.agents(reading, facts)),
        "entities": ("entity", prov_elements.entities(reading, facts, detailed=detailed)),
        "activities": ("activity", prov_elements.activities(reading, facts, detailed=detailed)),
    }
    for name, (kind, found) in elements.items():
        reading.job.counts[name] = document.elements(kind, found)
    relations = {
        "used": prov_relations.used(reading, detailed=detailed),
        "wasGeneratedBy": prov_relations.generated(reading, detailed=detailed),
        "wasDerivedFrom": prov_relations.derived(reading, detailed=detailed),
        "wasAssociatedWith": prov_relations.associated(reading, facts, detailed=detailed),
        "actedOnBehalfOf": prov_relations.delegated(reading, facts),
        "wasStartedBy": prov_relations.started(reading, detailed=detailed),
    }
    reading.job.counts["relations"] = sum(
        document.relations(kind, found) for kind, found in relations.items()
    )
    document.end()
