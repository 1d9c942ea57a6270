"""The record of all processes of a cluster: job layer, configuration, packages, completeness."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import dask
import distributed
import numpy as np
import psutil

import dask_strata
from dask_strata.analysis.map import metadata_map
from tests.conftest import assert_whole, rows
from tests.recorder.roles.workload import SECRET, RecordedWork, processes_of


def test_the_record_is_complete(recorded: RecordedWork) -> None:
    """The results are right, nothing is missing, and every cell of the map has rows."""
    facts = recorded.facts
    assert facts["delayed"] == (1, 2, 3)
    assert facts["array"] == 128.0
    assert facts["diamond"] == [5] or facts["diamond"] == (5,)
    assert facts["bad"] == ["ZeroDivisionError", "ZeroDivisionError"]
    assert facts["tried"] == "third time"
    assert_whole(recorded.run)
    assert recorded.run.state == "complete"
    for cell in metadata_map(recorded.run):
        assert cell.total > 0 or cell.by_choice, cell


def test_counters_equal_dasks(recorded: RecordedWork) -> None:
    """The record has as many scheduler transitions as Dask counted during the recording."""
    found = rows(recorded.run, "select value, recorded, final from counters where final")
    assert len(found) == 3  # the scheduler and two workers
    assert all(row["value"] == row["recorded"] > 0 for row in found)
    n = len(recorded.run.scheduler_transitions)
    assert recorded.counted_at_least <= n <= recorded.counted_at_most


def test_processes(recorded: RecordedWork) -> None:
    """Each process has its role, address, pid, versions, threads, start and end."""
    found = rows(recorded.run, "select * from processes order by role, address")
    assert [p["role"] for p in found] == ["client", *["nanny"] * 2, "scheduler", *["worker"] * 2]
    assert found[0]["address"] == recorded.client
    assert found[3]["address"] == recorded.scheduler
    assert recorded.scheduler.startswith("tcp://")
    assert {p["address"]: p["pid"] for p in found[4:]} == recorded.pids
    assert {p["pid"] for p in found[:4]} == {os.getpid()}
    for process in found:
        assert process["python"] == platform.python_version()
        assert process["dask"] == dask.__version__
        assert process["distributed"] == distributed.__version__
        assert process["host"] == platform.node()
        assert process["exit_reason"] == "detached"
        assert process["transport"] == "file"
        start, stop = process["start"].timestamp(), process["stop"].timestamp()
        assert recorded.began < start < stop < recorded.ended
    for worker in found[4:]:
        assert worker["nthreads"] == 2
        assert worker["memory_limit_bytes"] > 2**20


def test_job(recorded: RecordedWork) -> None:
    """Launcher, limits, machine, network, file systems and command are recorded in each process."""
    job = recorded.run.job
    assert set(job) == {row["process"] for row in rows(recorded.run, "select * from processes")}
    info = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    models = [x.partition(":")[2].strip() for x in info.splitlines() if x.startswith("model name")]
    for facts in job.values():
        assert facts["launcher"] == "slurm"
        assert facts["job.id"] == "4242"
        assert facts["job.name"] == "cells"
        assert facts["job.queue"] == "short"
        assert facts["job.nodes"] == "node[01-02]"
        assert facts["job.node-count"] == "2"
        assert facts["job.cpus-per-task"] == "4"
        assert facts["job.memory-per-node"] == str(2048 * 2**20)
        assert facts["job.time-limit"] == "3600"
        assert facts.get("cpu.model") in {*models, None}
        assert facts["cpu.allowed"] == str(len(os.sched_getaffinity(0)))
        assert facts["memory.total"] == str(psutil.virtual_memory().total)
        assert facts["os.architecture"] == platform.machine()
        assert facts["network.lo.address"].startswith("127.0.0.1")
        kinds = [k for k in facts if k.startswith("filesystem.") and k.endswith(".type")]
        assert kinds
        assert not any(name.startswith("error.") for name in facts), facts
    workers = processes_of(recorded.run, "worker")
    assert {int(job[w]["process.pid"]) for w in workers} == set(recorded.pids.values())
    [scheduler] = processes_of(recorded.run, "scheduler")
    program = Path("/proc/self/cmdline").read_text().split("\0")[0]
    assert job[scheduler]["process.command-line"].startswith(program)
    assert job[scheduler]["process.working-directory"] == str(Path.cwd())


def test_configuration(recorded: RecordedWork) -> None:
    """Each process has its effective configuration with sources; differences are listed."""
    run = recorded.run
    [client], [scheduler] = processes_of(run, "client"), processes_of(run, "scheduler")
    workers = processes_of(run, "worker")
    assert run.config[client]["ice.flavour"] == "vanilla"
    assert run.config[client]["distributed.admin.tick.limit"] == "7s"
    assert {run.config[w]["ice.flavour"] for w in workers} == {"chocolate"}
    assert {run.config[w]["distributed.admin.tick.limit"] for w in workers} == {"3s"}
    sources = {
        (row["process"], row["name"]): row["source"]
        for row in rows(run, "select process, name, source from config")
    }
    assert sources[client, "ice.flavour"] == "set at run time"
    assert sources[workers[0], "ice.flavour"] == "DASK_ICE__FLAVOUR"
    assert sources[workers[0], "distributed.scheduler.bandwidth"] in {"default", "inherited"}
    differences = {
        (row["name"], row["value"]): set(row["processes"].split(", "))
        for row in rows(run, "select * from config_differences")
    }
    assert differences["ice.flavour", '"chocolate"'] == set(workers)
    assert differences["ice.flavour", '"vanilla"'] >= {client, scheduler}
    assert differences["distributed.admin.tick.limit", '"3s"'] == set(workers)
    assert ("distributed.scheduler.bandwidth", "null") not in differences


def test_secrets_are_in_no_table(recorded: RecordedWork) -> None:
    """A secret in the configuration is in no table; only its name is."""
    run = recorded.run
    [client] = processes_of(run, "client")
    assert run.config[client]["ice.api-token"] == "(redacted)"
    assert run.config[client]["ice.store"] == "postgres://***@example.org/db"
    own = run.script.pop("text", "")
    assert own == "" or SECRET not in own or "pytest" in run.script["command"]
    for name in dask_strata.schema.RECORDED:
        if name not in ("script", "submissions"):  # they may quote the workload
            assert SECRET not in str(run.rows(f"select * from {name}")), name


def test_packages(recorded: RecordedWork) -> None:
    """Each process has the versions of its packages; on one machine none differ."""
    versions = recorded.run.versions
    assert set(versions) == set(recorded.run.job)
    for found in versions.values():
        assert found["dask"] == dask.__version__
        assert found["distributed"] == distributed.__version__
        assert found["numpy"] == np.__version__
        assert found["dask-strata"] == dask_strata.__version__
    assert len(recorded.run.package_mismatches) == 0
