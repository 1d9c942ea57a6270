"""Inject faults into recorded workflows, and count harmed workflows and lost rows.

    python benchmarks/chaos.py --trials 65 --json chaos.jsonl    # more than 200 faults
    python benchmarks/chaos.py --replay 17                       # one seed again; keep its files
    python benchmarks/chaos.py --table chaos.jsonl               # table of the results

One trial is a fresh cluster of separate processes, a workflow with a known result, and one to six
faults at times derived from the seed. Each result is appended to the file, and seeds that the file
contains are skipped, so that an interrupted series continues.
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
from tests.chaos.trial import impossible, run_trial, trial_folder

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
    """Return the results of all trials as Markdown: a trial counts for each of its kinds."""
    injected = Counter(f.partition(":")[0] for r in results for f in r["injected"])
    lines = [f"| injected | times | {' | '.join(f'{name}' for name in COLUMNS)} |"]
    lines.append("|---" * (len(COLUMNS) + 2) + "|")
    for kind in KINDS:
        trials = [r for r in results if any(f.startswith(f"{kind}:") for f in r["injected"])]
        bad = [sum(bool(r[column]) for r in trials) for column in COLUMNS.values()]
        lines.append(f"| {kind} | {injected[kind]} | {' | '.join(map(str, bad))} |")
    bad = [sum(bool(r[column]) for r in results) for column in COLUMNS.values()]
    total = f"| **all: {len(results)} trials** | **{injected.total()}** |"
    return "\n".join([*lines, f"{total} {' | '.join(f'**{n}**' for n in bad)} |"])


def series(options: argparse.Namespace) -> list[dict]:
    results = results_in(options.json)
    done = {r["seed"] for r in results}
    for seed in range(options.seed, options.seed + options.trials):
        if seed in done:
            continue
        planned = plan(seed, options.kinds)
        print(f"seed {seed}: {planned}", flush=True)
        try:
            with trial_folder() as folder:
                result = run_trial(planned, folder, mutant=options.mutant)
                if result.problems:
                    options.keep.mkdir(parents=True, exist_ok=True)
                    shutil.copytree(folder, options.keep / f"seed-{seed}", dirs_exist_ok=True)
        except TrialError as error:
            print(f"  not run: {error}", flush=True)
            continue
        line = result.as_json()
        results.append(json.loads(line))
        if options.json is not None:
            with options.json.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        for text in result.problems or [f"{result.outcome}, no defects"]:
            print(f"  {text}", flush=True)
    return results


def replay(options: argparse.Namespace) -> list[dict]:
    options.keep = options.keep.resolve()  # each process has a working folder of its own
    options.keep.mkdir(parents=True, exist_ok=True)
    with trial_folder(options.keep) as folder:
        result = run_trial(plan(options.replay, options.kinds), folder, mutant=options.mutant)
    for text in [str(result.plan), *result.injected, f"outcome: {result.outcome}"]:
        print(text)
    print(*(result.problems or ["no defects"]), f"files: {folder}", sep="\n")
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
    parser.add_argument("--seed", type=int, default=1, help="seed of the first trial")
    parser.add_argument("--kinds", type=kinds, default=KINDS, help="kinds, separated by commas")
    parser.add_argument("--json", type=Path, help="file to append the results to, as JSON lines")
    parser.add_argument("--replay", type=int, metavar="SEED", help="run one seed, keep its files")
    parser.add_argument("--mutant", choices=MUTANTS, help="a broken recorder: trials must fail")
    parser.add_argument("--keep", type=Path, default=Path("chaos"), help="folder for those files")
    parser.add_argument("--table", type=Path, metavar="FILE", help="print the table of a file")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the processes are stopped
    if options.table is not None:
        print(table(results_in(options.table)))
        return
    for kind, reason in impossible().items():
        print(f"NOT INJECTED: {kind}: {reason}")
    results: list[dict] = []
    try:
        results = replay(options) if options.replay is not None else series(options)
    except KeyboardInterrupt:
        print("interrupted; finished trials are kept", file=sys.stderr)
        results = results_in(options.json)
    if options.replay is None:
        print(table(results))
    sys.exit(any(r[column] for r in results for column in COLUMNS.values()))


if __name__ == "__main__":
    main()
