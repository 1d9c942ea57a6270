"""Two hosts, as network namespaces, and the line between them, which a trial can cut or slow.

The line is a process that carries packets between a TUN device in each namespace. It replaces
`tc netem`, which not every kernel has.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

A, B = "10.91.7.1", "10.91.7.2"


def run(*command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a system command, without a shell."""
    return subprocess.run(command, capture_output=True, text=True, check=check, timeout=30)


def obstacle() -> str | None:
    """Return the reason why this machine cannot have a second host, or None."""
    if shutil.which("ip") is None or shutil.which("nsenter") is None:
        return "ip and nsenter are not installed"
    name = f"strata{os.getpid()}x"
    made = run("ip", "netns", "add", name, check=False)
    if made.returncode:
        return f"a network namespace cannot be created: {made.stderr.strip()}"
    try:
        tun = run("ip", "-n", name, "tuntap", "add", "dev", "t0", "mode", "tun", check=False)
        return f"a TUN device cannot be created: {tun.stderr.strip()}" if tun.returncode else None
    finally:
        run("ip", "netns", "del", name, check=False)


class Network:
    """Hosts a and b, each with an address on the line between them."""

    def __init__(self, names: tuple[str, str], line: subprocess.Popen[bytes]) -> None:
        self._names, self._line = names, line

    def inside(self, host: str, *, hide: Path | None = None) -> list[str]:
        """Return the prefix of a command that runs it on a host.

        `hide` is a folder that is empty on that host, as if the host had its own disk.
        """
        namespace = f"/run/netns/{self._names['ab'.index(host)]}"
        enter = ["nsenter", f"--net={namespace}"]
        if hide is None:
            return [*enter, "--"]
        cover = 'mount -t tmpfs -o size=1m hidden "$0" && exec "$@"'
        return [*enter, "--", "unshare", "-m", "sh", "-c", cover, str(hide)]

    def set(self, state: str) -> None:
        """Set the line: "open", "cut", or "delay SECONDS" in either direction."""
        self._line.stdin.write(state.encode() + b"\n")
        self._line.stdin.flush()


@contextlib.contextmanager
def network() -> Iterator[Network]:
    """Create the two hosts for the duration of the block."""
    names = (f"strata{os.getpid()}a", f"strata{os.getpid()}b")
    line: subprocess.Popen[bytes] | None = None
    try:
        for name, own, other in zip(names, (A, B), (B, A), strict=True):
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
            run("ip", "-n", name, "tuntap", "add", "dev", "line", "mode", "tun")
            run("ip", "-n", name, "addr", "add", own, "peer", other, "dev", "line")
        carrier = str(Path(__file__).with_name("carrier.py"))
        line = subprocess.Popen(
            [sys.executable, carrier, *(f"/run/netns/{name}" for name in names)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C reaches the trial only, which stops it
        )
        if line.stdout.readline() != b"ready\n":
            raise RuntimeError("the line between the hosts cannot be created")
        for name in names:
            run("ip", "-n", name, "link", "set", "line", "up")
        yield Network(names, line)
    finally:
        if line is not None:
            line.stdin.close()
            line.wait(timeout=30)
            line.stdout.close()
        for name in names:
            run("ip", "netns", "del", name, check=False)
