"""Outputs of batch systems become rows: Slurm's as printed here, others as in their manuals.

The output of squeue is that of a real Slurm 22.05. No PBS, LSF or accounting of Slurm runs on the
test machines, so these texts follow the manuals of OpenPBS, Torque, LSF 10.1 and sacct.
"""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from dask_strata.recorder.jobs.commands import Deadline, ask
from dask_strata.recorder.jobs.lsf import parse as parse_lsf
from dask_strata.recorder.jobs.pbs import parse_json, parse_text
from dask_strata.recorder.jobs.slurm import parse_accounting, parse_queue
from dask_strata.schema import TABLES

SECOND = 1_000_000_000

SQUEUE = "\n".join(
    "|".join(fields)
    for fields in (
        ("2  ", "CANCELLED", "None", "15", "compute ", "(null)", "1795460075", "1795460075",
         "1795460079", "0:04", "1:00:00", "1", "1", "cpu=1,node=1,billing=1", "ja ", "wrap ", ""),
        ("1  ", "FAILED", "NonZeroExitCode", "768", "compute ", "physics", "1795460075",
         "1795460075", "1795460076", "0:01", "1:00:00", "1", "1", "cpu=1,mem=500M,node=1", "ja ",
         "a ", " b ", ""),
        ("3  ", "PENDING", "Resources", "0", "compute ", "(null)", "1795460075", "1795463675",
         "1795467275", "0:00", "UNLIMITED", "9", "3", "cpu=9,mem=8000M,node=2", " ", "wrap ", ""),
        ("4  ", "TIMEOUT", "TimeLimit", "15", "compute ", "(null)", "1795460075", "1795460076",
         "1795460138", "1-00:01:02", "1-00:00:00", "2", "1", "cpu=2", "n[1-2]", "job ", ""),
    )
)  # fmt: skip

#: sacct --noheader --parsable2 --noconvert, with the times as seconds since the epoch.
SACCT = """\
7|OUT_OF_MEMORY|0:125|compute|physics|1795460075|1795460080|1795460200|120|60|4|1|4096M||n1|my|job
7.batch|OUT_OF_MEMORY|0:125||physics|1795460080|1795460080|1795460200|120||4|1||4193280K|n1|batch
7.extern|COMPLETED|0:0||physics|1795460080|1795460080|1795460200|120||4|1||1024K|n1|extern
8|CANCELLED by 1000|0:0|compute|me|1795460075|None|1795460090|0|UNLIMITED|0|2|2Gn||None assigned|x
"""

QSTAT_JSON = json.dumps(
    {
        "timestamp": 1479277336,
        "pbs_version": "22.05.11",
        "pbs_server": "vbox",
        "Jobs": {
            "1.vbox": {
                "Job_Name": "dask-worker",
                "Job_Owner": "me@vbox",
                "resources_used": {"cput": "00:00:03", "mem": "123456kb", "walltime": "00:10:05"},
                "job_state": "F",
                "queue": "workq",
                "server": "vbox",
                "ctime": "Fri Nov 11 17:57:05 2016",
                "mtime": "Fri Nov 11 18:08:10 2016",
                "qtime": "Fri Nov 11 17:57:05 2016",
                "stime": "Fri Nov 11 17:58:05 2016",
                "obittime": "Fri Nov 11 18:08:10 2016",
                "exec_host": "node1/0*4+node2/0*4",
                "Resource_List": {"mem": "4gb", "ncpus": 8, "walltime": "00:10:00"},
                "Exit_status": -29,
                "comment": "Job run at Fri Nov 11 at 17:58 on (node1:ncpus=4) and failed",
                "project": "_pbs_project_default",
            },
            "2[3].vbox": {
                "Job_Name": "dask-worker",
                "job_state": "Q",
                "queue": "workq",
                "qtime": "Fri Nov 11 17:57:05 2016",
                "comment": "Not Running: Insufficient amount of resource: ncpus",
                "Resource_List": {"mem": "4gb", "ncpus": 8, "walltime": "00:10:00"},
            },
        },
    }
)

QSTAT_TEXT = """\
Job Id: 12.torque.example.org
    Job_Name = dask-worker
    job_state = C
    queue = batch
    Account_Name = physics
    qtime = Fri Nov 11 17:57:05 2016
    start_time = Fri Nov 11 17:58:05 2016
    comp_time = Fri Nov 11 17:59:05 2016
    exec_host = node1/0+node1/1
    Resource_List.mem = 4gb
    Resource_List.walltime = 00:10:00
    resources_used.mem = 1024kb
    resources_used.walltime = 00:01:00
    exit_status = 271
    Exit_status = 271
    Variable_List = PBS_O_HOME=/home/me,
\tPBS_O_LANG=C
"""

BJOBS = json.dumps(
    {
        "COMMAND": "bjobs",
        "JOBS": 3,
        "RECORDS": [
            {
                "JOBID": "991", "STAT": "EXIT", "QUEUE": "normal", "JOB_NAME": "dask-worker",
                "PROJ_NAME": "physics", "EXEC_HOST": "4*a01:4*a02",
                "SUBMIT_TIME": "Nov 11 17:57:05 2016", "START_TIME": "Nov 11 17:58:05 2016",
                "FINISH_TIME": "Nov 11 18:08:10 2016 L", "RUN_TIME": "605 second(s)",
                "RUNTIMELIMIT": "10.0", "MEMLIMIT": "4 G", "MAX_MEM": "1.5 Gbytes",
                "NALLOC_SLOT": "8", "EXIT_CODE": "140",
                "EXIT_REASON": "TERM_RUNLIMIT: job killed after reaching LSF run time limit",
                "PEND_REASON": "",
            },
            {
                "JOBID": "992", "STAT": "PEND", "QUEUE": "normal", "JOB_NAME": "dask-worker",
                "PROJ_NAME": "physics", "EXEC_HOST": "-", "SUBMIT_TIME": "Nov 11 17:57:05 2016",
                "START_TIME": "-", "FINISH_TIME": "-", "RUN_TIME": "0 second(s)",
                "RUNTIMELIMIT": "10.0", "MEMLIMIT": "-", "MAX_MEM": "-", "NALLOC_SLOT": "-",
                "EXIT_CODE": "-", "EXIT_REASON": "-", "PEND_REASON": "Job slot limit reached;",
            },
            {"JOBID": "993", "ERROR": "Job <993> is not found"},
        ],
    }
)  # fmt: skip


def seconds(moment: str) -> int:
    """Return a local time in nanoseconds since the epoch."""
    return int(time.mktime(time.strptime(moment, "%Y-%m-%d %H:%M:%S"))) * SECOND


def picked(row: dict[str, Any], *names: str) -> list[Any]:
    return [row[name] for name in names]


def test_squeue():
    """States, waits and limits are Slurm's; estimates of what will happen are not facts."""
    rows = {row["job"]: row for row in parse_queue(SQUEUE)}
    assert sorted(rows) == ["1", "2", "3", "4"]
    names = ("state", "ended", "reason", "exit_code", "signal", "account", "nodes", "name")
    assert picked(rows["1"], *names) == [
        "FAILED", True, "NonZeroExitCode", 3, None, "physics", "ja", "a | b",
    ]  # fmt: skip
    assert picked(rows["2"], *names) == ["CANCELLED", True, None, 0, 15, None, "ja", "wrap"]
    assert picked(rows["1"], "submitted", "start", "stop", "memory_limit_bytes") == [
        1795460075 * SECOND, 1795460075 * SECOND, 1795460076 * SECOND, 500 * 2**20,
    ]  # fmt: skip
    # Slurm expects it to start and to end at some time.
    assert picked(rows["3"], "start", "stop", "exit_code", "time_limit_seconds", "ended") == [
        None, None, None, None, False,
    ]  # fmt: skip
    assert picked(rows["4"], "used_seconds", "time_limit_seconds") == [86462, 86400]


def test_accounting():
    """Memory is that of the largest step, and a job that never started has no start."""
    first, second = parse_accounting(SACCT)
    assert picked(first, "job", "state", "signal", "memory_used_bytes", "memory_limit_bytes") == [
        "7", "OUT_OF_MEMORY", 125, 4193280 * 1024, 4 * 2**30,
    ]  # fmt: skip
    assert picked(first, "name", "time_limit_seconds", "used_seconds") == ["my|job", 3600, 120]
    assert picked(second, "state", "start", "nodes", "time_limit_seconds") == [
        "CANCELLED", None, None, None,
    ]  # fmt: skip
    assert second["memory_limit_bytes"] == 2 * 2 * 2**30


def test_pbs():
    """PBS's letters and exit codes become the same states as Slurm's."""
    first, second = parse_json(QSTAT_JSON)
    assert picked(first, "job", "state", "nodes", "n_nodes", "cpus", "exit_code") == [
        "1", "TIMEOUT", "node1,node2", 2, 8, None,
    ]  # fmt: skip
    assert picked(first, "submitted", "start", "stop") == [
        seconds("2016-11-11 17:57:05"),
        seconds("2016-11-11 17:58:05"),
        seconds("2016-11-11 18:08:10"),
    ]
    assert picked(first, "used_seconds", "time_limit_seconds") == [605, 600]
    assert picked(first, "memory_used_bytes", "memory_limit_bytes") == [123456 * 1024, 4 * 2**30]
    assert picked(second, "job", "state", "ended", "start") == ["2[3]", "PENDING", False, None]
    assert "Insufficient" in second["reason"]


def test_torque():
    """Torque prints text; SIGTERM is sent for `qdel` and at the time limit."""
    (row,) = parse_text(QSTAT_TEXT)
    assert picked(row, "job", "state", "signal", "exit_code", "account", "nodes") == [
        "12", "CANCELLED", 15, None, "physics", "node1",
    ]  # fmt: skip
    assert row["stop"] == seconds("2016-11-11 17:59:05")
    (late,) = parse_text(QSTAT_TEXT.replace("walltime = 00:01:00", "walltime = 00:10:02"))
    assert picked(late, "state", "signal") == ["TIMEOUT", 15]
    (large,) = parse_text(QSTAT_TEXT.replace("mem = 1024kb", "mem = 4200mb"))
    assert picked(large, "state", "signal") == ["OUT_OF_MEMORY", 15]
    (killed,) = parse_text(QSTAT_TEXT.replace("271", "265"))
    assert picked(killed, "state", "signal") == ["FAILED", 9]


def test_lsf():
    """LSF's reason for the end decides the state; records of errors are no jobs."""
    first, second = parse_lsf(BJOBS)[:2]
    assert picked(first, "job", "state", "nodes", "cpus", "exit_code") == [
        "991", "TIMEOUT", "a01,a02", 8, 140,
    ]  # fmt: skip
    assert picked(first, "used_seconds", "time_limit_seconds", "memory_used_bytes") == [
        605, 600, 3 * 2**29,
    ]  # fmt: skip
    assert first["stop"] == seconds("2016-11-11 18:08:10")
    assert picked(second, "state", "start", "nodes", "exit_code", "ended") == [
        "PENDING", None, None, None, False,
    ]  # fmt: skip
    assert len(parse_lsf(BJOBS)) == 2


@pytest.mark.parametrize(
    "parse", [parse_queue, parse_accounting, parse_json, parse_text, parse_lsf]
)
@pytest.mark.parametrize(
    "text",
    ["", "\n", "slurm_load_jobs error: Invalid job id specified", "{}", "[]", '{"Jobs": [1]}',
     '{"Jobs": {"1": 7}}', '{"RECORDS": {"JOBID": 1}}', "|" * 100, "Job Id: 1\n = \n", "null",
     '{"RECORDS": [{"JOBID": 9, "STAT": {}, "RUN_TIME": [1]}]}', '{"Jobs": {"1": {"ctime": 3}}}'],
)  # fmt: skip
def test_other_text(parse, text):
    """Text of another form gives no rows or rows of unknowns, and no error."""
    columns = {column.name for column in TABLES["job_states"].all_columns}
    for row in parse(text):
        assert set(row) <= columns


def test_columns():
    """Every fact of every batch system is a column of the table."""
    columns = {column.name for column in TABLES["job_states"].all_columns}
    rows = [*parse_queue(SQUEUE), *parse_accounting(SACCT), *parse_json(QSTAT_JSON)]
    for row in (*rows, *parse_text(QSTAT_TEXT), *parse_lsf(BJOBS)):
        assert set(row) <= columns


def test_a_command_has_a_time_limit():
    """A command that is not installed, fails or hangs gives no text, and in time."""
    assert ask(Deadline(60), "no-such-batch-system") == ""
    assert ask(Deadline(60), "false") == ""
    assert ask(Deadline(0.2), "sleep", "600") == ""  # the test's own time limit is shorter
    assert ask(Deadline(0), "echo", "too late") == ""
