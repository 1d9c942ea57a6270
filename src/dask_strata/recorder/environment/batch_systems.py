"""Launchers of this process: batch systems, MPI, dask-jobqueue; facts about the batch job.

A batch system is recognised by a variable that it always sets. One table per system maps each
fact to its variables, of which the first one that is set counts.
"""

from __future__ import annotations

import re
import sys
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from dask_strata.recorder.environment.host_view import Fact, HostView, failure
from dask_strata.recorder.environment.kubernetes import MARK, in_pod

if TYPE_CHECKING:
    from collections.abc import Iterator

_MEBIBYTE = 2**20

#: Options of qsub without a value; every other single letter has one.
_QSUB_FLAGS = frozenset({"-I", "-V", "-X", "-f", "-h", "-x", "-z"})
_OPTION = re.compile(r"-[A-Za-z]")

#: One argument of qsub, as some versions of PBS print it.
_XML_ARGUMENT = re.compile(r"<jsdl-hpcpa:Argument>([^<]*)</jsdl-hpcpa:Argument>")

Variables = dict[str, tuple[str, ...]]

MARKS: Variables = {
    "slurm": ("SLURM_JOB_ID", "SLURM_JOBID"),
    "pbs": ("PBS_JOBID",),
    "lsf": ("LSB_JOBID",),
    "flux": ("FLUX_JOB_ID",),
    "oar": ("OAR_JOB_ID",),
    "cobalt": ("COBALT_JOBID",),
    "sge": ("SGE_TASK_ID",),
    "htcondor": ("_CONDOR_JOB_AD",),
}

JOB: dict[str, Variables] = {
    "slurm": {
        "job.id": MARKS["slurm"],
        "job.name": ("SLURM_JOB_NAME",),
        "job.queue": ("SLURM_JOB_PARTITION",),
        "job.account": ("SLURM_JOB_ACCOUNT",),
        "job.user": ("SLURM_JOB_USER",),
        "job.cluster": ("SLURM_CLUSTER_NAME",),
        "job.qos": ("SLURM_JOB_QOS",),
        "job.reservation": ("SLURM_JOB_RESERVATION",),
        "job.nodes": ("SLURM_JOB_NODELIST", "SLURM_NODELIST"),
        "job.node-count": ("SLURM_JOB_NUM_NODES", "SLURM_NNODES"),
        "job.node": ("SLURMD_NODENAME",),
        "job.tasks": ("SLURM_NTASKS", "SLURM_NPROCS"),
        "job.tasks-per-node": ("SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE"),
        "job.cpus-per-task": ("SLURM_CPUS_PER_TASK",),
        "job.cpus-per-node": ("SLURM_JOB_CPUS_PER_NODE",),
        "job.cpus-on-node": ("SLURM_CPUS_ON_NODE",),
        "job.gpus": ("SLURM_GPUS", "SLURM_GPUS_ON_NODE", "SLURM_JOB_GPUS"),
        "job.start-time": ("SLURM_JOB_START_TIME",),
        "job.end-time": ("SLURM_JOB_END_TIME",),
        "job.array-id": ("SLURM_ARRAY_JOB_ID",),
        "job.array-task": ("SLURM_ARRAY_TASK_ID",),
        "job.array-tasks": ("SLURM_ARRAY_TASK_COUNT",),
        "job.step": ("SLURM_STEP_ID", "SLURM_STEPID"),
        "job.task-rank": ("SLURM_PROCID",),
        "job.restarts": ("SLURM_RESTART_COUNT",),
        "job.dependency": ("SLURM_JOB_DEPENDENCY",),
        "job.submit-dir": ("SLURM_SUBMIT_DIR",),
        "job.submit-host": ("SLURM_SUBMIT_HOST",),
        "job.topology-address": ("SLURM_TOPOLOGY_ADDR",),
        "job.topology-pattern": ("SLURM_TOPOLOGY_ADDR_PATTERN",),
        "job.bound-cpus": ("SLURM_CPU_BIND_LIST",),
    },
    "pbs": {
        "job.id": MARKS["pbs"],
        "job.name": ("PBS_JOBNAME",),
        "job.queue": ("PBS_QUEUE", "PBS_O_QUEUE"),
        "job.account": ("PBS_ACCOUNT", "PBS_PROJECT"),
        "job.user": ("PBS_O_LOGNAME",),
        "job.cluster": ("PBS_SERVER", "PBS_DEFAULT"),
        "job.tasks": ("PBS_NP",),
        "job.tasks-per-node": ("PBS_NUM_PPN",),
        "job.cpus-on-node": ("NCPUS",),
        "job.time-limit": ("PBS_WALLTIME",),
        "job.array-id": ("PBS_ARRAY_ID",),
        "job.array-task": ("PBS_ARRAY_INDEX", "PBS_ARRAYID"),
        "job.task-rank": ("PBS_TASKNUM",),
        "job.submit-dir": ("PBS_O_WORKDIR",),
        "job.submit-host": ("PBS_O_HOST",),
    },
    "lsf": {
        "job.id": MARKS["lsf"],
        "job.name": ("LSB_JOBNAME",),
        "job.queue": ("LSB_QUEUE",),
        "job.account": ("LSB_PROJECT_NAME",),
        "job.cluster": ("LSF_CLUSTER_NAME",),
        "job.tasks": ("LSB_DJOB_NUMPROC", "LSB_MAX_NUM_PROCESSORS"),
        "job.resources": ("LSB_EFFECTIVE_RSRCREQ", "LSB_SUB_RES_REQ"),
        "job.submit-dir": ("LS_SUBCWD", "LSB_SUBCWD"),
        "job.submit-host": ("LSB_SUB_HOST",),
        "job.bound-cpus": ("LSB_BIND_CPU_LIST",),
    },
    "flux": {"job.id": MARKS["flux"], "job.node-count": ("FLUX_JOB_NNODES",),
             "job.tasks": ("FLUX_JOB_SIZE",), "job.task-rank": ("FLUX_TASK_RANK",)},
    "oar": {"job.id": MARKS["oar"], "job.name": ("OAR_JOB_NAME",),
            "job.account": ("OAR_PROJECT_NAME",), "job.submit-dir": ("OAR_WORKDIR",)},
    "cobalt": {"job.id": MARKS["cobalt"], "job.nodes": ("COBALT_PARTNAME",),
               "job.node-count": ("COBALT_JOBSIZE",)},
    "sge": {"job.id": ("JOB_ID",), "job.name": ("JOB_NAME",), "job.queue": ("QUEUE",),
            "job.node-count": ("NHOSTS",), "job.tasks": ("NSLOTS",),
            "job.submit-dir": ("SGE_O_WORKDIR",), "job.submit-host": ("SGE_O_HOST",)},
    "htcondor": {},
}  # fmt: skip

_JOB_NAMES = tuple(name for variables in JOB.values() for name in variables.get("job.name", ()))

MPI: Variables = {
    "mpi.rank": (
        "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "PALS_RANKID",
    ),
    "mpi.size": ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"),
    "mpi.local-rank": (
        "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK",
        "PALS_LOCAL_RANKID", "PMI_LOCAL_RANK",
    ),
    "mpi.local-size": (
        "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE",
        "PALS_LOCAL_SIZE", "PMI_LOCAL_SIZE",
    ),
    "mpi.node-rank": ("OMPI_COMM_WORLD_NODE_RANK", "PALS_NODEID"),
}  # fmt: skip

_IMPLEMENTATIONS = (
    ("openmpi", ("OMPI_COMM_WORLD_RANK", "OMPI_VERSION")),
    ("mvapich", ("MV2_COMM_WORLD_RANK",)),
    ("intel-mpi", ("I_MPI_HYDRA_HOST_FILE", "I_MPI_MPIRUN", "I_MPI_INFO_NP")),
    ("pals", ("PALS_RANKID",)),
    ("hydra", ("HYDI_CONTROL_FD", "HYDRA_LAUNCHER", "MPI_LOCALRANKID")),
    ("pmix", ("PMIX_RANK",)),
    ("pmi", ("PMI_RANK",)),
)


def batch_systems(view: HostView) -> list[tuple[str, str]]:
    """Return each batch system that runs this process, with the variable that proves it.

    Parameters
    ----------
    view : HostView
        The environment to search.

    >>> batch_systems(HostView({"SLURM_JOB_ID": "7"}, Path("/proc"), Path("/sys")))
    [('slurm', 'SLURM_JOB_ID')]
    """
    found = ((system, view.first(*names)) for system, names in MARKS.items())
    return [(system, mark[0]) for system, mark in found if mark is not None]


def launchers(view: HostView) -> Iterator[Fact]:
    """Yield one fact for each launcher of this process; without any, a fact with the value none."""
    batch = batch_systems(view)
    found = [Fact("launcher", system, variable) for system, variable in batch]
    if in_pod(view):
        found.append(Fact("launcher", "kubernetes", MARK))
    rank = view.first(*MPI["mpi.rank"])
    if rank is not None:
        found.append(Fact("launcher", "mpi", rank[0]))
    evidence = _jobqueue(view) if batch else None
    if evidence is not None:
        found.append(Fact("launcher", "dask-jobqueue", evidence))
    yield from found or [Fact("launcher", "none", "no variable of a known launcher is set")]
    if "dask_jobqueue" in sys.modules:
        yield Fact("dask-jobqueue", "imported in this process", "sys.modules")


def _jobqueue(view: HostView) -> str | None:
    """Return the evidence that dask-jobqueue submitted this batch job; None without any.

    dask-jobqueue sets no variable. Its jobs run ``python -m distributed.cli.dask_worker`` with
    the job name ``dask-worker`` (unless configured) and a worker name that consists of the
    class of the cluster (``SLURMCluster``, …) and a number. With a nanny, the command line is
    that of the nanny, a parent of this process.
    """
    for process, arguments in view.family():
        worker = "distributed.cli.dask_worker" in arguments or any(
            Path(program).name == "dask-worker" or (Path(program).name, verb) == ("dask", "worker")
            for program, verb in pairwise([*arguments, ""])
        )
        if not worker:
            continue
        source = f"command line of process {process}"
        name = next((value for flag, value in pairwise(arguments) if flag == "--name"), "")
        if re.fullmatch(r"\w{1,100}Cluster-\d{1,9}", name):
            return f"{source}: --name {name}"
        named = view.first(*_JOB_NAMES)
        if named is not None and named[1] == "dask-worker":
            return f"{source} and {named[0]}"
    return None


def job(view: HostView) -> Iterator[Fact]:
    """Yield the facts about the job from the variables of the batch system."""
    for system, _ in batch_systems(view):
        for name, variables in JOB[system].items():
            found = view.first(*variables)
            if found is not None:
                yield Fact(name, found[1], found[0])


def slurm_limits(view: HostView) -> Iterator[Fact]:
    """Yield Slurm's memory limits, in bytes, and its time limit, in seconds."""
    if view.first(*MARKS["slurm"]) is None:
        return
    for name, variable in (
        ("job.memory-per-node", "SLURM_MEM_PER_NODE"),
        ("job.memory-per-cpu", "SLURM_MEM_PER_CPU"),
        ("job.memory-per-gpu", "SLURM_MEM_PER_GPU"),
    ):
        mebibytes = view.environ.get(variable)
        if mebibytes and int(mebibytes):  # 0 means all memory of the node
            yield Fact(name, str(int(mebibytes) * _MEBIBYTE), variable)
    start = view.environ.get("SLURM_JOB_START_TIME")
    end = view.environ.get("SLURM_JOB_END_TIME")
    if start and end:
        seconds = int(end) - int(start)
        yield Fact("job.time-limit", str(seconds), "SLURM_JOB_END_TIME - SLURM_JOB_START_TIME")


def pbs_nodes(view: HostView) -> Iterator[Fact]:
    """Yield the nodes of the PBS job, each once, in the order of the node file."""
    path = view.environ.get("PBS_NODEFILE")
    if view.first(*MARKS["pbs"]) is None or not path:
        return
    lines = Path(path).read_text(encoding="utf-8").split()
    nodes = list(dict.fromkeys(lines))
    source = f"PBS_NODEFILE: {path}"
    yield Fact("job.nodes", ",".join(nodes), source)
    yield Fact("job.node-count", str(len(nodes)), source)
    yield Fact("job.slots", str(len(lines)), source)


def pbs_limits(view: HostView) -> Iterator[Fact]:
    """Yield the requested resources of the PBS job; qstat prints them, no variable has them."""
    found = view.first(*MARKS["pbs"])
    output = view.run("qstat", "-f", found[1]) if found and _is_first(view) else None
    if output is None:
        return
    text, command = output
    names = {
        "Resource_List.mem": "job.memory-limit",
        "Resource_List.walltime": "job.time-limit",
        "Resource_List.select": "job.resources",
        "Resource_List.ncpus": "job.cpus",
        "Resource_List.place": "job.placement",
        "exec_vnode": "job.vnodes",
        "Account_Name": "job.account",
        "stime": "job.start-time",
    }
    for name, value in _qstat_values(text):
        if name in names:
            yield Fact(names[name], value, command)


def _qstat_values(text: str) -> Iterator[tuple[str, str]]:
    """Yield names and values of ``qstat -f``, which continues long values after a tab."""
    for line in re.sub(r"\n\t", "", text).splitlines():
        name, equals, value = line.strip().partition(" = ")
        if equals:
            yield name, value


def lsf_nodes(view: HostView) -> Iterator[Fact]:
    """Yield the hosts of the LSF job, its memory limit in bytes, and its index in an array."""
    if view.first(*MARKS["lsf"]) is None:
        return
    found = view.first("LSB_MCPU_HOSTS")
    if found is not None:  # "host-a 4 host-b 4"; unlike LSB_HOSTS, it contains long lists, too
        nodes = found[1].split()[::2]
    else:
        found = view.first("LSB_HOSTS")
        nodes = list(dict.fromkeys(found[1].split())) if found else []
    if found is not None:
        yield Fact("job.nodes", ",".join(nodes), found[0])
        yield Fact("job.node-count", str(len(nodes)), found[0])
    index = view.environ.get("LSB_JOBINDEX")
    if index and index != "0":
        yield Fact("job.array-id", view.environ["LSB_JOBID"], "LSB_JOBID")
        yield Fact("job.array-task", index, "LSB_JOBINDEX")
    limit = view.environ.get("LSB_CG_MEMLIMIT")
    if limit:
        yield Fact("job.memory-limit", str(int(limit, 16)), "LSB_CG_MEMLIMIT")


def mpi(view: HostView) -> Iterator[Fact]:
    """Yield rank, size and implementation, if an MPI launcher started this process."""
    if view.first(*MPI["mpi.rank"]) is None:
        return
    for name, variables in MPI.items():
        found = view.first(*variables)
        if found is not None:
            yield Fact(name, found[1], found[0])
    for implementation, variables in _IMPLEMENTATIONS:
        found = view.first(*variables)
        if found is not None:
            yield Fact("mpi.implementation", implementation, found[0])
            return


def _is_first(view: HostView) -> bool:
    """Return whether this is rank 0, so that only one of many processes runs a command."""
    ranks = ("SLURM_PROCID", *MPI["mpi.rank"])
    return all(view.environ.get(name, "0") == "0" for name in ranks)


def batch_script(view: HostView) -> Iterator[Fact]:
    """Yield the text of the batch script, from the first source that can be read."""
    named = view.environ.get("DASK_STRATA_BATCH_SCRIPT")
    if named:
        try:
            text = Path(named).read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            yield failure("batch-script", error)
        else:
            yield Fact("job.script", text, f"DASK_STRATA_BATCH_SCRIPT: {named}")
            return
    for path, source in _script_paths(view):
        text_or_none = view.read(path)
        if text_or_none:
            yield Fact("job.script", text_or_none, source)
            return
    if not _is_first(view):
        return
    slurm, pbs = view.first(*MARKS["slurm"]), view.first(*MARKS["pbs"])
    if slurm is not None:
        output = view.run("scontrol", "write", "batch_script", slurm[1], "-")
        if output is not None:
            yield Fact("job.script", *output)
    elif pbs is not None:
        yield from _submitted_script(view, pbs[1])


def _submitted_script(view: HostView, job_id: str) -> Iterator[Fact]:
    """Yield the file that was given to qsub, which may have changed since.

    PBS keeps its own copy where only the first node can read it. ``qstat -f`` prints the arguments
    of qsub: the script is the last, or the one with the name of the job. Without arguments, the job
    has the name of its script, unless the user chose another.
    """
    folder, name = view.environ.get("PBS_O_WORKDIR"), view.environ.get("PBS_JOBNAME")
    if not folder:
        return
    output = view.run("qstat", "-f", job_id)
    for key, value in _qstat_values(output[0]) if output else ():
        if key in {"Submit_arguments", "submit_args"} and value.split():
            operands = _operands(value)
            named = [each for each in operands if Path(each).name == name]
            for each in dict.fromkeys([*operands[-1:], *named]):
                found = list(_file_as_submitted(view, Path(folder, each), f"{key}: {value}"))
                if found:
                    yield from found
                    return
            return
    if name:
        yield from _file_as_submitted(view, Path(folder, name), "PBS_O_WORKDIR/PBS_JOBNAME")


def _operands(arguments: str) -> list[str]:
    """Return the arguments of qsub that are neither options nor their values.

    >>> _operands("-V job.sh -v A=1")
    ['job.sh']
    """
    words = _XML_ARGUMENT.findall(arguments) or arguments.split()
    return [
        word
        for before, word in pairwise(["", *words])
        if not word.startswith("-") and (before in _QSUB_FLAGS or not _OPTION.fullmatch(before))
    ]


def _file_as_submitted(view: HostView, path: Path, source: str) -> Iterator[Fact]:
    if not path.is_file() or path.stat().st_size > _MEBIBYTE:
        return  # the last argument of `qsub -- program data.h5` is a file of any size
    text = view.read(path)
    if text and text.startswith(("#!", "#PBS")):
        yield Fact("job.script", text, f"{path} ({source}; it may have changed since)")


def _script_paths(view: HostView) -> Iterator[tuple[Path, str]]:
    """Yield possible paths of the batch system's copy of the script, each with its source."""
    if not batch_systems(view):
        return
    for process, arguments in view.family():
        for argument in arguments:
            if argument.endswith(("/slurm_script", ".SC")):
                yield Path(argument), f"{argument} (command line of process {process})"
    slurm = view.first(*MARKS["slurm"])
    if slurm is not None and slurm[1].isdigit():
        for spool in ("/var/spool/slurmd", "/var/spool/slurm/d", "/var/spool/slurm/slurmd"):
            path = Path(spool) / f"job{int(slurm[1]):05d}" / "slurm_script"
            yield path, str(path)
    pbs = view.first(*MARKS["pbs"])
    if pbs is not None and "/" not in pbs[1]:
        path = Path("/var/spool/pbs/mom_priv/jobs") / f"{pbs[1]}.SC"
        yield path, str(path)
    lsf = view.environ.get("LSB_JOBFILENAME")
    if lsf:
        yield Path(lsf), f"LSB_JOBFILENAME: {lsf}"
        yield Path(lsf + ".shell"), f"LSB_JOBFILENAME: {lsf}.shell"


COLLECTORS = {
    "launcher": launchers,
    "job": job,
    "slurm-limits": slurm_limits,
    "pbs-nodes": pbs_nodes,
    "pbs-limits": pbs_limits,
    "lsf-nodes": lsf_nodes,
    "mpi": mpi,
    "batch-script": batch_script,
}
