"""The machine under a process: host, container, processors, control groups, memory."""

from __future__ import annotations

import os
import platform
import socket
from typing import TYPE_CHECKING

from dask_strata.recorder.environment.host_view import Fact, HostView

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_UNLIMITED = 2**60  # version 1 of control groups writes a larger number for "no limit"


def host(view: HostView) -> Iterator[Fact]:
    """Yield host name, operating system, kernel, architecture, boot id and uptime."""
    system = os.uname()
    yield Fact("host.name", socket.gethostname(), "socket.gethostname")
    yield Fact("os.name", system.sysname, "os.uname")
    yield Fact("os.kernel", system.release, "os.uname")
    yield Fact("os.kernel-build", system.version, "os.uname")
    yield Fact("os.architecture", system.machine, "os.uname")
    boot = view.proc / "sys" / "kernel" / "random" / "boot_id"
    yield Fact("host.boot-id", view.line(boot) or "", str(boot))
    uptime = view.proc / "uptime"
    yield Fact("host.uptime-seconds", (view.line(uptime) or "").partition(" ")[0], str(uptime))
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return  # macOS and the smallest containers have no such file
    yield Fact("os.distribution", release.get("PRETTY_NAME", ""), "platform.freedesktop_os_release")


def container(view: HostView) -> Iterator[Fact]:
    """Yield the container engines with evidence, the image if known, and the pod."""
    root = view.proc / "self" / "root"
    for engine, mark in (("docker", ".dockerenv"), ("podman", "run/.containerenv")):
        if (root / mark).exists():
            yield Fact("container", engine, f"/{mark}")
    for engine, variables in (
        ("apptainer", ("APPTAINER_CONTAINER", "APPTAINER_NAME")),
        ("singularity", ("SINGULARITY_CONTAINER", "SINGULARITY_NAME")),
        ("shifter", ("SHIFTER_IMAGEREQUEST", "SHIFTER_RUNTIME")),
        ("charliecloud", ("CH_RUNNING",)),
        ("kubernetes", ("KUBERNETES_SERVICE_HOST",)),
    ):
        found = view.first(*variables)
        if found is not None:
            yield Fact("container", engine, found[0])
            if variables[0] == found[0] and engine in ("apptainer", "singularity", "shifter"):
                yield Fact("container.image", found[1], found[0])
    kind = view.environ.get("container")
    if kind:
        yield Fact("container", kind, "container")
    if "KUBERNETES_SERVICE_HOST" in view.environ:
        yield Fact("container.pod", view.environ.get("HOSTNAME", ""), "HOSTNAME")
        namespace = root / "var/run/secrets/kubernetes.io/serviceaccount/namespace"
        yield Fact("container.namespace", view.line(namespace) or "", str(namespace))
    groups = view.proc / "self" / "cgroup"
    for line in (view.read(groups) or "").splitlines():
        path = line.partition(":")[2].partition(":")[2]
        if any(mark in path for mark in ("docker", "kubepods", "libpod", "containerd", "lxc")):
            yield Fact("container.cgroup", path, str(groups))
            return


def processors(view: HostView) -> Iterator[Fact]:
    """Yield the model of the processor, and how many sockets, cores and threads there are."""
    info = view.proc / "cpuinfo"
    blocks = [_fields(block) for block in (view.read(info) or "").strip().split("\n\n")]
    logical = [block for block in blocks if "processor" in block]
    merged = {name: value for block in reversed(blocks) for name, value in block.items()}
    for fact, names in (
        ("cpu.model", ("model name", "Model", "cpu", "Hardware")),
        ("cpu.vendor", ("vendor_id", "CPU implementer")),
        ("cpu.part", ("CPU part",)),
    ):
        found = next((merged[name] for name in names if merged.get(name)), "")
        yield Fact(fact, found, str(info))
    yield Fact("cpu.logical-cores", str(len(logical) or os.cpu_count() or ""), str(info))
    system = view.sys_root / "devices" / "system" / "cpu"
    cores = list(_topology(view, system))
    source = str(system)
    if not cores:
        source = str(info)
        cores = [
            (block["physical id"], block["core id"])
            for block in logical
            if "physical id" in block and "core id" in block
        ]
    if cores:
        yield Fact("cpu.sockets", str(len({package for package, _ in cores})), source)
        yield Fact("cpu.physical-cores", str(len(set(cores))), source)
    fastest = system / "cpu0" / "cpufreq" / "cpuinfo_max_freq"
    yield Fact("cpu.max-khz", view.line(fastest) or "", str(fastest))


def _fields(block: str) -> dict[str, str]:
    lines = (line.partition(":") for line in block.splitlines())
    return {name.strip(): value.strip() for name, colon, value in lines if colon}


def _topology(view: HostView, system: Path) -> Iterator[tuple[str, str]]:
    """Yield socket and core of each logical core that is online."""
    for folder in system.glob("cpu[0-9]*/topology"):
        package = view.line(folder / "physical_package_id")
        core = view.line(folder / "core_id")
        if package is not None and core is not None:
            yield package, core


def affinity(view: HostView) -> Iterator[Fact]:
    """Yield the cores that this process may use, and the memory nodes of the machine."""
    if hasattr(os, "sched_getaffinity"):
        allowed = os.sched_getaffinity(0)
        yield Fact("cpu.allowed", str(len(allowed)), "os.sched_getaffinity")
        yield Fact("cpu.allowed-list", ranges(allowed), "os.sched_getaffinity")
    system = view.sys_root / "devices" / "system" / "node"
    nodes = sorted(system.glob("node[0-9]*"), key=lambda node: int(node.name[4:]))
    if nodes:
        yield Fact("cpu.numa-nodes", str(len(nodes)), str(system))
    for node in nodes:
        cores = view.line(node / "cpulist") or ""
        yield Fact(f"cpu.numa-node.{node.name[4:]}.cores", cores, str(node / "cpulist"))


def ranges(numbers: Iterable[int]) -> str:
    """Return numbers in the format in which Linux lists cores.

    Parameters
    ----------
    numbers : iterable of int
        The numbers, in any order.

    >>> ranges([3, 0, 1, 2, 7])
    '0-3,7'
    """
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def control_groups(view: HostView) -> Iterator[Fact]:
    """Yield the lowest limits on cores, memory and swap of this process's control groups."""
    folders = list(dict.fromkeys(_groups(view)))
    for name, limits in (
        ("cgroup.cpu-limit", [limit for folder in folders for limit in _cores(view, folder)]),
        ("cgroup.memory-limit", _bytes(view, folders, "memory.max", "memory.limit_in_bytes")),
        ("cgroup.swap-limit", _bytes(view, folders, "memory.swap.max")),
    ):
        if limits:
            limit, source = min(limits)
            yield Fact(name, f"{limit:.10g}" if limit % 1 else str(int(limit)), str(source))


def memory_groups(view: HostView, process: str) -> Iterator[Path]:
    """Yield the folders of the control groups that limit the memory of a process, innermost first.

    Parameters
    ----------
    view : HostView
        The files of the host.
    process : str
        Its id, or ``self``.
    """
    return _groups(view, process, frozenset({"memory"}))


def _groups(
    view: HostView, process: str = "self", wanted: frozenset[str] = frozenset({"cpu", "memory"})
) -> Iterator[Path]:
    """Yield the folders of all control groups that contain a process, of both versions."""
    root = view.sys_root / "fs" / "cgroup"
    for line in (view.read(view.proc / process / "cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            yield from _upwards(root, path)
            yield from _upwards(root / "unified", path)
        elif wanted & set(controllers.split(",")):
            yield from _upwards(root / controllers, path)


def _upwards(root: Path, path: str) -> Iterator[Path]:
    """Yield a group's folder and its parents; a container can show the root only."""
    parts = [part for part in path.split("/") if part and part != ".."]
    for count in range(len(parts), -1, -1):
        yield root.joinpath(*parts[:count])


def _cores(view: HostView, folder: Path) -> Iterator[tuple[float, Path]]:
    quota, _, period = (view.line(folder / "cpu.max") or "").partition(" ")
    path = folder / "cpu.max"
    if not period:
        path = folder / "cpu.cfs_quota_us"  # -1 without a limit
        quota = view.line(path) or ""
        period = view.line(folder / "cpu.cfs_period_us") or ""
    if quota.isdigit() and period.isdigit():
        yield int(quota) / int(period), path


def _bytes(view: HostView, folders: list[Path], *files: str) -> list[tuple[float, Path]]:
    found = (
        (view.line(folder / file) or "", folder / file) for folder in folders for file in files
    )
    return [(int(text), path) for text, path in found if text.isdigit() and int(text) < _UNLIMITED]


def memory(view: HostView) -> Iterator[Fact]:
    """Yield the memory and swap of the machine in bytes."""
    path = view.proc / "meminfo"
    fields = _fields(view.read(path) or "")
    for fact, name in (
        ("memory.total", "MemTotal"),
        ("memory.available", "MemAvailable"),
        ("memory.swap", "SwapTotal"),
    ):
        size = fields.get(name, "").split()
        if size:
            yield Fact(fact, str(int(size[0]) * 1024), str(path))
    if "MemTotal" not in fields:
        import psutil

        yield Fact("memory.total", str(psutil.virtual_memory().total), "psutil.virtual_memory")
        yield Fact("memory.swap", str(psutil.swap_memory().total), "psutil.swap_memory")


COLLECTORS = {
    "host": host,
    "container": container,
    "processors": processors,
    "affinity": affinity,
    "control-groups": control_groups,
    "memory": memory,
}
