"""SSHCluster over a real `sshd` on this machine."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import wait_until
from tests.deployments.scripts import STRATA, MakeWorkplace, Workplace
from tests.support.processes import terminate

pytest.importorskip("asyncssh", reason="NOT TESTED: asyncssh is not installed")

pytestmark = pytest.mark.long

_CONFIGURATION = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile {folder}/sshd.pid
SetEnv {mark}
PermitRootLogin yes
PasswordAuthentication no
StrictModes no
UsePAM no
"""

_SCRIPT = """
    from distributed import SSHCluster

    if __name__ == "__main__":
        port, key, user = sys.argv[1:]
        with SSHCluster(
            ["127.0.0.1"] * 3,
            connect_options={
                "port": int(port), "client_keys": [key], "known_hosts": None, "username": user
            },
            scheduler_options={"port": 0, "dashboard_address": ":0"},
            worker_options={"nthreads": 1, "local_directory": "dask"},
        ) as cluster, Client(cluster) as client:
            work(client)
"""


@pytest.fixture
def sshd(workplace: MakeWorkplace) -> Iterator[tuple[Workplace, int]]:
    """Run `sshd` with its own keys, on its own port; its sessions have the workplace's mark."""
    program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None or shutil.which("ssh-keygen") is None:
        pytest.skip("NOT TESTED: there is no sshd (apt-get install openssh-server)")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # sshd of root drops its privileges there
    place = workplace()
    for key in ("host_key", "user_key"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", place.folder / key]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    configuration = place.folder / "sshd_config"
    configuration.write_text(_CONFIGURATION.format(port=port, folder=place.folder, mark=place.mark))
    with (place.folder / "sshd.log").open("wb") as log:
        server = subprocess.Popen(
            [program, "-D", "-e", "-f", configuration], stdin=subprocess.DEVNULL, stderr=log
        )

    def listens() -> bool:
        with socket.socket() as probe:
            return server.poll() is not None or probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_until(listens, what="sshd")
        yield place, port
    finally:
        terminate(server)


def test_an_ssh_cluster_is_recorded_whole(sshd: tuple[Workplace, int]) -> None:
    """Dask passes its configuration over SSH: scheduler and workers are recorded to their end."""
    place, port = sshd
    place.record(place.script(_SCRIPT), port, place.folder / "user_key", getpass.getuser())
    run = place.assert_recorded(None)
    assert "unexpectedly" not in place.command(STRATA, "show", run.path).stdout
    place.assert_nothing_left()
