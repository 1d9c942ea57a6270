"""Real brokers for tests, each a process of its own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

#: A process with librdkafka's mock cluster: it prints the address of its broker, and runs until
#: its standard input ends.
_MOCK_CLUSTER = """
import sys
from confluent_kafka import Producer
producer = Producer({"test.mock.num.brokers": 1})
brokers = producer.list_topics(timeout=20).brokers
print(",".join(f"{b.host}:{b.port}" for b in brokers.values()), flush=True)
sys.stdin.read()
"""


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def stop(process: subprocess.Popen[Any]) -> None:
    """Stop a process, and wait until it is stopped: sending the signal does not."""
    process.send_signal(signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)


class RedisServer:
    """Debian's redis-server, with an append-only file unless that is switched off."""

    def __init__(
        self,
        folder: Path,
        *options: str,
        append: bool = True,
        tls: tuple[Path, Path] | None = None,
    ) -> None:
        if shutil.which("redis-server") is None:
            pytest.skip("redis-server is not installed (Debian: redis-server)")
        pytest.importorskip("redis")
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.port = free_port()
        port = ["--port", str(self.port)]
        if tls is not None:
            key, certificate = map(str, tls)
            port = ["--port", "0", "--tls-port", str(self.port), "--tls-auth-clients", "no"]
            port += ["--tls-key-file", key, "--tls-cert-file", certificate]
        self._command = [
            *("redis-server", *port, "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""),
            *("--appendonly", "yes" if append else "no", "--appendfsync", "always"),
            *options,
        ]
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        """Its address."""
        return f"redis://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it accepts connections."""
        log = self._folder / "log"
        with log.open("ab") as file:
            self.process = subprocess.Popen(self._command, stdout=file, stderr=file)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            if self._answers():
                return
            time.sleep(0.02)
        pytest.fail(log.read_text())

    def _answers(self) -> bool:
        """Return whether the server accepts commands: it has read its file."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as probe:
                if "--tls-port" in self._command:
                    return True
                probe.sendall(b"PING\r\n")
                return probe.recv(100).startswith(b"+PONG")
        except OSError:
            return False

    def signal(self, number: int) -> None:
        """Send a signal."""
        assert self.process is not None
        self.process.send_signal(number)

    def stop(self) -> None:
        """Stop it, until the signal SIGCONT."""
        assert self.process is not None
        stop(self.process)

    def kill(self) -> None:
        """Kill it, and wait for its end."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def remove_part_of_a_write(self) -> None:
        """Remove the part of a transaction from the file of a server that was killed.

        Redis 7.0.15 removes only the last, incomplete command of it, and executes the others at the
        second start.
        """
        (manifest,) = self._folder.glob("appendonlydir/*.manifest")
        check = ["redis-check-aof", "--fix", str(manifest)]
        subprocess.run(check, input=b"y\n", check=True, capture_output=True)

    def close(self) -> None:
        """End it, whatever state it is in."""
        if self.process is not None and self.process.poll() is None:
            self.kill()


class KafkaCluster:
    """librdkafka's mock cluster; it keeps nothing when it ends."""

    def __init__(self) -> None:
        pytest.importorskip("confluent_kafka")
        self.process = subprocess.Popen(
            [sys.executable, "-c", _MOCK_CLUSTER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=dict(os.environ),
        )
        assert self.process.stdout is not None
        self.servers = self.process.stdout.readline().strip()

    @property
    def url(self) -> str:
        """Its address."""
        return f"kafka://{self.servers}"

    def close(self) -> None:
        """End it."""
        assert self.process.stdin is not None
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.close()
        self.process.wait(20)
