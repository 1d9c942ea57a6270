"""Facts about the job: launchers from realistic environments, machines from trees, this machine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import psutil
import pytest

from dask_strata.recorder.environment import devices, job
from dask_strata.recorder.environment.host_view import Fact
from dask_strata.recorder.environment.job import job_facts

SLURM = {
    "SLURM_JOB_ID": "8123", "SLURM_JOB_NAME": "analysis", "SLURM_JOB_PARTITION": "debug",
    "SLURM_JOB_ACCOUNT": "m1234", "SLURM_JOB_NODELIST": "nid[0001-0004]",
    "SLURM_JOB_NUM_NODES": "4", "SLURM_NTASKS": "8", "SLURM_CPUS_PER_TASK": "16",
    "SLURM_MEM_PER_NODE": "4096", "SLURM_JOB_START_TIME": "1700000000",
    "SLURM_JOB_END_TIME": "1700003600", "SLURM_ARRAY_JOB_ID": "8120", "SLURM_ARRAY_TASK_ID": "3",
    "SLURM_SUBMIT_DIR": "/scratch/me", "SLURM_SUBMIT_HOST": "login01", "SLURM_PROCID": "1",
    "SLURM_JWT": "eyJ-very-secret",
}  # fmt: skip
PBS = {
    "PBS_JOBID": "77.server", "PBS_JOBNAME": "analysis", "PBS_QUEUE": "workq",
    "PBS_O_WORKDIR": "/home/me", "PBS_O_HOST": "login02", "PBS_ARRAY_INDEX": "5",
    "PBS_ACCOUNT": "climate", "PBS_JOBCOOKIE": "0000000012345678",
}  # fmt: skip
LSF = {
    "LSB_JOBID": "991", "LSB_JOBNAME": "analysis[2]", "LSB_QUEUE": "normal", "LSB_JOBINDEX": "2",
    "LSB_PROJECT_NAME": "physics", "LSB_MCPU_HOSTS": "batch1 1 a01 42 a02 42",
    "LSB_DJOB_NUMPROC": "85", "LSB_CG_MEMLIMIT": "40000000", "LS_SUBCWD": "/gpfs/me",
    "LSB_SUB_HOST": "login03",
}  # fmt: skip
JOBQUEUE = [
    "/opt/python", "-m", "distributed.cli.dask_worker", "tcp://10.0.0.1:40000", "--nthreads", "4",
    "--memory-limit", "4.00GiB", "--name", "SLURMCluster-3", "--nanny", "--death-timeout", "60",
]  # fmt: skip


@pytest.fixture
def look(tmp_path):
    """Return facts by name for an environment, over a proc and sys tree that tests fill."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "sys").mkdir()

    def look(environ=None):
        found: dict[str, list[Fact]] = {}
        environ = {"PATH": str(tmp_path / "bin"), **(environ or {})}
        for fact in job_facts(environ, proc=tmp_path / "proc", sys_root=tmp_path / "sys"):
            found.setdefault(fact.name, []).append(fact)
        return found

    return look


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def process(tmp_path, number, parent, arguments):
    write(tmp_path / "proc" / str(number) / "status", f"Name:\tx\nPPid:\t{parent}\n")
    write(tmp_path / "proc" / str(number) / "cmdline", "\0".join(arguments) + "\0")


def values(found, *names):
    return [[fact.value for fact in found.get(name, [])] for name in names]


def test_no_launcher(look):
    """Outside any batch system the launcher is none, and there is no job."""
    found = look()
    assert values(found, "launcher") == [["none"]]
    assert not [name for name in found if name.startswith(("job.", "mpi."))]


def test_slurm(look):
    """A Slurm job's facts come from Slurm's variables, with memory in bytes, time in seconds."""
    found = look(SLURM)
    assert found["launcher"] == [("launcher", "slurm", "SLURM_JOB_ID")]
    assert found["job.id"] == [("job.id", "8123", "SLURM_JOB_ID")]
    assert values(
        found, "job.name", "job.queue", "job.account", "job.nodes", "job.node-count", "job.tasks",
        "job.cpus-per-task", "job.memory-per-node", "job.time-limit", "job.end-time",
        "job.array-id", "job.array-task", "job.submit-dir", "job.submit-host",
    ) == [
        ["analysis"], ["debug"], ["m1234"], ["nid[0001-0004]"], ["4"], ["8"], ["16"],
        [str(4 * 2**30)], ["3600"], ["1700003600"], ["8120"], ["3"], ["/scratch/me"], ["login01"],
    ]  # fmt: skip


def test_pbs(look, tmp_path):
    """A PBS job's facts come from PBS's variables and its node file, each node once."""
    nodefile = write(tmp_path / "nodes", "n1\nn1\nn2\nn2\n")
    found = look({**PBS, "PBS_NODEFILE": str(nodefile)})
    assert values(
        found, "launcher", "job.id", "job.queue", "job.account", "job.nodes", "job.node-count",
        "job.slots", "job.array-task", "job.submit-dir", "job.submit-host",
    ) == [
        ["pbs"], ["77.server"], ["workq"], ["climate"], ["n1,n2"], ["2"], ["4"], ["5"],
        ["/home/me"], ["login02"],
    ]  # fmt: skip
    assert str(nodefile) in found["job.nodes"][0].source


def test_pbs_limits_are_asked_for(look, tmp_path):
    """Facts that PBS sets in no variable are read from qstat, long values reassembled."""
    program = write(
        tmp_path / "bin" / "qstat",
        "#!/bin/sh\nprintf 'Job Id: %s\\n    Resource_List.mem = 100gb\\n"
        "    Resource_List.walltime = 02:00:00\\n"
        "    Resource_List.select = 2:ncpus=2\\n\\t4\\n' $2\n",
    )
    program.chmod(0o755)
    found = look(PBS)
    assert values(found, "job.memory-limit", "job.time-limit", "job.resources") == [
        ["100gb"], ["02:00:00"], ["2:ncpus=24"],
    ]  # fmt: skip
    assert found["job.time-limit"][0].source == "qstat -f 77.server"


def test_lsf(look):
    """An LSF job's facts come from LSF's variables, hosts without their slot counts."""
    found = look(LSF)
    assert values(
        found, "launcher", "job.id", "job.queue", "job.account", "job.nodes", "job.node-count",
        "job.tasks", "job.memory-limit", "job.array-id", "job.array-task", "job.submit-dir",
    ) == [
        ["lsf"], ["991"], ["normal"], ["physics"], ["batch1,a01,a02"], ["3"], ["85"],
        [str(2**30)], ["991"], ["2"], ["/gpfs/me"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("environ", "implementation", "rank", "size"),
    [
        ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8", "PMIX_RANK": "3"},
         "openmpi", "3", ["8"]),
        ({"PMI_RANK": "1", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"},
         "hydra", "1", ["4"]),
        ({"PMI_RANK": "1", "PMI_SIZE": "4"}, "pmi", "1", ["4"]),
        ({"PMIX_RANK": "0"}, "pmix", "0", []),
        ({"PALS_RANKID": "0", "PALS_NODEID": "0"}, "pals", "0", []),
    ],
)  # fmt: skip
def test_mpi(look, environ, implementation, rank, size):
    """An MPI launcher is recognised with its implementation, rank and, where known, size."""
    found = look(environ)
    assert values(found, "launcher", "mpi.implementation", "mpi.rank", "mpi.size") == [
        ["mpi"], [implementation], [rank], size,
    ]  # fmt: skip


def test_mpi_inside_slurm(look):
    """Several launchers are several rows."""
    found = look({**SLURM, "OMPI_COMM_WORLD_RANK": "0"})
    assert values(found, "launcher") == [["slurm", "mpi"]]


@pytest.mark.parametrize("own", [True, False])
def test_dask_jobqueue_by_worker_name(look, tmp_path, own):
    """A worker of dask-jobqueue is recognised by its command line, or that of its nanny."""
    process(tmp_path, "self", 40, JOBQUEUE if own else ["python", "-c", "spawn_main()"])
    process(tmp_path, 40, 1, ["/bin/bash", "x"] if own else JOBQUEUE)
    found = look(SLURM)
    assert values(found, "launcher") == [["slurm", "dask-jobqueue"]]
    assert ("self" if own else "40") in found["launcher"][1].source


@pytest.mark.parametrize("command", ["-m distributed.cli.dask_worker", "/x/dask worker"])
def test_dask_jobqueue_by_job_name(look, tmp_path, command):
    """A worker command in a job named dask-worker is one of dask-jobqueue, whatever its name."""
    process(tmp_path, "self", 1, ["python", *command.split(), "tcp://s:1", "--name", "mine-0"])
    assert values(look({**PBS, "PBS_JOBNAME": "dask-worker"}), "launcher") == [
        ["pbs", "dask-jobqueue"]
    ]
    assert values(look(PBS), "launcher") == [["pbs"]]
    assert values(look({}), "launcher") == [["none"]]


def test_script_of_slurm_from_the_command_line_of_the_batch_step(look, tmp_path):
    """Slurm's copy of the script is found through the shell that runs it, without its secrets."""
    script = write(
        tmp_path / "spool/job08123/slurm_script", "#!/bin/sh\nexport DB_PASSWORD=hunter2\n"
    )
    process(tmp_path, "self", 41, ["python", "x.py"])
    process(tmp_path, 41, 1, ["/bin/bash", str(script)])
    (fact,) = look(SLURM)["job.script"]
    assert fact.value == "#!/bin/sh\nexport DB_PASSWORD=(redacted)\n"
    assert fact.source.startswith(str(script))


def scontrol(tmp_path, body):
    write(tmp_path / "bin" / "scontrol", f"#!/bin/sh\n{body}\n").chmod(0o755)


def test_script_from_scontrol(look, tmp_path):
    """scontrol prints the script of the job; only rank 0 runs it."""
    scontrol(tmp_path, 'echo "asked $*"')
    (fact,) = look({**SLURM, "SLURM_PROCID": "0"})["job.script"]
    assert fact.value == "asked write batch_script 8123 -\n"
    assert fact.source == "scontrol write batch_script 8123 -"
    assert "job.script" not in look(SLURM)
    assert "job.script" not in look({})


def test_command_that_fails(look, tmp_path):
    """A command that fails leaves its error message, and all other facts."""
    scontrol(tmp_path, "echo 'Access denied' >&2; exit 3")
    found = look({**SLURM, "SLURM_PROCID": "0"})
    (error,) = found["error.batch-script"]
    assert error.value.startswith("OSError: ")
    assert "code 3: Access denied" in error.value
    assert values(found, "job.id") == [["8123"]]


def test_command_that_hangs(look, tmp_path, monkeypatch):
    """A command that does not end is stopped."""
    scontrol(tmp_path, "while :; do :; done")
    monkeypatch.setattr("dask_strata.recorder.environment.host_view.COMMAND_SECONDS", 0.2)
    (error,) = look({**SLURM, "SLURM_PROCID": "0"})["error.batch-script"]
    assert error.value.startswith(subprocess.TimeoutExpired.__name__)


@pytest.mark.parametrize("suffix", ["", ".shell"])
def test_script_of_lsf(look, tmp_path, suffix):
    """LSF's copy of the script is found, under either of its names."""
    write(tmp_path / f"1402.991{suffix}", "#BSUB -n 2\n")
    found = look({**LSF, "LSB_JOBFILENAME": str(tmp_path / "1402.991")})
    assert values(found, "job.script") == [["#BSUB -n 2\n"]]


XML_ARGUMENT = "<jsdl-hpcpa:Argument>{}</jsdl-hpcpa:Argument>"


def qstat(tmp_path, text):
    write(tmp_path / "bin" / "qstat", f"#!/bin/sh\nprintf '{text}'\n").chmod(0o755)


def test_script_of_pbs_by_the_name_of_the_job(look, tmp_path):
    """A PBS job has the name of its script in the folder that it was submitted from."""
    script = write(tmp_path / "job.sh", "#!/bin/bash\n#PBS -q debug\nexport API_TOKEN=hunter2\n")
    pbs = {**PBS, "PBS_O_WORKDIR": str(tmp_path), "PBS_JOBNAME": "job.sh"}
    (fact,) = look(pbs)["job.script"]
    assert fact.value == "#!/bin/bash\n#PBS -q debug\nexport API_TOKEN=(redacted)\n"
    assert str(script) in fact.source
    assert "PBS_JOBNAME" in fact.source
    assert "job.script" not in look({**pbs, "PMI_RANK": "1"})


def test_script_of_pbs_by_the_arguments_of_qsub(look, tmp_path):
    """Where the user named the job, qstat has the arguments of qsub, of which the script is one."""
    write(tmp_path / "run me not.sh", "#!/bin/bash\n")
    write(tmp_path / "sub" / "real.pbs", "#!/bin/bash\necho real\n")
    write(tmp_path / "analysis", "#!/bin/bash\necho not this\n")
    qstat(
        tmp_path,
        "Job Id: 77\\n    Submit_arguments = -N analysis -q debug sub/\\n\\treal.pbs\\n",
    )
    (fact,) = look({**PBS, "PBS_O_WORKDIR": str(tmp_path)})["job.script"]
    assert fact.value.endswith("echo real\n")
    assert "Submit_arguments: -N analysis" in fact.source


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ("-q debug analysis", True),
        ("-V analysis", True),
        ("analysis -v A=1", True),
        ("analysis -q debug first second", True),
        (XML_ARGUMENT.format("-V") + XML_ARGUMENT.format("analysis"), True),
        ("-q debug -N analysis", False),
        ("-N analysis other", False),
    ],
)  # fmt: skip
def test_script_of_pbs_among_the_arguments(look, tmp_path, arguments, found):
    """The script is an operand of qsub; a name that the user chose for the job is no script."""
    write(tmp_path / "analysis", "#!/bin/bash\n")
    qstat(tmp_path, f"Job Id: 77\\n    Submit_arguments = {arguments}\\n")
    assert ("job.script" in look({**PBS, "PBS_O_WORKDIR": str(tmp_path)})) == found


@pytest.mark.parametrize("content", ["\0\1", "import dask\n", ""])
def test_a_file_that_is_no_script_is_not_the_batch_script(look, tmp_path, content):
    """A file with the job's name that is no shell script is left alone, as is a folder."""
    write(tmp_path / "analysis", content)
    (tmp_path / "folder").mkdir()
    pbs = {**PBS, "PBS_O_WORKDIR": str(tmp_path)}
    assert "job.script" not in look(pbs)
    assert "job.script" not in look({**pbs, "PBS_JOBNAME": "folder"})


@pytest.mark.parametrize("start", ["", "#!/bin/sh\n"])
def test_a_large_file_is_not_read_for_the_batch_script(look, tmp_path, start):
    """In `qsub -- program data.h5` the last argument may be a file of any size."""
    write(tmp_path / "data.h5", start)
    os.truncate(tmp_path / "data.h5", 200 << 20)
    qstat(tmp_path, "Job Id: 77\\n    Submit_arguments = -- program data.h5\\n")
    tracemalloc.start()
    try:
        found = look({**PBS, "PBS_O_WORKDIR": str(tmp_path)})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "job.script" not in found
    assert peak < 50 << 20


def test_topology(look, tmp_path):
    """The place of the job in the machine is on record where the batch system sets it."""
    found = look({**SLURM, "SLURM_TOPOLOGY_ADDR": "s0.s3.nid0001",
                  "SLURM_TOPOLOGY_ADDR_PATTERN": "switch.switch.node"})  # fmt: skip
    assert values(found, "job.topology-address", "job.topology-pattern") == [
        ["s0.s3.nid0001"], ["switch.switch.node"],
    ]  # fmt: skip
    qstat(tmp_path, "Job Id: 77\\n    Resource_List.place = scatter:group=switch\\n"
                    "    exec_vnode = (n1:ncpus=4)+(n2:ncpus=4)\\n")  # fmt: skip
    assert values(look(PBS), "job.placement", "job.vnodes") == [
        ["scatter:group=switch"], ["(n1:ncpus=4)+(n2:ncpus=4)"],
    ]  # fmt: skip


def test_script_that_the_user_names(look, tmp_path):
    """DASK_STRATA_BATCH_SCRIPT has precedence; if its file is unreadable, that is an error fact."""
    script = write(tmp_path / "mine.sh", "echo 1\n")
    other = write(tmp_path / "lsf", "echo 2\n")
    lsf = {**LSF, "LSB_JOBFILENAME": str(other)}
    assert values(look({**lsf, "DASK_STRATA_BATCH_SCRIPT": str(script)}), "job.script") == [
        ["echo 1\n"]
    ]
    found = look({**lsf, "DASK_STRATA_BATCH_SCRIPT": str(tmp_path / "none")})
    assert values(found, "job.script") == [["echo 2\n"]]
    assert "FileNotFoundError" in found["error.batch-script"][0].value


def test_secrets_of_the_environment_are_not_recorded(look):
    """No value of a variable with a secret name is in any fact."""
    secrets = {"SLURM_JWT", "PBS_JOBCOOKIE"}
    environ = {**SLURM, **PBS, "AWS_SECRET_ACCESS_KEY": "hunter2hunter2"}
    facts = [fact for row in look(environ).values() for fact in row]
    assert len(facts) > 30
    for name in (*secrets, "AWS_SECRET_ACCESS_KEY"):
        assert not any(environ[name] in text for fact in facts for text in fact)


def test_text_that_is_not_utf8(look):
    """Every fact can be written as UTF-8, whatever bytes the environment holds."""
    found = look({**SLURM, "SLURM_JOB_NAME": "caf\udce9"})
    assert values(found, "job.name") == [["caf\\udce9"]]


def test_broken_collector(monkeypatch):
    """A collector that fails keeps its facts so far, and the other collectors continue."""

    def broken(_):
        yield Fact("before", "1", "test")
        raise ValueError("bad day")

    monkeypatch.setitem(job.COLLECTORS, "host", broken)
    facts = job_facts()
    assert Fact("before", "1", "test") in facts
    assert Fact("error.host", "ValueError: bad day", "dask-strata") in facts
    assert any(fact.name == "process.pid" for fact in facts)


def test_odd_numbers_are_said_not_raised(look):
    """A variable without its number is recorded as an error fact."""
    found = look({**SLURM, "SLURM_MEM_PER_NODE": "lots"})
    assert found["error.slurm-limits"][0].value.startswith("ValueError")


def test_containers(look, tmp_path):
    """Each container engine with evidence is a row, with the image if it is known."""
    write(tmp_path / "proc/self/root/.dockerenv", "")
    namespace = "proc/self/root/var/run/secrets/kubernetes.io/serviceaccount/namespace"
    write(tmp_path / namespace, "team\n")
    environ = {"APPTAINER_CONTAINER": "/img.sif", "KUBERNETES_SERVICE_HOST": "10.0.0.1",
               "HOSTNAME": "pod-7"}  # fmt: skip
    found = look(environ)
    names = ("container", "container.image", "container.pod", "container.namespace")
    assert values(found, *names) == [
        ["docker", "apptainer", "kubernetes"], ["/img.sif"], ["pod-7"], ["team"],
    ]  # fmt: skip
    (tmp_path / "proc/self/root/.dockerenv").unlink()
    assert "container" not in look({})


def test_processors(look, tmp_path):
    """Two sockets of two cores with two threads each are counted as such."""
    block = "processor\t: {}\nvendor_id\t: X\nmodel name\t: Fast CPU\n"
    write(tmp_path / "proc/cpuinfo", "\n".join(block.format(n) for n in range(8)))
    for n in range(8):
        topology = tmp_path / f"sys/devices/system/cpu/cpu{n}/topology"
        write(topology / "physical_package_id", f"{n // 4}\n")
        write(topology / "core_id", f"{n // 2 % 2}\n")
    for n in range(2):
        write(tmp_path / f"sys/devices/system/node/node{n}/cpulist", f"{4 * n}-{4 * n + 3}\n")
    found = look()
    assert values(
        found, "cpu.model", "cpu.logical-cores", "cpu.sockets", "cpu.physical-cores",
        "cpu.numa-nodes", "cpu.numa-node.1.cores",
    ) == [["Fast CPU"], ["8"], ["2"], ["4"], ["2"], ["4-7"]]  # fmt: skip


def test_processors_without_topology(look, tmp_path):
    """Where /sys is hidden, sockets and cores come from /proc/cpuinfo."""
    block = "processor\t: {0}\nphysical id\t: {0}\ncore id\t: 0\n"
    write(tmp_path / "proc/cpuinfo", "\n".join(block.format(n) for n in range(2)))
    assert values(look(), "cpu.sockets", "cpu.physical-cores") == [["2"], ["2"]]


def test_control_groups_v2(look, tmp_path):
    """Of the limits of a control group and its parents, the lowest one counts."""
    write(tmp_path / "proc/self/cgroup", "0::/slurm/job_1/step_0\n")
    root = tmp_path / "sys/fs/cgroup"
    write(root / "slurm/job_1/step_0/cpu.max", "max 100000\n")
    write(root / "slurm/job_1/step_0/memory.max", "max\n")
    write(root / "slurm/job_1/cpu.max", "250000 100000\n")
    write(root / "slurm/job_1/memory.max", "1073741824\n")
    write(root / "slurm/memory.max", "4294967296\n")
    found = look()
    assert values(found, "cgroup.cpu-limit", "cgroup.memory-limit") == [["2.5"], ["1073741824"]]
    assert found["cgroup.memory-limit"][0].source == str(root / "slurm/job_1/memory.max")


def test_control_groups_v1(look, tmp_path):
    """Limits of control groups version 1 are read, even if only the root is visible."""
    write(tmp_path / "proc/self/cgroup", "4:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n")
    root = tmp_path / "sys/fs/cgroup"
    write(root / "memory/memory.limit_in_bytes", "536870912\n")
    write(root / "cpu,cpuacct/cpu.cfs_quota_us", "200000\n")
    write(root / "cpu,cpuacct/cpu.cfs_period_us", "100000\n")
    found = look()
    assert values(found, "cgroup.cpu-limit", "cgroup.memory-limit") == [["2"], ["536870912"]]
    assert values(found, "container.cgroup") == [["/docker/abc"]]


def test_no_limit_is_no_fact(look, tmp_path):
    """A control group without limits yields no fact, in version 1 and version 2."""
    write(tmp_path / "proc/self/cgroup", "4:memory,cpu:/\n0::/\n")
    root = tmp_path / "sys/fs/cgroup"
    write(root / "memory,cpu/memory.limit_in_bytes", "9223372036854771712\n")
    write(root / "memory,cpu/cpu.cfs_quota_us", "-1\n")
    write(root / "memory,cpu/cpu.cfs_period_us", "100000\n")
    write(root / "memory.max", "max\n")
    assert not [name for name in look() if name.startswith("cgroup.")]


def test_gpus(look, tmp_path):
    """Graphics processors are found in the drivers' trees, and hidden ones are reported."""
    write(
        tmp_path / "proc/driver/nvidia/gpus/0000:01:00.0/information",
        "Model: \t\t NVIDIA A100-SXM4-40GB\nIRQ:   \t\t 7\nGPU UUID: \t GPU-1\n",
    )
    nodes = tmp_path / "sys/class/kfd/kfd/topology/nodes"
    write(nodes / "0/properties", "cpu_cores_count 64\nsimd_count 0\n")
    write(nodes / "1/properties", "simd_count 416\ngfx_target_version 90010\n")
    write(nodes / "1/name", "aldebaran\n")
    found = look({"CUDA_VISIBLE_DEVICES": ""})
    assert values(found, "gpu.0.model", "gpu.0.uuid", "gpu.visible") == [
        ["NVIDIA A100-SXM4-40GB", "AMD aldebaran"], ["GPU-1"], ["(none)"],
    ]  # fmt: skip


def test_nvidia_smi(look, tmp_path):
    """If nvidia-smi is installed, it adds the memory, in bytes, and the driver."""
    write(
        tmp_path / "bin" / "nvidia-smi", "#!/bin/sh\necho 'NVIDIA H100, GPU-2, 81559, 550.54.15'\n"
    ).chmod(0o755)
    found = look()
    assert values(found, "gpu.0.model", "gpu.0.memory", "gpu.0.driver") == [
        ["NVIDIA H100"], [str(81559 * 2**20)], ["550.54.15"],
    ]  # fmt: skip


def test_fabrics(look, tmp_path):
    """InfiniBand ports and kinds of links are facts; Slingshot is recognised by its name."""
    port = tmp_path / "sys/class/infiniband/mlx5_0/ports/1"
    write(port / "rate", "200 Gb/sec (4X HDR)\n")
    write(port / "link_layer", "InfiniBand\n")
    for name, number in (("ib0", 32), ("hsn0", 1), ("eth7", 1)):
        write(tmp_path / f"sys/class/net/{name}/type", f"{number}\n")
    found = look()
    assert values(
        found, "infiniband.mlx5_0.1.rate", "infiniband.mlx5_0.1.link-layer",
        "network.ib0.kind", "network.hsn0.kind", "network.eth7.kind",
    ) == [
        ["200 Gb/sec (4X HDR)"], ["InfiniBand"], ["infiniband"], ["slingshot"], ["ethernet"],
    ]  # fmt: skip


def test_filesystems(look, tmp_path):
    """The process's file systems and all shared ones are facts, once each."""
    here = tmp_path / "with space"
    here.mkdir()
    point = str(here).replace(" ", "\\040")
    write(
        tmp_path / "proc/self/mounts",
        "/dev/vda / ext4 rw 0 0\nproc /proc proc rw 0 0\n"
        f"10.0.0.1@tcp:/fs {point} lustre rw 0 0\nserver:/gone /gone/away nfs4 rw 0 0\n",
    )
    found = look({"TMPDIR": str(here), "HOME": str(here / "me")})
    assert values(found, "filesystem.0.type", "filesystem.0.used-for") == [
        ["ext4"], ["working-directory"],
    ]  # fmt: skip
    assert values(found, "filesystem.1.mount", "filesystem.1.type", "filesystem.1.used-for") == [
        [str(here)], ["lustre"], ["temporary, home"],
    ]  # fmt: skip
    assert int(found["filesystem.1.size"][0].value) > 0
    assert values(found, "filesystem.2.device", "filesystem.2.size") == [["server:/gone"], []]
    assert "FileNotFoundError" in found["error.filesystem.2.size"][0].value
    assert "filesystem.3.type" not in found


def test_dead_file_server(look, tmp_path, monkeypatch):
    """A file system that never answers causes a short delay and an error fact."""
    monkeypatch.setattr(devices, "ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(devices.shutil, "disk_usage", lambda _: time.sleep(3))
    write(tmp_path / "proc/self/mounts", "/dev/vda / ext4 rw 0 0\nserver:/x /x nfs rw 0 0\n")
    before = time.perf_counter()
    found = look()
    assert time.perf_counter() - before < 2
    assert values(found, "filesystem.1.type", "filesystem.1.size") == [["nfs"], []]
    assert found["error.filesystem.1.size"][0].value.startswith("TimeoutError: /x did not answer")


def test_this_machine():
    """On this machine the facts agree with Python's libraries, and none is an error."""
    facts = {fact.name: fact.value for fact in job_facts()}
    assert facts["host.name"] == socket.gethostname()
    assert facts["process.pid"] == str(os.getpid())
    assert facts["process.executable"] == sys.executable
    assert facts["process.working-directory"] == str(Path.cwd())
    assert abs(float(facts["process.started"]) - psutil.Process().create_time()) < 1
    assert int(facts["memory.total"]) == psutil.virtual_memory().total
    assert int(facts["cpu.logical-cores"]) == psutil.cpu_count()
    assert int(facts["cpu.allowed"]) == len(os.sched_getaffinity(0))
    assert "127.0.0.1" in facts["network.lo.address"]
    assert "working-directory" in facts["filesystem.0.used-for"]
    assert int(facts["limit.nofile.soft"]) > 0
    assert [name for name in facts if name.startswith("error.")] == []


def test_time():
    """Collecting all facts of this machine takes less than 0.3 s, best of three."""
    seconds = []
    for _ in range(3):
        before = time.perf_counter()
        job_facts()
        seconds.append(time.perf_counter() - before)
    assert min(seconds) < 0.3


def test_no_heavy_imports():
    """Collecting facts and settings imports no columnar or numerical library."""
    code = (
        "import sys; from dask_strata.recorder.environment import job, dask_config;"
        "job.job_facts(); dask_config.effective_settings(); dask_config.installed_packages();"
        "heavy = {'pyarrow', 'pandas', 'numpy', 'distributed', 'rich', 'duckdb'};"
        "print(*(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
