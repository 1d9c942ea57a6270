"""Files like NanoAOD, and functions that read them; only their calls import uproot."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def write_events(path: Path, n_events: int, cluster: int, seed: int) -> None:
    """Write a file of events with muons, in clusters of ``cluster`` events."""
    import awkward as ak
    import numpy as np
    import uproot

    rng = np.random.default_rng(seed)
    muons = "var * {pt: float32, eta: float32, phi: float32, mass: float32, charge: int32}"
    types = {
        "run": "uint32",
        "luminosityBlock": "uint32",
        "event": "uint64",
        "Muon": ak.types.from_datashape(muons, highlevel=False),
    }

    def block(first: int, n: int) -> dict[str, Any]:
        counts = rng.poisson(2, n)
        fields = {
            name: rng.normal(size=counts.sum()).astype("float32")
            for name in ("pt", "eta", "phi", "mass")
        }
        fields["charge"] = rng.choice([-1, 1], counts.sum()).astype("int32")
        return {
            "run": np.ones(n, "uint32"),
            "luminosityBlock": np.ones(n, "uint32"),
            "event": np.arange(first, first + n, dtype="uint64"),
            "Muon": ak.zip({name: ak.unflatten(v, counts) for name, v in fields.items()}),
        }

    with uproot.recreate(path) as file:
        tree = file.mktree(
            "Events",
            types,
            counter_name=lambda collection: f"n{collection}",
            field_name=lambda outer, inner: f"{outer}_{inner}" if outer else inner,
        )
        for first in range(0, n_events, cluster):
            tree.extend(block(first, min(cluster, n_events - first)))


def read_with(path: str, handler: str) -> dict[str, int]:
    """Read two branches with one of uproot's sources; return the source's own counters."""
    import uproot

    with uproot.open(path, handler=getattr(uproot, handler)) as file:
        file["Events"].arrays(["Muon_pt", "event"], entry_start=500, entry_stop=2500)
        source = file.file.source
        return {
            "requested_bytes": source.num_requested_bytes,
            "requests": source.num_requests,
            "ranges": source.num_requested_chunks,
        }
