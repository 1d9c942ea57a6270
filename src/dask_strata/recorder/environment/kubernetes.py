"""The pod of this process on Kubernetes: its namespace, name, node, image and labels.

Kubernetes passes them to a container only where the pod's specification asks for it, through the
downward API: as variables, whose names are up to the specification, or as files in a volume, by
convention in ``/etc/podinfo``. Annotations are not recorded, as they may contain any text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from dask_strata.recorder.environment.host_view import Fact, HostView

#: Kubernetes sets it in every container, unless the cluster has no API service.
MARK = "KUBERNETES_SERVICE_HOST"

_ACCOUNT = Path("var/run/secrets/kubernetes.io/serviceaccount")
_FOLDERS = (Path("etc/podinfo"), Path("etc/pod-info"))

#: Usual names of variables from the downward API, and files in its volume.
_FACTS = {
    "kubernetes.namespace": (
        ("POD_NAMESPACE", "MY_POD_NAMESPACE", "K8S_POD_NAMESPACE"), "namespace",
    ),
    "kubernetes.pod": (("POD_NAME", "MY_POD_NAME", "K8S_POD_NAME"), "name"),
    "kubernetes.pod-uid": (("POD_UID", "MY_POD_UID", "K8S_POD_UID"), "uid"),
    "kubernetes.node": (("NODE_NAME", "MY_NODE_NAME", "K8S_NODE_NAME"), "nodename"),
    "kubernetes.image": (("POD_IMAGE", "CONTAINER_IMAGE", "JUPYTER_IMAGE_SPEC"), "image"),
}  # fmt: skip

#: A line of the file of labels, with the value as in Go's syntax of strings.
_LABEL = re.compile(r'([A-Za-z0-9./_-]{1,317})=(".*")')

#: The operator of dask-kubernetes gives this label to each pod, and the variable to workers.
_CLUSTER_LABEL, _WORKER_VARIABLE = "dask.org/cluster-name", "DASK_WORKER_NAME"


def kubernetes(view: HostView) -> Iterator[Fact]:
    """Yield the facts about the pod; nothing outside Kubernetes.

    Parameters
    ----------
    view : HostView
        The environment and, below ``self/root`` of ``/proc``, the files of the container.
    """
    if not in_pod(view):
        return
    root = view.proc / "self" / "root"
    for name, (variables, file) in _FACTS.items():
        found = view.first(*variables)
        if found is not None:
            yield Fact(name, found[1], found[0])
        elif (fact := _from_file(view, root, name, file)) is not None:
            yield fact
        elif name == "kubernetes.pod" and (host := view.first("HOSTNAME")) is not None:
            yield Fact(name, host[1], "HOSTNAME (the name of the pod, unless that sets another)")
    labels = _labels(view, root)
    for label, (value, source) in labels.items():
        yield Fact(f"kubernetes.label.{label}", value, source)
    if (cluster := labels.get(_CLUSTER_LABEL)) is not None:
        yield Fact("launcher", "dask-kubernetes", f"label {_CLUSTER_LABEL} in {cluster[1]}")
    elif _WORKER_VARIABLE in view.environ:
        yield Fact("launcher", "dask-kubernetes", _WORKER_VARIABLE)


def in_pod(view: HostView) -> bool:
    """Return whether this process runs in a pod of Kubernetes."""
    return bool(view.environ.get(MARK))


def _from_file(view: HostView, root: Path, name: str, file: str) -> Fact | None:
    paths = [folder / file for folder in _FOLDERS]
    if name == "kubernetes.namespace":
        paths.append(_ACCOUNT / "namespace")
    for path in paths:
        value = view.line(root / path)
        if value is not None:
            return Fact(name, value, f"/{path}")
    return None


def _labels(view: HostView, root: Path) -> dict[str, tuple[str, str]]:
    """Return values and sources of the pod's labels by name."""
    for folder in _FOLDERS:
        text = view.read(root / folder / "labels")
        if text is None:
            continue
        labels = {}
        for match in filter(None, map(_LABEL.fullmatch, text.splitlines())):
            try:
                labels[match[1]] = str(json.loads(match[2])), f"/{folder / 'labels'}"
            except ValueError:
                continue
        return labels
    return {}


COLLECTORS = {"kubernetes": kubernetes}
