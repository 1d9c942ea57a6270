"""Partitions of a bag that come over a slow connection, in pieces.

Mended: a fast connection. The second sickness: the samples are read in reads of 16 bytes.
"""

import socket
import tempfile
import threading
import time
from pathlib import Path

import dask.bag as db
from common import crunch, now, options, read_records, ready, report
from dask.distributed import Client, LocalCluster

PARTITIONS = 12
PIECES = 40
RECORDS = 1_250_000


def send_slowly(connection, pause_seconds):
    """Send the pieces of a partition."""
    with connection:
        for _ in range(PIECES):
            connection.sendall(bytes(4096))
            time.sleep(pause_seconds)


def serve(listener, pause_seconds):
    """Send a partition to each that connects."""
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=send_slowly, args=(connection, pause_seconds), daemon=True).start()


def fetch(number, port):
    """Return the size of a partition."""
    total = 0
    with socket.create_connection(("127.0.0.1", port)) as connection:
        while piece := connection.recv(4096):
            total += len(piece)
    crunch(100)
    return total


def main():
    flags = options()
    listener = socket.create_server(("127.0.0.1", 0))
    pause = 0 if flags.mended else 0.012
    threading.Thread(target=serve, args=(listener, pause), daemon=True).start()
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        path = Path(folder) / "samples.bin"
        path.write_bytes(bytes(16 * RECORDS))
        ready(client, "dask.bag")
        start = now()
        size = 1 << 20 if flags.mended_also else 16
        client.submit(read_records, str(path), size).result()
        numbers = db.from_sequence(range(PARTITIONS), npartitions=PARTITIONS)
        numbers.map(fetch, port=listener.getsockname()[1]).sum().compute()
        seconds = now() - start
    listener.close()
    also = [] if flags.mended_also else ["small-reads"]
    report(None if flags.mended else "network", seconds, also=also)


if __name__ == "__main__":
    main()
