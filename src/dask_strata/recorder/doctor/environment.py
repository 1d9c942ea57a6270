"""Whether a cluster that a script of this environment starts would be recorded."""

from __future__ import annotations

import difflib
import json
import socket
from collections.abc import Iterator
from typing import Any

from dask_strata.config import NAMESPACE, SETTINGS, read_settings
from dask_strata.errors import StrataError
from dask_strata.recorder.doctor.diagnosis import (
    Diagnosis,
    GivenSetting,
    Place,
    Problem,
    ProcessState,
    Versions,
)
from dask_strata.recorder.doctor.process_facts import (
    names_dask_strata,
    preloads_of,
    settings_facts,
    versions,
)
from dask_strata.recorder.environment.dask_config import effective_settings
from dask_strata.recorder.profiling.source import require_yappi

_CONFIGURE = (
    "Record one script: dask-strata record SCRIPT. Record always: export "
    """DASK_DISTRIBUTED__SCHEDULER__PRELOAD='["dask_strata"]' """
    """DASK_DISTRIBUTED__CLIENT__PRELOAD='["dask_strata"]'"""
)
_CLIENT_NOTE = (
    "not by configuration: its script and source lines are on record only with "
    "distributed.client.preload or `dask-strata record`"
)


def diagnose_environment() -> Diagnosis:
    """Return whether a cluster would be recorded that a script starts now, and where to.

    Only this process's configuration counts: a script may set preloads of its own.
    """
    facts = settings_facts()
    problems = list(_problems(facts))
    preloaded = names_dask_strata(preloads_of("scheduler"))
    if not preloaded:
        text = "distributed.scheduler.preload does not name dask_strata in this environment."
        problems.insert(0, Problem(text, _CONFIGURE))
    works = facts["error"] is None and bool(facts["enabled"]) and facts["creatable"]
    recorded = preloaded and works
    client = works and names_dask_strata(preloads_of("client"))
    here, found = socket.gethostname(), Versions(**versions())
    places: tuple[Place, ...] = ()
    if facts["error"] is None:
        places = (Place(facts["folder"], None, here, True, facts["creatable"]),)  # noqa: FBT003
    return Diagnosis(
        cluster=None,
        recorded=recorded,
        places=places,
        processes=(
            *(ProcessState(role, None, here, recorded, found) for role in _SERVERS),
            ProcessState(
                "client", None, here, client, found, note=None if client else _CLIENT_NOTE
            ),
        ),
        problems=tuple(problems),
        settings=tuple(given_settings()),
    )


_SERVERS = ("scheduler", "worker", "nanny")


def _problems(facts: dict[str, Any]) -> Iterator[Problem]:
    yield from settings_problems(facts, "this environment")
    if facts["error"] is not None:
        return
    try:
        require_yappi(read_settings())
    except StrataError as error:
        yield Problem(error.message, error.hint or "")


def settings_problems(facts: dict[str, Any], where: str) -> Iterator[Problem]:
    """Yield what the settings of a process prevent.

    Parameters
    ----------
    facts : dict
        Answer of `settings_facts` there.
    where : str
        Name of the process, for the texts.
    """
    if facts["error"] is not None:
        yield Problem(
            f"A setting of {where} is invalid: {facts['error']}",
            "Correct it; docs/settings.md lists the settings.",
        )
        return
    if not facts["enabled"]:
        yield Problem(
            f"The setting {NAMESPACE}.enabled of {where} is false.",
            f"Remove it, or set DASK_{NAMESPACE.upper()}__ENABLED=true.",
        )
    if not facts["creatable"]:
        yield Problem(
            f"The folder for runs cannot be written: {facts['folder']} ({where}).",
            f"Set another one: DASK_{NAMESPACE.upper()}__RUNS=/path/to/runs",
        )
    names = [setting.name for setting in SETTINGS]
    for unknown in facts["unknown"]:
        close = difflib.get_close_matches(unknown, names, n=1)
        yield Problem(
            f"Unknown setting {NAMESPACE}.{unknown} of {where}: it is ignored.",
            f"Did you mean {NAMESPACE}.{close[0]}?"
            if close
            else "docs/settings.md lists the settings.",
        )


def given_settings() -> Iterator[GivenSetting]:
    """Yield the settings of this environment that concern recording and are not defaults."""
    for name, value, source in effective_settings():
        plain = name.replace("_", "-")
        ours = plain.startswith(f"{NAMESPACE.replace('_', '-')}.")
        preload = plain.startswith("distributed.") and plain.endswith(".preload")
        broken = name == "error.config"
        if source != "default" and (ours or broken or (preload and json.loads(value))):
            yield GivenSetting(name, value, source)
