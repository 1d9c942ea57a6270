"""The line between two hosts: `python carrier.py NAMESPACE NAMESPACE`, orders on standard input.

Carries packets between the TUN devices called `line`. Orders: open, cut (packets are lost),
delay SECONDS (packets arrive that much later). Stops at the end of its input.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import os
import selectors
import struct
import sys
import time
from pathlib import Path

_TUNSETIFF, _IFF_TUN, _IFF_NO_PI, _CLONE_NEWNET = 0x400454CA, 0x0001, 0x1000, 0x40000000


def device(namespace: str) -> int:
    """Open the TUN device of a namespace from outside of it."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path(namespace).open() as file:
        if libc.setns(file.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH22x", b"line", _IFF_TUN | _IFF_NO_PI))
    return tun


class Line:
    """Packets in transit, by the time of their arrival."""

    def __init__(self, ends: list[int]) -> None:
        self._other = {ends[0]: ends[1], ends[1]: ends[0]}
        self._in_transit: list[tuple[float, int, int, bytes]] = []
        self._number = 0
        self._cut, self._delay = False, 0.0

    def order(self, text: str) -> None:
        """Execute one order."""
        state, _, seconds = text.partition(" ")
        self._cut = state == "cut"
        self._delay = float(seconds or 0)

    def receive(self, end: int) -> None:
        """Read the packets that arrived at an end."""
        while True:
            try:
                packet = os.read(end, 65536)
            except BlockingIOError:
                return
            if not self._cut:
                self._number += 1
                due = time.monotonic() + self._delay
                heapq.heappush(self._in_transit, (due, self._number, self._other[end], packet))

    def deliver(self) -> float | None:
        """Write the packets that are due; return the seconds until the next one is."""
        while self._in_transit:
            left = self._in_transit[0][0] - time.monotonic()
            if left > 0:
                return left
            _, _, end, packet = heapq.heappop(self._in_transit)
            try:
                os.write(end, packet)
            except OSError:
                continue  # a device that is full or down loses packets
        return None


def main() -> None:
    """Carry packets until standard input ends."""
    ends = [device(namespace) for namespace in sys.argv[1:3]]
    print("ready", flush=True)  # noqa: T201  the parent process waits for this line
    line = Line(ends)
    selector = selectors.DefaultSelector()
    for end in ends:
        selector.register(end, selectors.EVENT_READ)
    selector.register(sys.stdin, selectors.EVENT_READ)
    wait: float | None = None
    while True:
        for key, _ in selector.select(wait):
            if key.fileobj is sys.stdin:
                text = sys.stdin.readline()
                if not text:
                    return
                line.order(text.strip())
            else:
                line.receive(key.fd)
        wait = line.deliver()


if __name__ == "__main__":
    main()
