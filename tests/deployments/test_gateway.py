"""dask-gateway's local backend: the preload of its configuration is ignored, the recipe records."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from http import HTTPStatus
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.conftest import rows, runs_in, wait_until
from tests.deployments.scripts import MakeWorkplace, Workplace
from tests.support.processes import terminate

pytest.importorskip("dask_gateway_server", reason="NOT TESTED: dask-gateway-server is missing")
pytest.importorskip("dask_gateway", reason="NOT TESTED: dask-gateway is missing")

pytestmark = pytest.mark.long

_BIN = Path(sys.executable).parent

#: The recipe of docs/how-to/gateway.md is the handler's value of `scheduler_cmd` with recording.
_CONFIGURATION = """
from dask_gateway_server.options import Bool, Options

def handler(options):
    recorded = ["--preload", "dask_strata"] if options.recorded else []
    return {{"scheduler_cmd": ["{bin}/dask", "scheduler", *recorded]}}

c.DaskGateway.backend_class = "dask_gateway_server.backends.local.UnsafeLocalBackend"
c.DaskGateway.address = "127.0.0.1:{server}"
c.Proxy.address = "127.0.0.1:{proxy}"
c.UnsafeLocalBackend.clusters_directory = "{folder}/clusters"
c.UnsafeLocalBackend.inherited_environment = ["PATH", "TMPDIR", "{mark}"]
c.Backend.cluster_options = Options(Bool("recorded", default=False), handler=handler)
c.ClusterConfig.worker_cmd = ["{bin}/dask", "worker"]
c.ClusterConfig.environment = {{
    "DASK_DASK_STRATA__RUNS": "{folder}/runs",
    "DASK_DISTRIBUTED__SCHEDULER__PRELOAD": "['dask_strata']",
}}
"""

_SCRIPT = """
    import dask_strata
    from dask_gateway import BasicAuth, Gateway

    if __name__ == "__main__":
        gateway = Gateway(sys.argv[1], auth=BasicAuth("me"))
        diagnoses = []
        for recorded in (False, True):
            with gateway.new_cluster(recorded=recorded) as cluster, cluster.get_client() as client:
                if recorded:
                    cluster.scale(2)
                    work(client)
                found = dask_strata.doctor(client)
                diagnoses.append({"recorded": found.recorded, "text": str(found)})
        with open("diagnoses.json", "w") as file:
            json.dump(diagnoses, file)
"""


@pytest.fixture
def gateway(
    workplace: MakeWorkplace,
) -> Iterator[tuple[Workplace, str, subprocess.Popen[bytes]]]:
    """Run a gateway, whose processes end with the test; return its address and its process."""
    place = workplace()
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(2)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        ports = [each.getsockname()[1] for each in sockets]
    mark = place.mark.partition("=")[0]
    configuration = place.folder / "gateway_config.py"
    names = dict(zip(("server", "proxy"), ports, strict=True))
    configuration.write_text(
        _CONFIGURATION.format(bin=_BIN, folder=place.folder, mark=mark, **names)
    )
    log = place.folder / "gateway.log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            [sys.executable, "-m", "dask_gateway_server", "-f", configuration],
            cwd=place.folder,
            env=place.environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
    try:
        address = f"http://127.0.0.1:{names['proxy']}"
        wait_until(lambda: _answers(address) or server.poll() is not None, what="the gateway")
        assert server.poll() is None, log.read_text()
        yield place, address, server
    finally:
        terminate(server)


def _answers(address: str) -> bool:
    """Return whether the proxy listens and knows the way to the gateway's server."""
    try:
        with urlopen(f"{address}/api/health", timeout=5) as response:
            return bool(response.status == HTTPStatus.OK)
    except OSError:
        return False


def test_the_ignored_preload_is_diagnosed_and_the_recipe_records(
    gateway: tuple[Workplace, str, subprocess.Popen[bytes]],
) -> None:
    """`doctor` names the trap and the recipe; with the recipe, the run is whole and exact."""
    place, address, server = gateway
    place.command(sys.executable, place.script(_SCRIPT).name, address)
    terminate(server)
    without, recorded = json.loads((place.folder / "diagnoses.json").read_text())
    assert not without["recorded"]
    assert "Dask ignored it" in without["text"]
    assert "scheduler_cmd" in without["text"]
    assert recorded["recorded"], recorded["text"]
    run = place.assert_recorded(None)
    assert len(runs_in(place.runs)) == 1
    roles = rows(run, "select role, count(*) as n from processes group by role order by role")
    assert [(r["role"], r["n"]) for r in roles] == [
        ("nanny", 2),
        ("scheduler", 1),
        ("worker", 2),
    ]
    place.assert_nothing_left()
