"""Cost of a page: time and memory to make it, its size, and the time to draw it in a browser.

The runs are synthetic, written through the store. Each page is made in a fresh process.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import pyarrow as pa

from dask_strata.schema import TABLES
from dask_strata.store.arrow import arrow_schema
from dask_strata.store.bulk_writer import BulkRun
from dask_strata.store.manifest import Manifest

T0 = 1_795_000_000_000_000_000
WORKERS, THREADS = 8, 4
HERE = Path(__file__).parent

#: Program of a fresh process, so that its peak memory is that of the page alone.
MAKE = """
import json, resource, sys, time
from pathlib import Path
from dask_strata import open_run
from dask_strata.report.page.page import make_page
began = time.perf_counter()
run = open_run(sys.argv[1])
len(run["attempts"]), len(run["phases"]), len(run["tasks"])
opened = time.perf_counter()
page = make_page(run)
Path(sys.argv[2]).write_text(page, encoding="utf-8", errors="backslashreplace")
print(json.dumps({
    "tables": opened - began, "page": time.perf_counter() - opened,
    "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
}))
"""


def make_run(folder: Path, n: int, *, hashed: float) -> Path:
    """Write a run of n tasks on 32 threads; a share of the keys ends in a hash, as by client.map."""
    rng = np.random.default_rng(6)
    lane = np.arange(n) % (WORKERS * THREADS)
    length = (rng.lognormal(-3, 1, n) * 1e9).astype(np.int64) // 1000 * 1000
    pause = rng.integers(200, 3000, n) * 1000
    start = np.empty(n, np.int64)
    for one in range(WORKERS * THREADS):
        tasks = lane == one
        both = length[tasks] + pause[tasks]
        start[tasks] = T0 + np.cumsum(both) - both
    stop = start + length
    names = [hashlib.md5(name.encode()).hexdigest() for name in ("load", "clean", "sum")]
    is_map = rng.random(n) < hashed
    keys = [
        f"process-{hashlib.md5(str(i).encode()).hexdigest()}"
        if is_map[i]
        else f"('{('load', 'clean', 'sum')[i % 3]}-{names[i % 3]}', {i // 3 // 100}, {i // 3 % 100})"
        for i in range(n)
    ]
    prefixes = ["process" if is_map[i] else ("load", "clean", "sum")[i % 3] for i in range(n)]
    kinds = np.where(is_map, "str", "tuple")
    workers = np.array([f"tcp://10.0.0.{w + 1}:40000" for w in range(WORKERS)])[lane // THREADS]
    run = BulkRun(folder)
    run.write_rows(
        "processes",
        [
            {
                "process": "scheduler-1",
                "role": "scheduler",
                "address": "tcp://10.0.0.100:8786",
                "start": T0,
                "stop": int(stop.max()),
            }
        ],
    )
    run.write_rows(
        "processes",
        [
            {
                "process": f"worker-{w}",
                "role": "worker",
                "address": a,
                "name": str(w),
                "nthreads": THREADS,
                "start": T0,
                "stop": int(stop.max()),
            }
            for w, a in enumerate(np.unique(workers).tolist())
        ],
    )
    run.write_rows(
        "worker_events",
        [
            {
                "process": "scheduler-1",
                "seq": -w - 1,
                "time": T0,
                "worker": a,
                "name": str(w),
                "action": "add",
            }
            for w, a in enumerate(np.unique(workers).tolist())
        ],
    )
    write(run, "graph_tasks", n, key=keys, key_type=kinds, prefix=prefixes)
    needs = np.arange(2, n, 3)
    write(run, "graph_edges", 2 * len(needs), key=np.repeat(np.array(keys, object)[needs], 2), key_type=np.repeat(kinds[needs], 2),
          dependency=np.array(keys, object)[np.stack([needs - 1, needs - 2], 1).ravel()], dependency_type=kinds[np.stack([needs - 1, needs - 2], 1).ravel()])  # fmt: skip
    moment = np.concatenate([np.full(n, T0), start, stop])
    order = np.argsort(moment, kind="stable")
    late = order >= 2 * n
    of = order % n
    kind = order // n
    field = arrow_schema(TABLES["scheduler_transitions"]).field("startstops").type
    intervals = pa.StructArray.from_arrays(
        [pa.array(["compute"] * n), pa.array(start[of[late]]).cast(pa.timestamp("ns", "UTC")), pa.array(stop[of[late]]).cast(pa.timestamp("ns", "UTC")), pa.nulls(n, pa.string())],
        names=["action", "start", "stop", "source"],
    )  # fmt: skip
    offsets = np.concatenate([[0], np.cumsum(late)]).astype(np.int32)
    write(
        run, "scheduler_transitions", 3 * n, time=moment[order], seq=np.arange(3 * n), key=np.array(keys, object)[of], key_type=kinds[of],
        start_state=np.array(["released", "waiting", "processing"])[kind], finish_state=np.array(["waiting", "processing", "memory"])[kind],
        worker=pa.array(workers[of], mask=~late), thread=pa.array(140_000_000_000_000 + lane[of], mask=~late),
        nbytes=pa.array(rng.integers(28, 1 << 24, n)[of], mask=~late),
        startstops=pa.ListArray.from_arrays(pa.array(offsets), intervals.cast(field.value_type)),
    )  # fmt: skip
    return run.finish(Manifest(f"bench{n}", "page", T0, "0"))


def write(run: BulkRun, table: str, n: int, **columns: object) -> None:
    """Write rows of a table, by column."""
    columns.setdefault("seq", np.arange(n))
    columns["process"] = pa.array(["scheduler-1"] * n)
    types = {f.name: f.type for f in arrow_schema(TABLES[table])}
    made = {}
    for name, values in columns.items():
        array = values if isinstance(values, pa.Array) else pa.array(values)
        target = types[name]
        made[name] = (
            array.cast(target.value_type).dictionary_encode().cast(target)
            if pa.types.is_dictionary(target)
            else array.cast(target)
        )
    run.write(table, pa.table(made))


def measure(folder: Path, n: int, hashed: float) -> dict:
    """Make a run and its page, and draw the page in a browser."""
    path = make_run(folder, n, hashed=hashed)
    page = folder / f"{n}.html"
    done = subprocess.run(
        [sys.executable, "-c", MAKE, path, page], stdout=subprocess.PIPE, text=True, check=True
    )
    found = {
        "attempts": n,
        "hashed": hashed,
        **json.loads(done.stdout.splitlines()[-1]),
        "bytes": page.stat().st_size,
    }
    data = [
        len(m)
        for m in re.findall(
            r'<script type="text/plain"[^>]*>([^<]*)', page.read_text(encoding="utf-8")
        )
    ]
    found["base64"] = sum(data)
    return {**found, **look(page), "load": os.getloadavg()[0]}


def look(page: Path) -> dict:
    """Open a page in headless Chromium; time the first drawing, and redraws while zooming."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--window-size=1300,900",
    ):
        options.add_argument(argument)
    driver = webdriver.Chrome(
        options=options, service=webdriver.ChromeService(shutil.which("chromedriver"))
    )
    try:
        driver.set_page_load_timeout(120)
        driver.get(page.as_uri())
        deadline = time.monotonic() + 120
        while driver.execute_script("return document.body.dataset.ready") != "yes":
            assert time.monotonic() < deadline, driver.get_log("browser")
            time.sleep(0.1)
        drawn = driver.execute_script(
            "const t = strata.timeline, found = [], whole = [];"
            "for (let i = 0; i < 15; i++) { t.draw(); whole.push(t.drawn); }"
            "for (let i = 0; i < 60; i++) { const s = strata.model.facts.span, k = 0.9 ** i;"
            " t.view.a = s * 0.4 * (1 - k); t.view.b = t.view.a + s * k; t.draw(); found.push(t.drawn); }"
            "return [found, whole]"
        )
        first = driver.execute_script("return Number(document.body.dataset.firstDrawing)")
        version = driver.capabilities["browserVersion"]
    finally:
        driver.quit()
    return {
        "first_ms": first,
        "zoom_ms": statistics.median(drawn[0]),
        "zoom_max_ms": max(drawn[0]),
        "whole_ms": statistics.median(drawn[1]),
        "chromium": version,
    }


def markdown(rows: list[dict]) -> str:
    """Return the results as Markdown."""
    lines = [
        "# Cost of a page",
        "",
        (
            f"Made by `benchmarks/page.py` on {datetime.now(timezone.utc):%Y-%m-%d}, {platform.system()} {platform.machine()}, "
            f"Python {platform.python_version()}, Chromium {rows[0]['chromium']} without a screen or GPU, 2 shared cores "
            f"(load up to {max(r['load'] for r in rows):.0f})."
        ),
        "",
        "| attempts | keys that are hashes | tables, s | page, s | memory, MiB | page, MB | data, bytes an attempt | in base64 | first drawing, s | redraw while zooming, median ms | worst ms | redraw of the whole run, ms |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {r['attempts']:,} | {r['hashed']:.0%} | {r['tables']:.1f} | {r['page']:.1f} | {r['memory'] / 2**20:,.0f} | {r['bytes'] / 1e6:.2f} "
        f"| {r['base64'] * 0.75 / r['attempts']:.1f} | {r['base64'] / r['attempts']:.1f} | {r['first_ms'] / 1e3:.2f} | {r['zoom_ms']:.1f} | {r['zoom_max_ms']:.1f} | {r['whole_ms']:.1f} |"
        for r in rows
    ]
    lines += [
        "",
        "“tables” is the time to open the run and to compute attempts, phases and tasks; “page” is the rest: critical path,",
        "idleness, insights, check, and the page. Memory is the peak of the process. The time of the first drawing starts with",
        "the navigation. A key that ends in a hash, as by `client.map`, has 16 bytes that cannot be compressed; if all",
        "need more than 3.5 MB, the page has only the first of each. Lengths of bars have units of at most 64 µs above 200,000 attempts.",
        "The runs are synthetic: 32 threads, one compute phase an attempt, no transfers, two edges for every third task.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure all sizes and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 100_000, 1_000_000])
    parser.add_argument("--hashed", type=float, nargs="+", default=[0.0])
    parser.add_argument("-o", "--output", type=Path, default=HERE / "results" / "page.md")
    chosen = parser.parse_args()
    rows = []
    for n in chosen.sizes:
        for hashed in chosen.hashed:
            with tempfile.TemporaryDirectory() as folder:
                rows.append(measure(Path(folder), n, hashed))
            print(rows[-1], flush=True)
    chosen.output.write_text(markdown(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
