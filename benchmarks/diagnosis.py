"""Which causes are named for workloads with a planted cause, and at which cost.

Each workload of ``tests/diagnosis`` is recorded twice: with its cause, and mended. The truth is the
difference of the seconds that the script measures itself. A healthy workload has no cause.

    python benchmarks/diagnosis.py                        # all: about 40 minutes
    python benchmarks/diagnosis.py --only memory/ lock    # those whose names contain one of these
    python benchmarks/diagnosis.py --runs kept/           # diagnose runs that were kept by --keep
    python benchmarks/diagnosis.py --runs kept/ --docs    # and write the tables in docs/causes/
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support.planted import HEALTHY, WORKLOADS, accepted, cause_of, names, record

from dask_strata import open_run
from dask_strata.analysis.critical_path import critical_path
from dask_strata.analysis.diagnosis import diagnose

#: Insights that count as named, and the largest error of a cost.
NAMED = 3
NEAR = 0.3


def recorded(name: str, script: Path, keep: Path) -> Iterator[tuple[str, Path, dict]]:
    """Yield each variant of a workload with its run and its truth; record it unless it is kept."""
    for variant, flags in (("sick", ()), ("mended", ("--mended",))):
        if "healthy/" in name and variant == "mended":
            continue
        folder = keep / f"{name.replace('/', '-')}-{variant}"
        if not (folder / "truth.json").exists():
            folder.mkdir(parents=True, exist_ok=True)
            found = record(script, folder, *flags)
            facts = {"run": found.path.name, "truth": found.truth, "status": found.status}
            (folder / "truth.json").write_text(json.dumps(facts))
        facts = json.loads((folder / "truth.json").read_text())
        yield variant, folder / facts["run"], facts["truth"]


def row_of(name: str, script: Path, keep: Path) -> dict:
    """Return what was planted in a workload, what was named, and both costs."""
    planted = None if name.startswith("healthy/") else cause_of(name)
    row: dict = {"name": name, "planted": planted, "named": [], "mended": []}
    seconds = {}
    for variant, path, truth in recorded(name, script, keep):
        run = open_run(path)
        seconds[variant] = truth.get("seconds")
        row[{"sick": "named", "mended": "mended"}[variant]] = [
            (i.cause, i.seconds) for i in diagnose(run, critical_path(run))
        ]
        if variant == "sick":
            row["also"] = truth.get("also", [])
    row["seconds"] = seconds
    if None not in (seconds.get("sick"), seconds.get("mended")):
        row["truth"] = seconds["sick"] - seconds["mended"]
    costs = [s for cause, s in row["named"][:NAMED] if planted and cause in accepted(planted)]
    row["found"] = bool(costs) if planted else not row["named"]
    row["cost"] = costs[0] if costs else None
    return row


def text_of(row: dict) -> str:
    """Return a row as a line of a Markdown table."""

    def listed(found: list) -> str:
        return ", ".join(f"{c}{'' if s is None else f' {s:.1f} s'}" for c, s in found) or "–"

    truth, cost = row.get("truth"), row["cost"]
    near = truth and cost and abs(cost - truth) <= NEAR * truth
    verdict = ("yes" if near or cost is None or truth is None else "cost") if row["found"] else "NO"
    times = " / ".join("–" if s is None else f"{s:.1f}" for s in row["seconds"].values())
    shown = "–" if truth is None else f"{truth:.1f}"
    return (
        f"| {row['name']} | {times} | {shown} | {verdict} | {listed(row['named'][:NAMED])} "
        f"| {listed(row['mended'][:NAMED])} |"
    )


CAUSES = Path(__file__).parents[1] / "docs" / "causes"
HEAD = (
    "| workload | seconds, mended | planted | as planted | insights | mended: insights |\n"
    "|---|---|---|---|---|---|"
)
SECTION = "## Measured\n"

CONFUSION_HEAD = "| planted | workloads | named among the first three |\n|---|---|---|"


def confusion(rows: list[dict]) -> Iterator[str]:
    """Yield the lines of a table: in how many workloads with a cause each cause was named."""
    planted: dict[str, list[dict]] = {}
    for row in rows:
        planted.setdefault(row["planted"] or "nothing (healthy)", []).append(row)
    for cause, those in sorted(planted.items()):
        named = Counter(name for row in those for name in {c for c, _ in row["named"][:NAMED]})
        # What was planted comes first, then the most frequent.
        order = sorted(named.items(), key=lambda item: (item[0] != cause, -item[1], item[0]))
        yield f"| {cause} | {len(those)} | {', '.join(f'{c} {n}' for c, n in order) or '–'} |"


CONFUSION = """## Which cause was named for which

In how many workloads with a planted cause each cause was among the first three insights. Workloads
`_2` have a second, smaller sickness beside it: mostly small-reads. Counted as planted, too:
exception for dependency-failed, lost-worker for killed-worker and recomputation, unmanaged-memory
for paused."""


def write_docs(rows: list[dict], when: str) -> None:
    """Write the table of all workloads, and in the page of each cause those of its own."""
    found = sum(row["found"] for row in rows)
    text = f"""# Which causes are named

{found} of {len(rows)} workloads as planted: the cause is among the first {NAMED} insights, and a
healthy one has none. Measured by `benchmarks/diagnosis.py` on {when}, with 2 cores. Seconds are
those that the script measures itself, as it is and with its cause mended; their difference is what
was planted. "cost" is a cause that was named with a cost that differs by more than {NEAR:.0%}.
Thresholds of the rules were set with recordings of the same scripts, so that others may fare worse.

{HEAD}
"""
    table = "\n".join([CONFUSION_HEAD, *confusion(rows)])
    text += "\n".join(map(text_of, rows)) + f"\n\n{CONFUSION}\n\n{table}\n"
    (CAUSES / "measured.md").write_text(text)
    for cause in {row["planted"] for row in rows} - {None}:
        page = CAUSES / f"{cause}.md"
        if page.exists():
            lines = [text_of(row) for row in rows if row["planted"] == cause]
            body = page.read_text().partition(SECTION)[0].rstrip()
            intro = f"\n\n{SECTION}\nOn {when}; see [all workloads](measured.md).\n\n{HEAD}\n"
            page.write_text(body + intro + "\n".join(lines) + "\n")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[""], help="parts of names")
    parser.add_argument("--keep", "--runs", type=Path, help="keep runs here, and use those there")
    parser.add_argument("--docs", action="store_true", help="write the tables in docs/causes/")
    options = parser.parse_args()
    scripts = {name: WORKLOADS / f"{name}.py" for name in names()}
    scripts |= {f"healthy/{name}": HEALTHY / f"{name}.py" for name in names(HEALTHY)}
    print(HEAD)
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        for name, script in scripts.items():
            if any(part in name for part in options.only):
                rows.append(row_of(name, script, options.keep or Path(temporary)))
                print(text_of(rows[-1]), flush=True)
    found = sum(row["found"] for row in rows)
    print(f"\n{found} of {len(rows)} as planted\n\n{CONFUSION_HEAD}", *confusion(rows), sep="\n")
    if options.docs:
        write_docs(rows, f"{datetime.now(timezone.utc):%Y-%m-%d}")


if __name__ == "__main__":
    main()
