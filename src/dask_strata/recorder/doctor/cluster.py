"""Whether a running cluster is recorded, from one of its clients."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from dask_strata.config import VERSION
from dask_strata.recorder.doctor.diagnosis import (
    Diagnosis,
    Place,
    Problem,
    ProcessState,
    Versions,
)
from dask_strata.recorder.doctor.environment import given_settings, settings_problems
from dask_strata.recorder.doctor.process_facts import (
    FORM,
    names_dask_strata,
    preloads_of,
    scheduler_facts,
    server_facts,
    versions,
)
from dask_strata.recorder.session import announced, records_client
from dask_strata.store.manifest import Manifest

#: Longest wait for the answers of all processes of a role.
_ANSWER_SECONDS = 10.0

_PACKAGE = "dask_strata"
_FROM_CLIENT = "`with dask_strata.record(client=client):`, or `dask-strata record SCRIPT`"
_PRELOAD = "--preload dask_strata"
_OTHER_VERSION = "its version of dask-strata cannot answer"
_NO_IMPORT = "it cannot import dask_strata"


async def diagnose_cluster(client: Any) -> Diagnosis:
    """Return whether the cluster of a client is recorded; nothing is left behind there.

    Parameters
    ----------
    client : distributed.Client
        A connected client, on whose event loop this runs.
    """
    runs = await announced(client)
    folders = {run: str(spec.get("folder")) for run, spec in runs.items()}
    found = await _answers(client, folders)
    scheduler = _scheduler_state(client, found, runs)
    processes = [
        scheduler,
        *found.states("worker", runs),
        *found.states("nanny", runs),
        _client_state(client),
    ]
    servers = [p for p in processes if p.role != "client"]
    return Diagnosis(
        cluster=client.scheduler.address,
        recorded=bool(runs) and all(p.recorded for p in servers),
        places=tuple(_places(folders, found)),
        processes=tuple(processes),
        problems=tuple(_problems(scheduler, processes, found, runs)),
        settings=tuple(given_settings()),
    )


class _Answers:
    """The answers of the processes: facts by address, or the reason why there are none."""

    def __init__(self) -> None:
        self.versions: dict[str, Any] = {}
        self.scheduler: dict[str, Any] | str = "was not asked"
        self.servers: dict[str, dict[str, Any]] = {"worker": {}, "nanny": {}}
        self.hosts: dict[str, str | None] = {}
        self.worker_of: dict[str, str] = {}

    def package_versions(self, address: str | None) -> Versions:
        """Return the versions of a worker, or of the scheduler without an address."""
        answers = self.versions.get("scheduler" if address is None else "workers") or {}
        answer = answers if address is None else answers.get(address)
        packages = (answer or {}).get("packages") or {}
        python = str(packages.get("python") or "")
        return Versions(
            dask_strata=packages.get(_PACKAGE),
            python=".".join(python.split(".")[:3]) or None,
            dask=packages.get("distributed"),
        )

    def states(self, role: str, runs: Mapping[str, Any]) -> Iterator[ProcessState]:
        """Yield the states of the workers or nannies."""
        for address, answer in self.servers[role].items():
            if not isinstance(answer, dict):
                yield self._unanswered(role, address, str(answer), recording=bool(runs))
                continue
            recorded = bool(set(runs) & set(answer["runs"]))
            reason = "its recording did not start; its log has the reason" if runs else None
            writes = "files" if any(answer["writable"].values()) else "connection"
            yield ProcessState(
                role,
                address,
                answer["host"],
                recorded,
                Versions(**answer["versions"]),
                writes if recorded else None,
                None if recorded else reason,
            )

    def _unanswered(self, role: str, address: str, why: str, *, recording: bool) -> ProcessState:
        seen = self.package_versions(self.worker_of.get(address, address))
        absent = bool(self.versions.get("workers")) and seen.dask_strata is None
        return ProcessState(
            role,
            address,
            self.hosts.get(address),
            False if absent or why == _NO_IMPORT or not recording else None,
            seen,
            note=_NO_IMPORT if absent else why,
        )


async def _answers(client: Any, folders: Mapping[str, str]) -> _Answers:
    """Ask all processes for their facts."""
    found = _Answers()
    identity = await client.scheduler.identity()
    workers = identity["workers"]
    found.hosts = {address: info.get("host") for address, info in workers.items()}
    found.worker_of = {
        info["nanny"]: address for address, info in workers.items() if info.get("nanny")
    }
    found.hosts |= {nanny: found.hosts[worker] for nanny, worker in found.worker_of.items()}
    answer = await _bounded(client.get_versions(check=False, packages=[_PACKAGE]))
    found.versions = answer if isinstance(answer, dict) else {}
    if found.package_versions(None).dask_strata is None and found.versions:
        found.scheduler = _NO_IMPORT
    else:
        found.scheduler = _compatible(
            await _bounded(client.run_on_scheduler(partial(scheduler_facts, dict(folders))))
        )
    # A process without dask-strata is not asked: it would log a failed import.
    having = [w for w in workers if not found.versions or found.package_versions(w).dask_strata]
    for role in ("worker", "nanny"):
        asked = [w for w in having if role == "worker" or workers[w].get("nanny")]
        answers = await _bounded(
            client.run(
                partial(server_facts, dict(folders)),
                workers=asked,
                nanny=role == "nanny",
                on_error="return",
            )
            if asked
            else _nothing()
        )
        # Dask names a nanny's answer by its worker.
        named = {w: w for w in workers} if role == "worker" else found.worker_of
        found.servers[role] = {
            address: _compatible(answers.get(worker, "no answer"))
            if isinstance(answers, dict)
            else answers
            for address, worker in named.items()
        }
    return found


async def _nothing() -> dict[str, Any]:
    return {}


def _compatible(facts: Any) -> Any:
    """Return the facts of a process, or a text for those of another version's form."""
    if isinstance(facts, dict):
        return facts if facts.get("form") == FORM else _OTHER_VERSION
    if f"No module named '{_PACKAGE}'" in str(facts):
        return _NO_IMPORT
    # Its package lacks a module or function of this one.
    return _OTHER_VERSION if f"'{_PACKAGE}." in str(facts) else str(facts)


async def _bounded(answer: Any) -> Any:
    """Return an answer, or a text with the reason why there is none."""
    try:
        return await asyncio.wait_for(answer, _ANSWER_SECONDS)
    except asyncio.TimeoutError:
        return f"no answer within {_ANSWER_SECONDS:g} s"
    except Exception as error:  # noqa: BLE001  whatever a remote process raises
        return f"{type(error).__name__}: {error}"


def _scheduler_state(client: Any, found: _Answers, runs: Mapping[str, Any]) -> ProcessState:
    facts = found.scheduler
    if isinstance(facts, dict):
        return ProcessState(
            "scheduler",
            client.scheduler.address,
            facts["host"],
            bool(facts["runs"]),
            Versions(**facts["versions"]),
            "files" if facts["runs"] else None,
        )
    return ProcessState(
        "scheduler",
        client.scheduler.address,
        None,
        bool(runs),  # only a recorder announces runs
        found.package_versions(None),
        note=facts,
    )


def _client_state(client: Any) -> ProcessState:
    by_preload = names_dask_strata(preloads_of("client"))
    recorded = records_client(client) or by_preload
    note = None if recorded else "its script and source lines are not on record"
    here = socket.gethostname()
    return ProcessState("client", None, here, recorded, Versions(**versions()), note=note)


def _places(folders: Mapping[str, str], found: _Answers) -> Iterator[Place]:
    facts = found.scheduler if isinstance(found.scheduler, dict) else {}
    for run, folder in folders.items():
        writable = facts.get("writable", {}).get(run)
        yield Place(folder, run, facts.get("host"), _is_run(Path(folder), run), writable)
    settings = facts.get("settings", {})
    if not folders and settings.get("folder"):
        yield Place(
            settings["folder"], None, facts["host"], None, writable_there=settings["creatable"]
        )


def _is_run(folder: Path, run_id: str) -> bool:
    try:
        return Manifest.read(folder).run_id == run_id
    except Exception:  # noqa: BLE001  another run may be there, damaged in any way
        return False


def _problems(
    scheduler: ProcessState,
    processes: Iterable[ProcessState],
    found: _Answers,
    runs: Mapping[str, Any],
) -> Iterator[Problem]:
    if not runs:
        yield from _scheduler_problems(scheduler, found.scheduler)
        return
    by_note: dict[str, list[ProcessState]] = {}
    for process in processes:
        if process.role in ("worker", "nanny") and not process.recorded:
            by_note.setdefault(process.note or "", []).append(process)
    for note, affected in by_note.items():
        yield Problem(f"{_named(affected)}: {note.rstrip('.')}.", _remedy(note, affected))


def _remedy(note: str, affected: list[ProcessState]) -> str:
    if "installed" in note or note in {_OTHER_VERSION, _NO_IMPORT}:
        return f"Install dask-strata {VERSION} in the environment of these workers."
    if affected[0].recorded is None:
        return "Repeat the command: a process that is busy answers late."
    return "Restart these workers, or record again."


def _named(processes: list[ProcessState]) -> str:
    shown = ", ".join(f"{p.role} {p.address}" for p in processes[:3])
    more = len(processes) - 3
    return f"{shown} and {more:,} more" if more > 0 else shown


def _scheduler_problems(scheduler: ProcessState, facts: dict[str, Any] | str) -> Iterator[Problem]:
    if not isinstance(facts, dict):
        if scheduler.versions.dask_strata is None:
            remedy = (
                f"Install dask-strata {VERSION} in the scheduler's and the workers' environment, "
                f"and start the scheduler with {_PRELOAD}."
            )
        else:
            remedy = f"Install dask-strata {VERSION} there, or start it with {_PRELOAD}."
        yield Problem(f"The scheduler is not recorded: {facts}.", remedy)
        return
    preloaded, configured = (
        names_dask_strata(facts["preloads"]),
        names_dask_strata(facts["configured"]),
    )
    if preloaded:
        yield from _not_started(facts["settings"])
        return
    if configured and facts["preloads"]:
        given = " ".join(f"--preload {name}" for name in facts["preloads"])
        yield Problem(
            "The scheduler's configuration names dask_strata as a preload, but Dask ignored it: "
            f"the scheduler was started with {given}, and Dask reads preloads from the "
            "configuration only if its command line has none (dask/distributed#7342).",
            f"Add {_PRELOAD} to the scheduler's command; in dask-gateway: "
            'c.ClusterConfig.scheduler_cmd = ["dask-scheduler", "--preload", "dask_strata"]. '
            f"Now: {_FROM_CLIENT}.",
        )
    elif configured:
        yield Problem(
            "The scheduler's configuration names dask_strata as a preload, but the scheduler had "
            "started before.",
            f"Restart the scheduler. Now: {_FROM_CLIENT}.",
        )
    else:
        yield Problem(
            "The scheduler was started without dask-strata.",
            f"Start it with {_PRELOAD}, or with the environment variable "
            f"""DASK_DISTRIBUTED__SCHEDULER__PRELOAD='["dask_strata"]'. Now: {_FROM_CLIENT}.""",
        )
    yield from settings_problems(facts["settings"], "the scheduler")


def _not_started(settings: dict[str, Any]) -> Iterator[Problem]:
    reasons = list(settings_problems(settings, "the scheduler"))
    yield from reasons
    if settings["error"] is None and settings["enabled"] and settings["creatable"]:
        yield Problem(
            "The scheduler was started with dask-strata, but no recording is active: it has "
            "ended, or it could not start.",
            f"Look for `dask-strata does not record` in the scheduler's log. Now: {_FROM_CLIENT}.",
        )
