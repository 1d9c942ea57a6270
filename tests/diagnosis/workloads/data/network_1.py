"""Tasks that each ask a service for 12 small answers, one after the other.

Mended: the service answers at once.
"""

import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from common import crunch, now, options, ready, report
from dask.distributed import Client, LocalCluster

ITEMS = 24
REQUESTS = 12


def serve(delay_seconds):
    """Return a service on this host that answers after a while."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            time.sleep(delay_seconds)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"7")

        def log_message(self, *_):
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def enrich(item, url):
    """Return an item with what a service knows about it."""
    total = 0
    for part in range(REQUESTS):
        with urllib.request.urlopen(f"{url}/{item}/{part}") as answer:
            total += int(answer.read())
    crunch(60)
    return total


def main():
    flags = options()
    server = serve(0 if flags.mended else 0.025)
    url = f"http://127.0.0.1:{server.server_port}"
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        ready(client)
        start = now()
        sum(client.gather(client.map(enrich, range(ITEMS), url=url)))
        seconds = now() - start
    server.shutdown()
    report(None if flags.mended else "network", seconds)


if __name__ == "__main__":
    main()
