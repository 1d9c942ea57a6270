"""Build Darshan logs in every layout."""

from __future__ import annotations

import bz2
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

MODULES = {"POSIX": 1, "LUSTRE": 8, "STDIO": 9, "DXT_POSIX": 10, "DXT_MPIIO": 11, "HEATMAP": 15}
MAGIC = 6567223
SECOND = 1_000_000_000


@dataclass
class Operation:
    """A read or write; times are in seconds since the start of the process."""

    offset: int
    length: int
    start: float
    stop: float
    thread: int = 0


@dataclass
class TracedFile:
    """The traced operations of a file."""

    name: str
    writes: Sequence[Operation] = ()
    reads: Sequence[Operation] = ()
    host: str = "vm"
    rank: int = 0


@dataclass
class Log:
    """A log; ``layout`` is the size of an operation: 32, 40 or 96 bytes."""

    files: Sequence[TracedFile] = ()
    layout: int = 40
    order: str = "<"
    compression: int = 0
    start: int = 1_795_000_000 * SECOND
    stop: int = 1_795_000_010 * SECOND
    jobid: int = 4711
    nprocs: int = 1
    uid: int = 1000
    exe: str = "/usr/bin/python -c from multiprocessing.spawn import spawn_main"
    partial: int = 0
    others: Mapping[str, bytes] = field(default_factory=dict)
    dxt_version: int | None = None

    def trace(self) -> bytes:
        """Return the records of DXT_POSIX."""
        found = []
        for number, file in enumerate(self.files, 1):
            counts = (len(file.writes), len(file.reads))
            head = (number, file.rank, 0, file.host.encode(), *counts)
            found.append(struct.pack(f"{self.order}Qqq64sqq", *head))
            for op in (*file.writes, *file.reads):
                times = (op.start, op.stop)
                found.append(struct.pack(f"{self.order}qqdd", op.offset, op.length, *times))
                if self.layout == 40:
                    found.append(struct.pack(f"{self.order}Q", op.thread))
                elif self.layout == 96:
                    found.append(f"pthread_id={op.thread}".encode().ljust(64, b"\0"))
        return b"".join(found)

    def bytes(self) -> bytes:
        """Return the whole log, in the format 3.41."""
        regions = dict(self.others)
        if self.files:
            regions.setdefault("DXT_POSIX", self.trace())
        names = b"".join(
            struct.pack(f"{self.order}Q", i) + f.name.encode() + b"\0"
            for i, f in enumerate(self.files, 1)
        )
        job = struct.pack(
            f"{self.order}7q1024s",
            self.uid,
            *divmod(self.start, SECOND),
            *divmod(self.stop, SECOND),
            self.nprocs,
            self.jobid,
            b"lib_ver=3.5.0\n",
        )
        job = self.pack(job + self.exe.encode() + b"\next4\t/\0")
        first = 32 + 16 * 65 + 4 * 64
        body, places = job, [(0, 0)] * 65
        versions = [0] * 64
        version = 2 if self.layout == 40 else 1
        for slot, data in ((0, names), *((MODULES[n] + 1, d) for n, d in regions.items())):
            packed = self.pack(data)
            places[slot] = (first + len(body), len(packed))
            body += packed
        for name in regions:
            versions[MODULES[name]] = version if self.dxt_version is None else self.dxt_version
        head = b"3.41".ljust(8, b"\0") + struct.pack(f"{self.order}q", MAGIC)
        head += bytes([self.compression]).ljust(8, b"\0")
        head += struct.pack(f"{self.order}Q", self.partial)
        flat = [n for place in places for n in place]
        head += struct.pack(f"{self.order}130Q64I", *flat, *versions)
        return head + body

    def pack(self, data: bytes) -> bytes:
        """Return bytes compressed as this log's are."""
        return {0: zlib.compress, 1: bz2.compress, 2: bytes}[self.compression](data)
