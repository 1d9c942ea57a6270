"""Devices of the machine: graphics processors, network interfaces, file systems."""

from __future__ import annotations

import os
import re
import shutil
import socket
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dask_strata.recorder.environment.host_view import Fact, HostView, failure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ANSWER_SECONDS = 1.0  # longest wait for a file server, which may be down
_VISIBLE = (
    "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK",
)  # fmt: skip
_SHARED = frozenset(
    ("lustre", "gpfs", "beegfs", "beegfs_nodev", "nfs", "nfs4", "ceph", "fuse.ceph", "dvs", "cifs",
     "smb3", "panfs", "pvfs2", "orangefs", "wekafs", "glusterfs", "fuse.glusterfs", "daos",
     "fuse.daos", "fuse.sshfs", "fuse.juicefs", "fuse.s3fs", "fuse.gcsfuse", "afs", "9p",
     "virtiofs", "unifyfs"),
)  # fmt: skip
_MAX_MOUNTS = 32
_LINKS = {"1": "ethernet", "32": "infiniband", "772": "loopback"}


def nvidia(view: HostView) -> Iterator[Fact]:
    """Yield NVIDIA's driver and graphics processors."""
    driver = view.proc / "driver" / "nvidia"
    text = view.read(driver / "version") or ""
    version = re.search(r"Kernel Module\s+(?:for \S+\s+)?(\S+)", text)
    if version is not None:
        yield Fact("gpu.driver", version[1], str(driver / "version"))
    for index, path in enumerate(sorted(driver.glob("gpus/*/information"))):
        for line in (view.read(path) or "").splitlines():
            name, _, value = line.partition(":")
            known = {"Model": "model", "GPU UUID": "uuid", "Bus Location": "bus"}.get(name.strip())
            if known is not None:
                yield Fact(f"gpu.{index}.{known}", value.strip(), str(path))
    columns = ("name", "uuid", "memory.total", "driver_version")
    output = view.run(
        "nvidia-smi", f"--query-gpu={','.join(columns)}", "--format=csv,noheader,nounits"
    )
    if output is None:
        return
    text, _ = output
    for index, line in enumerate(text.splitlines()):
        values = [value.strip() for value in line.split(",")]
        if len(values) == len(columns):
            model, uuid, mebibytes, number = values
            yield Fact(f"gpu.{index}.model", model, "nvidia-smi")
            yield Fact(f"gpu.{index}.uuid", uuid, "nvidia-smi")
            if mebibytes.isdigit():
                yield Fact(f"gpu.{index}.memory", str(int(mebibytes) * 2**20), "nvidia-smi")
            yield Fact(f"gpu.{index}.driver", number, "nvidia-smi")


def amd(view: HostView) -> Iterator[Fact]:
    """Yield the graphics processors that AMD's driver lists."""
    nodes = view.sys_root / "class" / "kfd" / "kfd" / "topology" / "nodes"
    index = 0
    for node in sorted(nodes.glob("[0-9]*"), key=lambda path: path.name.zfill(4)):
        lines = (line.split() for line in (view.read(node / "properties") or "").splitlines())
        properties = dict(line for line in lines if len(line) == len(("name", "value")))
        if properties.get("simd_count", "0") == "0":
            continue  # a CPU
        name = view.line(node / "name") or f"gfx target {properties.get('gfx_target_version')}"
        yield Fact(f"gpu.{index}.model", f"AMD {name}", str(node))
        index += 1


def visible_gpus(view: HostView) -> Iterator[Fact]:
    """Yield the graphics processors that variables make visible to this process."""
    for variable in _VISIBLE:
        if variable in view.environ:  # an empty value hides them all
            yield Fact("gpu.visible", view.environ[variable] or "(none)", variable)


def network(_: HostView) -> Iterator[Fact]:
    """Yield addresses, state, MTU and speed of the network interfaces."""
    import psutil

    addresses = psutil.net_if_addrs()
    states = psutil.net_if_stats()
    for name in sorted(addresses.keys() | states.keys()):
        internet = [
            address.address
            for address in addresses.get(name, ())
            if address.family in (socket.AF_INET, socket.AF_INET6)
        ]
        yield Fact(f"network.{name}.address", ", ".join(internet), "psutil.net_if_addrs")
        state = states.get(name)
        if state is not None:
            source = "psutil.net_if_stats"
            yield Fact(f"network.{name}.up", "yes" if state.isup else "no", source)
            yield Fact(f"network.{name}.mtu", str(state.mtu), source)
            if state.speed:
                yield Fact(f"network.{name}.speed-mbps", str(state.speed), source)


def fabrics(view: HostView) -> Iterator[Fact]:
    """Yield the kind of each network link, and rate and state of each InfiniBand port."""
    for link in sorted((view.sys_root / "class" / "net").glob("*")):
        number = view.line(link / "type")
        if link.name.startswith("hsn"):
            yield Fact(f"network.{link.name}.kind", "slingshot", "name of the interface")
        elif number is not None:
            kind = _LINKS.get(number, f"type {number}")
            yield Fact(f"network.{link.name}.kind", kind, str(link / "type"))
    for port in sorted((view.sys_root / "class" / "infiniband").glob("*/ports/*")):
        name = f"infiniband.{port.parent.parent.name}.{port.name}"
        for fact, file in (("rate", "rate"), ("state", "state"), ("link-layer", "link_layer")):
            yield Fact(f"{name}.{fact}", view.line(port / file) or "", str(port / file))


class Mount(NamedTuple):
    """A mounted file system: its device, mount point and type."""

    device: str
    point: str
    kind: str


def mounts(text: str) -> list[Mount]:
    r"""Return the file systems in a text; of two on one mount point, the later one counts.

    Parameters
    ----------
    text : str
        Content of ``/proc/self/mounts``.

    >>> mounts("/dev/sda1 / ext4 rw 0 0\\n")
    [Mount(device='/dev/sda1', point='/', kind='ext4')]
    """
    found: dict[str, Mount] = {}
    for line in text.splitlines():
        parts = [re.sub(r"\\([0-7]{3})", _octal, part) for part in line.split(" ")]
        if len(parts) > len(Mount._fields) - 1:
            found[parts[1]] = Mount(*parts[:3])
    return list(found.values())


def _octal(match: re.Match[str]) -> str:
    return chr(int(match[1], 8))


def _holder(path: str, known: list[Mount]) -> Mount | None:
    """Return the file system that holds a path."""
    around = [
        mount
        for mount in known
        if path == mount.point or path.startswith(mount.point.rstrip("/") + "/")
    ]
    return max(around, key=lambda mount: len(mount.point), default=None)


class _Query:
    """A call to a file system on its own thread, because the call may never return."""

    def __init__(self, function: Callable[[str], Any], path: str) -> None:
        self.value: Any = None
        self.error: OSError | None = TimeoutError(f"{path} did not answer in {ANSWER_SECONDS:g} s")
        self._thread = threading.Thread(target=self._run, args=(function, path), daemon=True)
        self._until = time.monotonic() + ANSWER_SECONDS
        self._thread.start()

    def _run(self, function: Callable[[str], Any], path: str) -> None:
        try:
            self.value = function(path)
        except OSError as error:
            self.error = error
        else:
            self.error = None

    def wait(self) -> Any:
        """Return the result; None, with the reason in ``error``, without one."""
        self._thread.join(max(0.0, self._until - time.monotonic()))
        return self.value


def filesystems(view: HostView) -> Iterator[Fact]:
    """Yield the file systems of the process's folders, and all shared file systems."""
    path = view.proc / "self" / "mounts"
    known = mounts(view.read(path) or "")
    folders = {"working-directory": str(Path.cwd())}
    folders["temporary"] = view.environ.get("TMPDIR") or tempfile.gettempdir()
    if view.environ.get("HOME"):
        folders["home"] = view.environ["HOME"]
    uses: dict[Mount, list[str]] = {mount: [] for mount in known if mount.kind in _SHARED}
    for use, folder in folders.items():
        real = _Query(os.path.realpath, folder)
        holder = _holder(real.wait() or folder, known)
        if holder is not None:
            uses.setdefault(holder, []).append(use)
        if real.error is not None:
            yield failure(f"filesystems.{use}", real.error)
    ordered = sorted(uses, key=lambda mount: (not uses[mount], mount.point))
    sizes = [_Query(shutil.disk_usage, mount.point) for mount in ordered[:_MAX_MOUNTS]]
    for index, (mount, size) in enumerate(zip(ordered, sizes, strict=False)):
        name = f"filesystem.{index}"
        yield Fact(f"{name}.mount", mount.point, str(path))
        yield Fact(f"{name}.type", mount.kind, str(path))
        yield Fact(f"{name}.device", mount.device, str(path))
        yield Fact(f"{name}.used-for", ", ".join(uses[mount]), "dask-strata")
        usage = size.wait()
        if usage is not None:
            yield Fact(f"{name}.size", str(usage.total), "shutil.disk_usage")
            yield Fact(f"{name}.free", str(usage.free), "shutil.disk_usage")
        elif size.error is not None:
            yield failure(f"{name}.size", size.error)
    if len(ordered) > _MAX_MOUNTS:
        left_out = str(len(ordered) - _MAX_MOUNTS)
        yield Fact("filesystem.not-listed", left_out, "dask-strata")


COLLECTORS = {
    "nvidia": nvidia,
    "amd": amd,
    "visible-gpus": visible_gpus,
    "network": network,
    "fabrics": fabrics,
    "filesystems": filesystems,
}
