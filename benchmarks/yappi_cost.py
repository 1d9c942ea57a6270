"""Cost of profiling with Yappi: trivial tasks, recorded without it, by wall and by CPU clock.

python benchmarks/yappi_cost.py --repeats 3
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from cluster import run_once

VARIANTS = {"off": {}, "wall": {"yappi__clock": "wall"}, "cpu": {"yappi__clock": "cpu"}}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=3, help="rounds of three measurements each")
    parser.add_argument("--size", choices=("full", "short", "quick"), default="short")
    options = parser.parse_args()
    found: dict[str, list[dict]] = {variant: [] for variant in VARIANTS}
    with tempfile.TemporaryDirectory(prefix="strata-yappi-") as scratch:
        for number in range(options.repeats):
            first = number % len(VARIANTS)
            names = list(VARIANTS)
            for variant in names[first:] + names[:first]:
                runs = Path(scratch) / f"{number}-{variant}"
                one = run_once("a", options.size, runs, **VARIANTS[variant])
                found[variant].append(one)
                print(
                    f"  {number + 1} {variant:<5}{one['wall']:8.2f} s", file=sys.stderr, flush=True
                )
                if one["log"]:
                    print("\n".join(one["log"]), file=sys.stderr)
    for quantity, get in (
        ("CPU workers", lambda r: r["cpu"]["worker"]),
        ("wall", lambda r: r["wall"]),
    ):
        for variant, runs in found.items():
            seconds = [get(r) for r in runs]
            ratios = [b / get(a) for a, b in zip(found["off"], seconds, strict=True)]
            print(
                f"{quantity:<12} {variant:<5} median {statistics.median(seconds):7.3f} s   "
                f"ratio to off {statistics.median(ratios):.2f} "
                f"({min(ratios):.2f} - {max(ratios):.2f})"
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
