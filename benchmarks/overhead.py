"""Overhead of recording: the same work with and without, alternating, in fresh clusters.

Recording is switched on as by a user, through the preloads of scheduler and client. CPU
seconds are those of the workload alone, by process; start-up is reported separately.

    python benchmarks/overhead.py --quick
    python benchmarks/overhead.py --workloads a --repeats 5 --json results.json
    python benchmarks/overhead.py --attempts --workloads a
    python benchmarks/overhead.py --sampling --workloads a
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path

from recording import read_recording, recorder_costs
from workloads import RUNS, SIZES, TITLES

from cluster import HERE, RunError, run_once

ROLES = ("scheduler", "worker", "nanny", "client")

#: Variants of a workload: the settings of its recording, or None without a recording.
VARIANTS: dict[str, dict[str, str] | None] = {
    "nothing": None,
    "basic": {"attempts": "false", "inputs": "false"},
    "unsampled": {"sampling": "false"},
    "recorded": {},
}
#: Pairs of variants: the second is compared with the first. `THREE` is for --attempts,
#: `SAMPLING` for --sampling.
PAIRS = (("nothing", "recorded"),)
THREE = (*PAIRS, ("basic", "recorded"), ("nothing", "basic"))
SAMPLING = (("unsampled", "recorded"),)
NAMES = {
    "nothing": "nothing",
    "basic": "recording without attempts and inputs",
    "unsampled": "recording without samples",
}


def quartiles(values: list[float]) -> tuple[float, float, float]:
    """Return lower quartile, median and upper quartile."""
    if len(values) < 2:
        return (values[0],) * 3
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def compare(name: str, off: list[float], on: list[float], unit: str) -> dict:
    """Return the ratio of medians, and the quartiles of the ratios of neighbouring measurements."""
    pairs = [b / a for a, b in zip(off, on, strict=True) if a > 0]
    without, recorded = statistics.median(off), statistics.median(on)
    low, middle, high = quartiles(pairs) if pairs else (None, None, None)
    return {
        "what": name,
        "unit": unit,
        "without": without,
        "recorded": recorded,
        "ratio": recorded / without if without else None,
        "low": low,
        "pairs": middle,
        "high": high,
        "difference": recorded - without,
    }


def one_round(
    workload: str, size: str, number: int, scratch: Path, variants: list[str]
) -> dict[str, dict]:
    """Run each variant once; the first one alternates."""
    found = {}
    first = number % len(variants)
    for variant in variants[first:] + variants[:first]:
        settings = VARIANTS[variant]
        runs = None if settings is None else scratch / f"{workload}-{number}-{variant}"
        found[variant] = run_once(workload, size, runs, **(settings or {})) | {"way": variant}
        if runs is not None:
            found[variant]["recording"] = read_recording(runs, found[variant]["window ns"])
        print(
            f"  {workload} {number + 1} {variant:<8} {found[variant]['wall']:7.2f} s",
            file=sys.stderr,
            flush=True,
        )
    return found


def summarise(workload: str, size: str, rounds: list[dict[str, dict]], pair: tuple) -> dict:
    """Return all results of one workload for a pair of variants."""
    off, on = [r[pair[0]] for r in rounds], [r[pair[1]] for r in rounds]

    def both(name: str, get, unit: str) -> dict:
        return compare(name, [get(r) for r in off], [get(r) for r in on], unit)

    costs = [both("wall", lambda r: r["wall"], "s")]
    costs += [both(f"CPU {role}", lambda r, k=role: r["cpu"][k], "s") for role in ROLES]
    startup = [both("wall until 2 workers", lambda r: r["startup wall"], "s")]
    startup += [both(f"CPU {role}", lambda r, k=role: r["startup cpu"][k], "s") for role in ROLES]
    memory = [both(role, lambda r, k=role: r["peak bytes"][k] / 1e6, "MB") for role in ROLES]
    return {
        "workload": workload,
        "title": TITLES[workload],
        "size": SIZES[workload][size],
        "against": pair[0],
        "way": pair[1],
        "repeats": len(rounds),
        "counts": {
            name: statistics.median(r["counts"][name] for r in on) for name in on[0]["counts"]
        },
        "costs": costs,
        "startup": startup,
        "memory": memory,
        "recorder": recorder_costs(off, on),
        "said": sorted({line for r in on for line in r["log"]}),
        "problems": sorted({line for r in on for line in r["recording"]["problems"]}),
    }


def table(title: str, rows: list[dict]) -> str:
    """Return one table of ratios as text."""
    heads = (title, "without", "recorded", "ratio", "of pairs", "quartiles", "more")
    lines = ["{:<24}{:>11}{:>11}{:>9}{:>10}{:>17}{:>11}".format(*heads)]
    for row in rows:
        unit, middle, spread = row["unit"], "-", "-"
        ratio = "-" if row["ratio"] is None else f"{row['ratio']:.3f}"
        if row["pairs"] is not None:
            middle, spread = f"{row['pairs']:.3f}", f"{row['low']:.3f} - {row['high']:.3f}"
        lines.append(
            f"{row['what']:<24}{row['without']:>8.3f} {unit:<2}{row['recorded']:>8.3f} {unit:<2}"
            f"{ratio:>9}{middle:>10}{spread:>17}{row['difference']:>8.3f} {unit}"
        )
    return "\n".join(lines)


def render(summary: dict) -> str:
    """Return the results of one workload as text."""
    size = ", ".join(f"{k} {v}" for k, v in summary["size"].items())
    counts = ", ".join(f"{v:,.0f} {k}" for k, v in summary["counts"].items())
    parts = [
        f"({summary['workload']}) {summary['title']}: {size}; {summary['repeats']} pairs of runs",
        f"{NAMES.get(summary['way'], summary['way'])} against {NAMES[summary['against']]}",
        counts,
        table("the workload", summary["costs"]),
        table("start-up and 2 s idle", summary["startup"]),
        table("peak memory", summary["memory"]),
    ]
    lines = ["the recorder"]
    lines += [
        f"{what:<68}{'-' if value is None else f'{value:,.2f}':>14} {unit}"
        for what, value, unit in summary["recorder"]
    ]
    parts.append("\n".join(lines))
    parts += [
        "\n".join([f"{what}:", *(f"  {line}" for line in summary[what])])
        for what in ("said", "problems")
        if summary[what]
    ]
    return "\n\n".join(parts)


def surroundings() -> dict:
    """Return the hardware and the versions that the results depend on."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(HERE), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    cpu = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        if line.startswith("model name")
    ]
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "cpu": cpu[0] if cpu else platform.processor(),
        "cores": len(cpu),
        "python": platform.python_version(),
        "kernel": platform.release(),
        **{name: version(name) for name in ("dask", "distributed", "dask-strata")},
        "commit": git("rev-parse", "--short", "HEAD"),
        "changed files": len(git("status", "--porcelain", "--", "../src").splitlines()),
    }


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--workloads", default=",".join(RUNS), help="separated by commas (default: %(default)s)")
    add("--repeats", type=int, help="pairs per workload (default: 7; 2 with --quick)")
    add(
        "--attempts",
        action="store_true",
        help="also record without attempts and inputs, and compare all three",
    )
    add("--sampling", action="store_true", help="compare with recording without samples")
    add("--quick", action="store_true", help="small sizes, to test the program")
    add("--json", type=Path, help="write the results to this file")
    add("--scratch", type=Path, help="keep the recorded runs in this folder")
    options = parser.parse_args(argv)
    options.workloads = options.workloads.split(",")
    unknown = [w for w in options.workloads if w not in RUNS]
    if unknown:
        parser.error(f"no workload {unknown[0]!r}; there are {', '.join(RUNS)}")
    options.repeats = options.repeats or (2 if options.quick else 7)
    options.size = "quick" if options.quick else "full"
    return options


def measure(options: argparse.Namespace, scratch: Path) -> dict:
    """Run all workloads, print a text for each of them, and return the results."""
    results = {"surroundings": surroundings(), "workloads": [], "runs": []}
    print("\n".join(f"{k:<14}{v}" for k, v in results["surroundings"].items()))
    for workload in options.workloads:
        pairs = SAMPLING if options.sampling else THREE if options.attempts else PAIRS
        variants = [v for v in VARIANTS if any(v in pair for pair in pairs)]
        rounds = [
            one_round(workload, options.size, n, scratch, variants) for n in range(options.repeats)
        ]
        results["runs"] += [run for r in rounds for run in r.values()]
        for pair in pairs:
            results["workloads"].append(summarise(workload, options.size, rounds, pair))
            print(f"\n{render(results['workloads'][-1])}", flush=True)
        if options.json:
            options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return results


def main(argv: list[str] | None = None) -> int:
    options = parse(argv)
    try:
        if options.scratch:
            measure(options, options.scratch.resolve())
        else:
            with tempfile.TemporaryDirectory(prefix="strata-overhead-") as scratch:
                measure(options, Path(scratch))
    except RunError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
