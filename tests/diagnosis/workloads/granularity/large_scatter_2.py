"""Many images that the client makes and scatters before the tasks start.

Mended: tasks make the images. The second sickness: the labels are read in reads of 16 bytes.
"""

import tempfile
from pathlib import Path

import numpy as np
from common import crunch, now, options, read_records, ready, report
from dask.distributed import Client, LocalCluster

IMAGES = 24
PIXELS = 12_000_000
RECORDS = 1_250_000


def make_image(number):
    """Return an image of 96 MB."""
    return np.full(PIXELS, float(number))


def classify(image, n_labels):
    """Return the class of an image."""
    return crunch(70) + float(image[0]) + n_labels


def classify_number(number, n_labels):
    """Return the class of an image that is made here."""
    return classify(make_image(number), n_labels)


def main():
    flags = options()
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit="6 GiB", dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        path = Path(folder) / "labels.bin"
        path.write_bytes(bytes(16 * RECORDS))
        ready(client)
        start = now()
        size = 1 << 20 if flags.mended_also else 16
        n_labels = client.submit(read_records, str(path), size).result()
        if flags.mended:
            classes = client.map(classify_number, range(IMAGES), n_labels=n_labels)
        else:
            images = client.scatter([make_image(number) for number in range(IMAGES)])
            classes = client.map(classify, images, n_labels=n_labels)
        client.gather(classes)
        seconds = now() - start
    also = [] if flags.mended_also else ["small-reads"]
    report(None if flags.mended else "large-scatter", seconds, also=also)


if __name__ == "__main__":
    main()
