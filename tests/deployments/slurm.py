"""A real Slurm with two nodes on this machine: no systemd, no munge, no cgroups, no accounting.

Each `Slurm` has its own name, folder and ports, so that several can run at the same time.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import wait_until
from tests.support.processes import ends

_DAEMONS = ("slurmctld", "slurmd", "slurmstepd")
_CLIENTS = ("sbatch", "srun", "scancel", "squeue", "scontrol", "sinfo")

_CONFIGURATION = """\
ClusterName={name}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=512
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1
ReturnToService=2
MpiDefault=none
SwitchType=switch/none
KillWait={kill_wait}
MinJobAge=300
SlurmdParameters=config_overrides
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
{nodes}
PartitionName=normal Nodes={all_nodes} Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""


def missing() -> str | None:
    """Return why Slurm cannot run on this machine, or None if it can."""
    for name in (*_DAEMONS[:2], *_CLIENTS):
        if _program(name) is None:
            return f"{name} is not installed (apt-get install slurm-wlm)"
    if os.geteuid() != 0:
        return "the daemons of Slurm need root here"
    return None


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def _free_ports(number: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


class Slurm:
    """A running Slurm.

    Attributes
    ----------
    environment : dict
        Variables with which Slurm's commands find this Slurm.
    folder : Path
        Its folder, with the logs of its daemons.
    nodes : tuple of str
        Names of its nodes.
    """

    def __init__(self, folder: Path, nodes: int = 2, cpus: int = 4, kill_wait: int = 10) -> None:
        self.folder = folder
        self.nodes = tuple(f"n{i}" for i in range(1, nodes + 1))
        self._processes: list[subprocess.Popen[bytes]] = []
        controller, *ports = _free_ports(1 + nodes)
        host = socket.gethostname().partition(".")[0]
        node_lines = "\n".join(
            f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} "
            "RealMemory=4096 State=UNKNOWN"
            for node, port in zip(self.nodes, ports, strict=True)
        )
        for name in ("state", *(f"spool-{node}" for node in self.nodes)):
            (folder / name).mkdir(parents=True)
        self.configuration = folder / "slurm.conf"
        self.configuration.write_text(
            _CONFIGURATION.format(
                name=f"strata{controller}",
                host=host,
                controller=controller,
                folder=folder,
                kill_wait=kill_wait,
                nodes=node_lines,
                all_nodes=",".join(self.nodes),
            ),
            encoding="utf-8",
        )
        # An inherited variable of an outer Slurm, such as SLURM_JOB_ID, would confuse the commands.
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_")}
        self.environment["SLURM_CONF"] = str(self.configuration)

    def start(self) -> None:
        """Start the daemons, and wait until all nodes accept jobs."""
        self._start("slurmctld", "-D", "-c")
        for node in self.nodes:
            self._start("slurmd", "-D", "-N", node)
        wait_until(self._all_idle, what=f"idle nodes:\n{self.logs()}")

    def _start(self, name: str, *arguments: str) -> None:
        log = self.folder / f"daemon-{len(self._processes)}.log"
        with log.open("wb") as out:
            self._processes.append(
                subprocess.Popen(
                    [str(_program(name)), *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    cwd=self.folder,
                    env=self.environment,
                )
            )

    def _all_idle(self) -> bool:
        shown = self.command("sinfo", "-h", "-N", "-o", "%N %T", check=False)
        return sorted(shown.split("\n")) == sorted(f"{node} idle" for node in self.nodes)

    def command(self, *command: Any, check: bool = True, **kwargs: Any) -> str:
        """Return the output of one of Slurm's commands."""
        kwargs.setdefault("timeout", 60)
        done = subprocess.run(
            [*map(str, command)],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            **kwargs,
        )
        if check and done.returncode:
            pytest.fail(f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
        return done.stdout.strip()

    def job(self, job_id: Any) -> dict[str, str]:
        """Return the facts that Slurm knows about a job, such as its ``JobState``."""
        shown = self.command("scontrol", "show", "job", "-o", job_id, check=False)
        return dict(part.split("=", 1) for part in shown.split() if "=" in part)

    def active_jobs(self) -> list[str]:
        """Return the ids of the jobs that have not ended, those that are completing included."""
        return self.command("squeue", "-h", "-o", "%i").split()

    def wait_for_end(self, job_id: Any, seconds: float = 60) -> dict[str, str]:
        """Wait until a job has ended, and return its facts."""
        wait_until(
            lambda: str(job_id) not in self.active_jobs(), seconds, f"the end of job {job_id}"
        )
        return self.job(job_id)

    def logs(self) -> str:
        """Return the logs of the daemons."""
        files = sorted(self.folder.glob("*.log"))
        return "\n".join(f"{p.name}:\n{p.read_text(errors='replace')[-2000:]}" for p in files)

    def stop(self) -> None:
        """Cancel all jobs, and end the daemons."""
        if all(process.poll() is None for process in self._processes):
            for job in self.active_jobs():
                self.command("scancel", job, check=False)
            with contextlib.suppress(pytest.fail.Exception):
                wait_until(lambda: not self.active_jobs(), 20, "the end of all jobs")
                wait_until(self._all_idle, 20, "idle nodes")
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            ends(process)
        self._end_steps()

    def _end_steps(self) -> None:
        """Kill the supervisors of jobs that outlived the daemons; they detach from `slurmd`."""
        mark = f"SLURM_CONF={self.configuration}".encode()
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)


@contextlib.contextmanager
def running_slurm(**options: Any) -> Iterator[Slurm]:
    """Run a Slurm; skip the test, with the reason, where that is not possible.

    Parameters
    ----------
    **options
        As of `Slurm`: the number of `nodes`, their `cpus`, and `kill_wait`, the seconds from
        SIGTERM to SIGKILL.
    """
    if (reason := missing()) is not None:
        pytest.skip(f"NOT TESTED: no Slurm on this machine: {reason}")
    # The paths of sockets are bounded to 108 bytes, and `tmp_path` may be long.
    folder = Path(tempfile.mkdtemp(prefix="strata-slurm-"))
    slurm = Slurm(folder, **options)
    try:
        slurm.start()
        yield slurm
    finally:
        slurm.stop()
        shutil.rmtree(folder, ignore_errors=True)
