"""A script whose tasks log and print in all ways, and write down what is to be on record."""

from __future__ import annotations

import ctypes
import json
import logging
import os
import sys
import warnings
from pathlib import Path
from typing import Any

from distributed import Client, LocalCluster, get_worker

#: A line of logs with a secret, which may not be on record.
SECRET = "hunter2"

#: The formatter of the handler that prints records: its prefix is none that dask-strata knows.
FORMAT = "%(levelname)s|%(name)s> %(message)s"


class Truth(logging.Handler):
    """Writes each record to a file of the worker's, as JSON; the independent count."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = path.open("a", encoding="utf-8", buffering=1)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = logging.Formatter("%(message)s").format(record)
        except TypeError:  # the arguments do not fit
            return
        self._file.write(json.dumps([record.levelname, record.name, text]) + "\n")


def set_up(folder: str) -> list[Any]:
    """Configure logging as users do; return what `basicConfig` found."""
    before = list(logging.getLogger().handlers)
    logging.basicConfig(format=FORMAT, level=logging.DEBUG)  # prints to standard error
    truth = Truth(Path(folder) / f"truth-{os.getpid()}.jsonl")
    logging.getLogger().addHandler(truth)
    logging.getLogger("distributed").addHandler(truth)
    return before


def work(i: int) -> int:
    """Log and print; all lines have the number."""
    log = logging.getLogger("user.code")
    log.debug("W debug %d", i)
    log.info("W info %d", i)
    log.warning("W same text")
    print("W same text", file=sys.stderr, flush=True)  # noqa: T201  what is tested
    print(f"W print {i}", flush=True)  # noqa: T201
    os.write(1, b"W os.write %d\n" % i)
    os.write(2, b"W junk \xff\xfe\x00 %d\n" % i)
    libc = ctypes.CDLL(None)
    libc.puts(b"W puts %d" % i)
    libc.fflush(None)
    print(f"W 10 % {i}\rW 90 % {i}\rW 100 % {i}", flush=True)  # noqa: T201
    warnings.warn(f"W warning {i}", stacklevel=1)
    try:
        _ = 1 / (i - i)
    except ZeroDivisionError:
        log.exception("W failed %d\nW second line", i)
    log.error("W password=%s", SECRET)
    log.error("W <script>alert(1)</script> \x1b[31m")
    log.info("W lists %s", [i])
    log.warning("W %d arguments that do not fit", "no number")
    logging.getLogger("distributed.worker").info("W as Dask %d", i)
    get_worker().log_event("topic", i)
    return i


def main() -> None:
    """Run the tasks one after the other."""
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        assert client.run(set_up, sys.argv[1]) == {address: [] for address in
                                                   cluster.scheduler.workers}  # fmt: skip
        for i in range(int(sys.argv[2])):
            client.submit(work, i, key=f"work-{i}").result()
        logging.getLogger("distributed.client").warning("from the client")
        logging.getLogger("user.script").warning("from the script")


if __name__ == "__main__":
    main()
