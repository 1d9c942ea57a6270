"""What hangs on the machine: graphics processors, network interfaces, file systems."""

from __future__ import annotations

import os
import re
import shutil
import socket
import tempfile
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from dask_strata.recorder.environment.host_view import Fact, HostView, failure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ANSWER_SECONDS = 1.0  # a dead file server may never answer
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


def nvidia(place: HostView) -> Iterator[Fact]:
    """Yield driver and graphics processors of NVIDIA."""
    driver = place.proc / "driver" / "nvidia"
    text = place.read(driver / "version") or ""
    version = re.search(r"Kernel Module\s+(?:for \S+\s+)?(\S+)", text)
    if version is not None:
        yield Fact("gpu.driver", version[1], str(driver / "version"))
    for index, path in enumerate(sorted(driver.glob("gpus/*/information"))):
        for line in (place.read(path) or "").splitlines():
            name, _, value = line.partition(":")
            known = {"Model": "model", "GPU UUID": "uuid", "Bus Location": "bus"}.get(name.strip())
            if known is not None:
                yield Fact(f"gpu.{index}.{known}", value.strip(), str(path))
    columns = ("name", "uuid", "memory.total", "driver_version")
    answer = place.run(
        "nvidia-smi", f"--query-gpu={','.join(columns)}", "--format=csv,noheader,nounits"
    )
    if answer is None:
        return
    text, _ = answer
    for index, line in enumerate(text.splitlines()):
        values = [value.strip() for value in line.split(",")]
        if len(values) == len(columns):
            model, uuid, mebibytes, number = values
            yield Fact(f"gpu.{index}.model", model, "nvidia-smi")
            yield Fact(f"gpu.{index}.uuid", uuid, "nvidia-smi")
            if mebibytes.isdigit():
                yield Fact(f"gpu.{index}.memory", str(int(mebibytes) * 2**20), "nvidia-smi")
            yield Fact(f"gpu.{index}.driver", number, "nvidia-smi")


def amd(place: HostView) -> Iterator[Fact]:
    """Yield the graphics processors that AMD's driver shows."""
    nodes = place.sys_root / "class" / "kfd" / "kfd" / "topology" / "nodes"
    index = 0
    for node in sorted(nodes.glob("[0-9]*"), key=lambda path: path.name.zfill(4)):
        lines = (line.split() for line in (place.read(node / "properties") or "").splitlines())
        properties = dict(line for line in lines if len(line) == len(("name", "value")))
        if properties.get("simd_count", "0") == "0":
            continue  # a processor, not a graphics processor
        name = place.line(node / "name") or f"gfx target {properties.get('gfx_target_version')}"
        yield Fact(f"gpu.{index}.model", f"AMD {name}", str(node))
        index += 1


def visible_gpus(place: HostView) -> Iterator[Fact]:
    """Yield which graphics processors this process may see."""
    for variable in _VISIBLE:
        if variable in place.environ:  # an empty value hides them all
            yield Fact("gpu.visible", place.environ[variable] or "(none)", variable)


def network(_: HostView) -> Iterator[Fact]:
    """Yield addresses, kind, speed and state of the network interfaces."""
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


def fabrics(place: HostView) -> Iterator[Fact]:
    """Yield the kind of each network link, and the ports of InfiniBand."""
    for link in sorted((place.sys_root / "class" / "net").glob("*")):
        number = place.line(link / "type")
        if link.name.startswith("hsn"):
            yield Fact(f"network.{link.name}.kind", "slingshot", "name of the interface")
        elif number is not None:
            kind = _LINKS.get(number, f"type {number}")
            yield Fact(f"network.{link.name}.kind", kind, str(link / "type"))
    for port in sorted((place.sys_root / "class" / "infiniband").glob("*/ports/*")):
        name = f"infiniband.{port.parent.parent.name}.{port.name}"
        for fact, file in (("rate", "rate"), ("state", "state"), ("link-layer", "link_layer")):
            yield Fact(f"{name}.{fact}", place.line(port / file) or "", str(port / file))


class Mount(NamedTuple):
    """One mounted file system."""

    device: str
    point: str
    kind: str


def mounts(text: str) -> list[Mount]:
    """Return what ``/proc/self/mounts`` lists; of two on one point the later one counts."""
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


class _Answer:
    """A question to a file system, asked in a thread of its own that may never come back."""

    def __init__(self, ask: Callable[[str], Any], path: str) -> None:
        self.value: Any = None
        self.error: OSError | None = TimeoutError(f"{path} did not answer in {ANSWER_SECONDS:g} s")
        self._thread = threading.Thread(target=self._run, args=(ask, path), daemon=True)
        self._until = time.monotonic() + ANSWER_SECONDS
        self._thread.start()

    def _run(self, ask: Callable[[str], Any], path: str) -> None:
        try:
            self.value = ask(path)
        except OSError as error:
            self.error = error
        else:
            self.error = None

    def wait(self) -> Any:
        """Return the answer, or None with the reason in ``error``."""
        self._thread.join(max(0.0, self._until - time.monotonic()))
        return self.value


def filesystems(place: HostView) -> Iterator[Fact]:
    """Yield the file systems of the working folders, and all that are shared between machines."""
    path = place.proc / "self" / "mounts"
    known = mounts(place.read(path) or "")
    folders = {"working-directory": os.getcwd()}  # noqa: PTH109 - text is what is needed
    folders["temporary"] = place.environ.get("TMPDIR") or tempfile.gettempdir()
    if place.environ.get("HOME"):
        folders["home"] = place.environ["HOME"]
    uses: dict[Mount, list[str]] = {mount: [] for mount in known if mount.kind in _SHARED}
    for use, folder in folders.items():
        real = _Answer(os.path.realpath, folder)
        holder = _holder(real.wait() or folder, known)
        if holder is not None:
            uses.setdefault(holder, []).append(use)
        if real.error is not None:
            yield failure(f"filesystems.{use}", real.error)
    ordered = sorted(uses, key=lambda mount: (not uses[mount], mount.point))
    sizes = [_Answer(shutil.disk_usage, mount.point) for mount in ordered[:_MAX_MOUNTS]]
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
