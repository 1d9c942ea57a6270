"""One input file of many without a field: a KeyError in its task ends the run.

Mended: all files have the field. The second sickness: the settings are read in reads of 16 bytes.
"""

import json
import tempfile
from pathlib import Path

from common import crunch, now, options, read_records, ready
from dask.distributed import Client, LocalCluster, wait
from truth import facts_of, report_facts

FILES = 48
BAD = 29
RECORDS = 1_250_000


def read_energy(path, settings):
    """Return the energy of a file."""
    content = json.loads(Path(path).read_text())
    crunch(180)
    return content["energy"] * settings


def correct(energy):
    """Return the corrected energy."""
    return energy + 1


def main():
    flags = options()
    also = [] if flags.mended_also else ["small-reads"]
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        settings = Path(folder) / "settings.bin"
        settings.write_bytes(bytes(16 * RECORDS))
        paths = [Path(folder) / f"run-{number:02}.json" for number in range(FILES)]
        for number, path in enumerate(paths):
            name = "momentum" if number == BAD and not flags.mended else "energy"
            path.write_text(json.dumps({"run": number, name: 1.5}))
        ready(client, "truth")
        start = now()
        factor = client.submit(read_records, str(settings), 1 << 20 if flags.mended_also else 16)
        energies = client.map(read_energy, [str(path) for path in paths], settings=factor)
        total = client.submit(sum, client.map(correct, energies))
        wait(energies)
        try:
            total.result()
        except KeyError as error:
            # `correct` of the bad file, and the sum.
            facts = facts_of(error, __file__) | {"failed": 1, "never_ran": 2}
            report_facts("exception", now() - start, facts | {"file": paths[BAD].name}, also=also)
            raise
        report_facts(None, now() - start, {}, also=also)


if __name__ == "__main__":
    main()
