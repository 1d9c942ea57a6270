"""An object store that speaks S3: moto's server, on a free port of this machine."""

from __future__ import annotations

import urllib.request
from typing import Any

import pytest

BUCKET = "bucket"


class ObjectStore:
    """moto's server in this process; its objects survive `stop` and `start`."""

    def __init__(self) -> None:
        self._port = 0
        self.start()
        reset = f"{self.environment['AWS_ENDPOINT_URL']}/moto-api/reset"
        urllib.request.urlopen(reset, data=b"").close()  # moto keeps its objects in this process
        self.fs.mkdir(BUCKET)

    def start(self) -> None:
        """Accept connections, on the same port as before."""
        from moto.server import ThreadedMotoServer

        self._server = ThreadedMotoServer("127.0.0.1", self._port, verbose=False)
        self._server.start()
        self._port = self._server.get_host_and_port()[1]

    def stop(self) -> None:
        """Refuse connections."""
        self._server.stop()

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which every process finds the server."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._port}",
            "AWS_ACCESS_KEY_ID": "a-key",
            "AWS_SECRET_ACCESS_KEY": "a-value",
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    @property
    def fs(self) -> Any:
        """A file system of fsspec on the server."""
        s3fs = pytest.importorskip("s3fs")
        return s3fs.S3FileSystem(
            endpoint_url=self.environment["AWS_ENDPOINT_URL"],
            key="a-key",
            secret="a-value",
            skip_instance_cache=True,
            use_listings_cache=False,
        )

    def names(self, url: str) -> set[str]:
        """Return the names of all objects below a URL."""
        root = url.removeprefix("s3://").rstrip("/")
        return {path.removeprefix(f"{root}/") for path in self.fs.find(root)}
