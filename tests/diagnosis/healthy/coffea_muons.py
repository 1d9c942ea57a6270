"""A histogram of muons by coffea's processor, in chunks of files like NanoAOD.

Without coffea it does nothing, and prints the reason.
"""

import importlib.util
import tempfile
from pathlib import Path

from common import crunch, now, options, ready
from dask.distributed import Client, LocalCluster, get_task_stream
from truth import health_of, report_facts

FILES = 16
EVENTS = 40_000
CHUNK = 10_000


def write_file(path, seed):
    """Write a file of events with muons."""
    import awkward as ak
    import numpy as np
    import uproot

    generator = np.random.default_rng(seed)
    counts = generator.poisson(2, EVENTS)
    muons = {
        name: ak.unflatten(generator.normal(size=counts.sum()).astype("f4"), counts)
        for name in ("pt", "eta", "phi", "mass", "charge")
    }
    with uproot.recreate(path) as file:
        file.mktree(
            "Events",
            {
                "run": "u4",
                "luminosityBlock": "u4",
                "event": "u8",
                "Muon": ak.types.from_datashape(
                    "var * {pt: float32, eta: float32, phi: float32, "
                    "mass: float32, charge: float32}",
                    highlevel=False,
                ),
            },
            counter_name=lambda collection: f"n{collection}",
            field_name=lambda outer, inner: f"{outer}_{inner}" if outer else inner,
        ).extend(
            {
                "run": np.ones(EVENTS, "u4"),
                "luminosityBlock": np.ones(EVENTS, "u4"),
                "event": np.arange(EVENTS, dtype="u8"),
                "Muon": ak.zip(muons),
            }
        )


def process(events):
    """Return a histogram of the muons of a chunk, with some computation for each."""
    import awkward as ak
    import numpy as np

    muons = events.Muon
    chosen = muons[(abs(muons.eta) < 2.4) & (muons.pt > -1)]
    crunch(130)
    counts, _ = np.histogram(ak.to_numpy(ak.flatten(chosen.pt)), bins=100, range=(-5, 5))
    return {"pt": counts, "n": len(events)}


def run(folder):
    """Process all files and report."""
    from coffea import processor
    from coffea.nanoevents import NanoAODSchema

    NanoAODSchema.warn_missing_crossrefs = False
    paths = [str(Path(folder) / f"events-{number}.root") for number in range(FILES)]
    for number, path in enumerate(paths):
        write_file(path, number)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        ready(client, "awkward", "uproot", "coffea.processor", "coffea.nanoevents")
        runner = processor.Runner(
            executor=processor.DaskExecutor(client=client, status=False),
            schema=NanoAODSchema,
            chunksize=CHUNK,
        )
        chunks = list(runner.preprocess({"data": paths}, treename="Events"))
        with get_task_stream(client) as stream:
            start = now()
            runner.run(chunks, processor_instance=process, treename="Events")
            seconds = now() - start
    report_facts(None, seconds, health_of(stream.data, 2, seconds))


def main():
    options()
    if importlib.util.find_spec("coffea") is None:
        report_facts(None, 0.0, {"skipped": "coffea is not installed"})
        return
    with tempfile.TemporaryDirectory() as folder:
        run(folder)


if __name__ == "__main__":
    main()
