"""Facts about a pod come from variables and files of Kubernetes' downward API."""

from __future__ import annotations

from pathlib import Path

import pytest

from dask_strata.recorder.environment.job import job_facts
from dask_strata.schema import REDACTED

#: Variables of a worker's container of dask-kubernetes' operator.
OPERATOR = {
    "KUBERNETES_SERVICE_HOST": "10.0.0.1",
    "DASK_WORKER_NAME": "simple-default-worker-0a1b2c3d4e",
    "DASK_SCHEDULER_ADDRESS": "tcp://simple-scheduler.science.svc.cluster.local:8786",
    "HOSTNAME": "simple-default-worker-0a1b2c3d4e-7d9f",
}
LABELS = """\
dask.org/cluster-name="simple"
dask.org/component="worker"
dask.org/workergroup-name="simple-default"
note="a \\"quoted\\" value"
api-token="abcdefgh12345678"
not a label
"""


@pytest.fixture
def look(tmp_path: Path):
    """Return facts by name, and the folder of the container's files."""

    def look(environ: dict[str, str]) -> dict[str, list[tuple[str, str]]]:
        found: dict[str, list[tuple[str, str]]] = {}
        for fact in job_facts(environ, proc=tmp_path / "proc", sys_root=tmp_path / "sys"):
            found.setdefault(fact.name, []).append((fact.value, fact.source))
        return found

    return look


def write(tmp_path: Path, path: str, text: str) -> None:
    file = tmp_path / "proc" / "self" / "root" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_outside(look, tmp_path):
    """Files alone do not make a pod: without Kubernetes' variable nothing is recorded."""
    write(tmp_path, "etc/podinfo/name", "x")
    found = look({"HOSTNAME": "laptop", "POD_NAME": "x"})
    assert not [name for name in found if name.startswith("kubernetes")]
    assert [value for value, _ in found["launcher"]] == ["none"]


def test_operator(look, tmp_path):
    """Without a downward API, namespace and pod are known, and node, image and labels are not."""
    account = "var/run/secrets/kubernetes.io/serviceaccount"
    write(tmp_path, f"{account}/namespace", "science")
    write(tmp_path, f"{account}/token", "eyJ-very-secret")
    found = look(OPERATOR)
    assert found["kubernetes.namespace"] == [("science", f"/{account}/namespace")]
    assert found["kubernetes.pod"][0][0] == OPERATOR["HOSTNAME"]
    assert found["launcher"] == [
        ("kubernetes", "KUBERNETES_SERVICE_HOST"),
        ("dask-kubernetes", "DASK_WORKER_NAME"),
    ]
    assert {name for name in found if name.startswith("kubernetes.")} == {
        "kubernetes.namespace",
        "kubernetes.pod",
    }
    assert "eyJ-very-secret" not in str(found)


def test_files(look, tmp_path):
    """Files of the volume are read, labels without what looks like a secret."""
    write(tmp_path, "etc/podinfo/namespace", "science\n")
    write(tmp_path, "etc/podinfo/name", "worker-1")
    write(tmp_path, "etc/podinfo/labels", LABELS)
    write(tmp_path, "etc/podinfo/annotations", 'config="private"')
    found = look(OPERATOR)
    assert found["kubernetes.pod"] == [("worker-1", "/etc/podinfo/name")]
    labels = {
        name.removeprefix("kubernetes.label."): facts[0][0]
        for name, facts in found.items()
        if name.startswith("kubernetes.label.")
    }
    assert labels == {
        "dask.org/cluster-name": "simple",
        "dask.org/component": "worker",
        "dask.org/workergroup-name": "simple-default",
        "note": 'a "quoted" value',
        "api-token": REDACTED,
    }
    assert ("dask-kubernetes", "label dask.org/cluster-name in /etc/podinfo/labels") in found[
        "launcher"
    ]
    assert "private" not in str(found)


def test_variables(look, tmp_path):
    """Variables of the specification come before files and guesses."""
    write(tmp_path, "etc/podinfo/name", "from-file")
    names = {"POD_NAME": "p", "POD_NAMESPACE": "n", "NODE_NAME": "node-7", "POD_IMAGE": "dask:1"}
    found = look({**OPERATOR, **names})
    assert [found[f"kubernetes.{name}"] for name in ("pod", "namespace", "node", "image")] == [
        [("p", "POD_NAME")],
        [("n", "POD_NAMESPACE")],
        [("node-7", "NODE_NAME")],
        [("dask:1", "POD_IMAGE")],
    ]
