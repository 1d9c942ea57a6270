"""Faults injected into recorded workflows: was anyone harmed, was anything lost?

    python benchmarks/chaos.py --trials 65 --json chaos.jsonl    # more than 200 faults
    python benchmarks/chaos.py --replay 17                       # one seed again, files are kept
    python benchmarks/chaos.py --table chaos.jsonl               # what came of it

One trial is a fresh cluster of separate processes, a workflow of a known answer, and one to six
faults at moments that follow from the seed. Results are appended as they come; seeds that the
file has already are not held again, so that an interrupted series goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.chaos.cluster import TrialError
from tests.chaos.mutants import MUTANTS
from tests.chaos.plan import KINDS, plan
from tests.chaos.trial import hold, impossible, trial_folder

COLUMNS = {
    "workflow harmed": "harmed",
    "run unreadable": "unreadable",
    "lost beyond the bound": "lost",
    "rows wrong": "wrong",
    "check wrong": "check",
}


def results_in(file: Path | None) -> list[dict]:
    if file is None or not file.exists():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def table(results: list[dict]) -> str:
    """Return what came of all trials, as Markdown: a trial counts for each kind that it had."""
    injected = Counter(f.partition(":")[0] for r in results for f in r["injected"])
    lines = [f"| injected | times | {' | '.join(f'{name}' for name in COLUMNS)} |"]
    lines.append("|---" * (len(COLUMNS) + 2) + "|")
    for kind in KINDS:
        held = [r for r in results if any(f.startswith(f"{kind}:") for f in r["injected"])]
        bad = [sum(bool(r[column]) for r in held) for column in COLUMNS.values()]
        lines.append(f"| {kind} | {injected[kind]} | {' | '.join(map(str, bad))} |")
    bad = [sum(bool(r[column]) for r in results) for column in COLUMNS.values()]
    total = f"| **all: {len(results)} trials** | **{injected.total()}** |"
    return "\n".join([*lines, f"{total} {' | '.join(f'**{n}**' for n in bad)} |"])


def series(options: argparse.Namespace) -> list[dict]:
    results = results_in(options.json)
    held = {r["seed"] for r in results}
    for seed in range(options.seed, options.seed + options.trials):
        if seed in held:
            continue
        planned = plan(seed, options.kinds)
        print(f"seed {seed}: {planned}", flush=True)
        try:
            with trial_folder() as folder:
                result = hold(planned, folder, mutant=options.mutant)
                if result.problems:
                    options.keep.mkdir(parents=True, exist_ok=True)
                    shutil.copytree(folder, options.keep / f"seed-{seed}", dirs_exist_ok=True)
        except TrialError as error:
            print(f"  not held: {error}", flush=True)
            continue
        line = result.as_json()
        results.append(json.loads(line))
        if options.json is not None:
            with options.json.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        for text in result.problems or [f"{result.outcome}, all is well"]:
            print(f"  {text}", flush=True)
    return results


def replay(options: argparse.Namespace) -> list[dict]:
    options.keep = options.keep.resolve()  # each process has a working folder of its own
    options.keep.mkdir(parents=True, exist_ok=True)
    with trial_folder(options.keep) as folder:
        result = hold(plan(options.replay, options.kinds), folder, mutant=options.mutant)
    for text in [str(result.plan), *result.injected, f"outcome: {result.outcome}"]:
        print(text)
    print(*(result.problems or ["all is well"]), f"files: {folder}", sep="\n")
    return [json.loads(result.as_json())]


def kinds(text: str) -> tuple[str, ...]:
    chosen = tuple(text.split(","))
    if not set(chosen) <= set(KINDS):
        raise argparse.ArgumentTypeError(f"must be among {','.join(KINDS)}")
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1, help="of the first trial")
    parser.add_argument("--kinds", type=kinds, default=KINDS, help="with commas between them")
    parser.add_argument("--json", type=Path, help="file to append results to, one a line")
    parser.add_argument("--replay", type=int, metavar="SEED", help="one trial, with its files kept")
    parser.add_argument("--mutant", choices=MUTANTS, help="a broken recorder: trials must fail")
    parser.add_argument("--keep", type=Path, default=Path("chaos"), help="where those are kept")
    parser.add_argument("--table", type=Path, metavar="FILE", help="print what is in a file")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # also then all is taken down
    if options.table is not None:
        print(table(results_in(options.table)))
        return
    for kind, why in impossible().items():
        print(f"NOT INJECTED: {kind}: {why}")
    held: list[dict] = []
    try:
        held = replay(options) if options.replay is not None else series(options)
    except KeyboardInterrupt:
        print("interrupted; what was held is kept", file=sys.stderr)
        held = results_in(options.json)
    if options.replay is None:
        print(table(held))
    sys.exit(any(r[column] for r in held for column in COLUMNS.values()))


if __name__ == "__main__":
    main()
