"""Trace a process as Darshan's DXT does, by a preloaded library, and write the trace as its log.

Darshan's runtime library is in no package registry. Like Darshan, this library intercepts the
system calls of files, and notes their thread, times, offsets and lengths.
"""

from __future__ import annotations

import shutil
import subprocess
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.darshan_files import Log, Operation, TracedFile

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int trace = -1, traced_pid = 0;

static long long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void note(const char *operation, int fd, long long offset, ssize_t n, long long start) {
    char link[64], path[4096], line[4500];
    struct stat facts;
    long long stop = now();
    if (n <= 0 || fd == trace || fstat(fd, &facts) || !S_ISREG(facts.st_mode)) return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return;
    path[length] = 0;
    const char *end = strrchr(path, '.');
    if (!strncmp(path, "/proc/", 6) || !strncmp(path, "/sys/", 5)) return;
    if (end && (!strcmp(end, ".py") || !strcmp(end, ".pyc"))) return;
    if (traced_pid != getpid()) {
        const char *folder = getenv("TRACED_IO");
        if (!folder) return;
        snprintf(line, sizeof line, "%s/%d.trace", folder, (int)getpid());
        trace = syscall(SYS_openat, AT_FDCWD, line,
                        O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        traced_pid = getpid();
    }
    if (offset < 0) offset = lseek(fd, 0, SEEK_CUR) - n;
    int size = snprintf(line, sizeof line, "%s %lld %lld %lld %lld %lld %s\n", operation, offset,
                        (long long)n, start, stop, (long long)pthread_self(), path);
    syscall(SYS_write, trace, line, size);
}

#define TRACED(returned, name, operation, offset, parameters, arguments)                         \
    returned name parameters {                                                                   \
        static returned(*real) parameters;                                                       \
        if (!real) real = dlsym(RTLD_NEXT, #name);                                               \
        long long start = now();                                                                 \
        returned n = real arguments;                                                             \
        note(operation, fd, offset, n, start);                                                   \
        return n;                                                                                \
    }

TRACED(ssize_t, read, "read", -1, (int fd, void *buffer, size_t size), (fd, buffer, size))
TRACED(ssize_t, write, "write", -1, (int fd, const void *buffer, size_t size), (fd, buffer, size))
TRACED(ssize_t, pread64, "read", at, (int fd, void *buffer, size_t size, off64_t at),
       (fd, buffer, size, at))
TRACED(ssize_t, pwrite64, "write", at, (int fd, const void *buffer, size_t size, off64_t at),
       (fd, buffer, size, at))
"""


def compile_tracer(folder: Path) -> Path:
    """Return the library, compiled in a folder; skip the test without a compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("NOT TESTED: there is no C compiler on this machine")
    source, made = folder / "tracer.c", folder / "libtracer.so"
    source.write_text(SOURCE)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", made, source, "-ldl"], check=True)
    return made


def environment(library: Path, folder: Path) -> dict[str, str]:
    """Return the variables of a process that is to be traced, to a file in a folder."""
    return {"LD_PRELOAD": str(library), "TRACED_IO": str(folder)}


@dataclass(frozen=True)
class Traced:
    """A traced read or write; times in nanoseconds since the epoch."""

    pid: int
    operation: str
    offset: int
    length: int
    start: int
    stop: int
    thread: int
    path: str


def read_traces(folder: Path) -> list[Traced]:
    """Return the operations of all processes that were traced to files in a folder."""
    found = []
    for path in sorted(folder.glob("*.trace")):
        for line in path.read_text().splitlines():
            operation, *numbers, name = line.split(" ", 6)
            found.append(Traced(int(path.stem), operation, *map(int, numbers), path=name))
    return found


def write_logs(traces: list[Traced], folder: Path, *, host: str, threads: bool = True) -> None:
    """Write a log of each process to a folder, in the layout with or without threads."""
    by_process: dict[int, list[Traced]] = defaultdict(list)
    for each in traces:
        by_process[each.pid].append(each)
    for pid, operations in by_process.items():
        zero = min(each.start for each in operations)
        files: dict[str, TracedFile] = {}
        for each in operations:
            file = files.setdefault(each.path, TracedFile(each.path, [], [], host))
            times = ((each.start - zero) / 1e9, (each.stop - zero) / 1e9)
            made = Operation(each.offset, each.length, *times, each.thread)
            (file.reads if each.operation == "read" else file.writes).append(made)  # type: ignore[attr-defined]
        stop = max(each.stop for each in operations)
        log = Log(list(files.values()), 40 if threads else 32, start=zero, stop=stop, jobid=pid)
        (folder / f"u_python_id{pid}-{pid}_1-1-1-1_1.darshan").write_bytes(log.bytes())
