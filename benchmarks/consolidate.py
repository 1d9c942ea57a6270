"""Cost of importing the Mofka-Dask coupler's files, compared with reading them by pyarrow alone.

The files repeat real rows, each time with other keys and at another time, so that tasks and
transfers are distinct and resends stay resends. Each measurement is a fresh process, and the
measured steps alternate. CPU seconds are user plus system time of all threads.

    python benchmarks/consolidate.py
    python benchmarks/consolidate.py --rows 10000 100000 --rounds 5 --json results/consolidate.json
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from overhead import quartiles, surroundings
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

FIXTURES = Path(__file__).resolve().parents[2] / "shared" / "fixtures"
#: Folders whose rows make up one cycle, some more than once. About 192 bytes per row.
MIX = (
    "wfmeta_dask_test_data",
    "PMDA/D2024-04-19_19:01:00_R1_W8",
    "wfmeta_dask_test_data",
    "PMDA/D2024-04-19_19:01:02_R6_W8",
    "PMDA/D2024-04-19_19:01:00_R1_W8",
)
#: Files whose rows are repeated; the others are written once.
REPEATED = ("scheduler_transition", "worker_transition", "worker_transfer", "graph")
ONCE = ("worker", "client")
#: Start of the first repetition, in seconds since the epoch: after the workers were added.
EPOCH = 1_713_600_000
#: Time between two repetitions; each folder of the mix spans less.
SECONDS_APART = 60
MILLION = 1_000_000
#: Goals by number of rows: CPU seconds and peak memory in bytes of import and opening together.
GOALS = {MILLION: (4.0, 600e6), 10 * MILLION: (None, 1.5e9)}
STEPS = {
    "read": "pyarrow reads",
    "import": "dask-strata import",
    "open": "open",
    "tasks": "open, all tasks",
}

_HASH = re.compile(r"([0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{4}|[0-9a-f]{24})[0-9a-f]{8}")
_TIME = re.compile(r"(?<![\d.])171\d{7}(?=\.\d)")
_MARK = re.compile("\ue000([hi]|\\d+)\ue001")
_KEYS = {"key", "group", "keys", "dependencies"}


class Template:
    """Rows of one file, with placeholders for row numbers, ends of hashes, and whole seconds."""

    def __init__(self, header: list[str], rows: list[dict[str, str]], base: int) -> None:
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        for row in rows:
            writer.writerow([self._marked(name, row[name]) for name in header])
        parts = _MARK.split(text.getvalue())
        self.rows = len(rows)
        self._literals = [*parts[::2], ""]
        kinds = parts[1::2]
        self._seconds = sorted({int(k) - base for k in kinds if k not in ("h", "i")})
        slot = {str(s + base): 1 + n for n, s in enumerate(self._seconds)} | {"h": 0}
        first = 1 + len(self._seconds)
        numbers = iter(range(first, first + self.rows))
        self._slots = [next(numbers) if k == "i" else slot[k] for k in kinds]

    @staticmethod
    def _marked(name: str, cell: str) -> str:
        if not name:
            return "\ue000i\ue001"
        if name in _KEYS:
            marked, n = _HASH.subn("\\1\ue000h\ue001", cell)
            if not n and name not in ("group", "dependencies"):
                raise ValueError(f"no hash to alter in {cell[:80]!r}")
            return marked
        return _TIME.sub("\ue000\\g<0>\ue001", cell)

    def render(self, number: int, first_row: int) -> str:
        """Return the rows of one repetition."""
        begin = EPOCH + number * SECONDS_APART
        values = [f"{number * 2654435761 % 2**32:08x}"]
        values += [str(begin + s) for s in self._seconds]
        values += map(str, range(first_row, first_row + self.rows))
        gaps = chain(map(values.__getitem__, self._slots), ("",))
        return "".join(chain.from_iterable(zip(self._literals, gaps, strict=False)))


def read_rows(file: Path) -> tuple[list[str], list[dict[str, str]]]:
    """Return header and rows of one of the coupler's files."""
    with file.open(encoding="utf-8", newline="") as stream:
        reader = csv.DictReader(stream)
        return list(reader.fieldnames or ()), list(reader)


class Generator:
    """Make folders of files like the coupler's, with any number of rows."""

    def __init__(self, fixtures: Path, repeated: tuple[str, ...] = REPEATED) -> None:
        self.repeated = repeated
        self.headers: dict[str, list[str]] = {}
        self.once: dict[str, list[list[str]]] = {name: [] for name in ONCE}
        self.cycle: list[dict[str, Template]] = []
        made: dict[str, dict[str, Template]] = {}
        for folder in MIX:
            if folder not in made:
                made[folder] = self._templates(fixtures / folder)
            self.cycle.append(made[folder])
        self.rows_a_cycle = sum(t.rows for templates in self.cycle for t in templates.values())

    def _templates(self, folder: Path) -> dict[str, Template]:
        files = {name: folder / f"{name}.csv" for name in (*self.repeated, *ONCE)}
        found = {name: read_rows(file) for name, file in files.items() if file.exists()}
        for name, (header, _) in found.items():
            self.headers.setdefault(name, header)
        seconds = [
            int(second)
            for name in found.keys() - set(ONCE)
            for row in found[name][1]
            for column, cell in row.items()
            if column not in _KEYS
            for second in _TIME.findall(cell)
        ]
        for name in found.keys() & set(ONCE):
            self.once[name] += [list(row.values())[1:] for row in found[name][1]]
        return {
            name: Template(self.headers[name], rows, min(seconds))
            for name, (_, rows) in found.items()
            if name not in ONCE
        }

    def write(self, folder: Path, rows: int) -> int:
        """Write files with about this number of rows; return the exact number."""
        folder.mkdir(parents=True)
        written = dict.fromkeys(self.repeated, 0)
        with ExitStack() as stack:
            streams = {}
            for name in self.repeated:
                stream = (folder / f"{name}.csv").open("w", 1 << 20, encoding="utf-8", newline="")
                streams[name] = stack.enter_context(stream)
                stream.write(",".join(self.headers[name]) + "\n")
            for number in range(round(rows / self.rows_a_cycle * len(self.cycle)) or 1):
                for name, template in self.cycle[number % len(self.cycle)].items():
                    streams[name].write(template.render(number, written[name]))
                    written[name] += template.rows
        for name, cells in self.once.items():
            with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as stream:
                writer = csv.writer(stream, lineterminator="\n")
                writer.writerow(self.headers[name])
                writer.writerows([number, *row] for number, row in enumerate(cells))
        return sum(written.values())


def read_files(folder: Path) -> None:
    """Read each file into memory and drop it."""
    from pyarrow import csv as arrow_csv

    for file in sorted(folder.glob("*.csv")):
        arrow_csv.read_csv(file)


def open_and_count(runs: Path) -> None:
    """Open the only run of a folder and print the number of rows of each table as JSON."""
    from dask_strata import open_run
    from dask_strata.schema import RECORDED

    (manifest,) = runs.glob("*/run.json")
    run = open_run(manifest.parent)
    print(json.dumps({name: len(run[name]) for name in RECORDED}))


def consolidate(runs: Path) -> None:
    """Open the only run of a folder, compute its tasks and transfers, and print their number."""
    from dask_strata import open_run

    (manifest,) = runs.glob("*/run.json")
    run = open_run(manifest.parent)
    print(json.dumps({name: len(run[name]) for name in ("tasks", "attempts", "transfers")}))


@dataclass(frozen=True)
class Cost:
    """Time and memory of one process."""

    cpu_seconds: float
    wall_seconds: float
    peak_bytes: int


class ChildError(RuntimeError):
    """A measured process failed."""


def measure(arguments: list[str], log: Path) -> tuple[Cost, str]:
    """Run a Python process; return its cost and its output."""
    output = log.with_suffix(".out")
    with log.open("wb") as errors, output.open("wb") as out:
        started = time.monotonic()
        child = subprocess.Popen([sys.executable, *arguments], stdout=out, stderr=errors)
        _, status, used = os.wait4(child.pid, 0)
        wall = time.monotonic() - started
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        errors_text = log.read_text(encoding="utf-8", errors="replace")[-3000:]
        raise ChildError(f"{' '.join(arguments)} ended with {child.returncode}:\n{errors_text}")
    cost = Cost(used.ru_utime + used.ru_stime, wall, used.ru_maxrss * 1024)
    return cost, output.read_text(encoding="utf-8")


def measure_once(folder: Path, scratch: Path) -> tuple[dict[str, Cost], dict]:
    """Read and import files, and open the run; return the costs, and the size of the run."""
    runs, log = scratch / "runs", scratch / "child.log"
    try:
        costs = {}
        costs["read"], _ = measure([__file__, "--child", "read", str(folder)], log)
        imported = ["-m", "dask_strata", "import", str(folder), "-o", str(runs)]
        costs["import"], _ = measure(imported, log)
        costs["open"], counts = measure([__file__, "--child", "open", str(runs)], log)
        size = sum(f.stat().st_size for f in runs.rglob("*") if f.is_file())
        costs["tasks"], derived = measure([__file__, "--child", "tasks", str(runs)], log)
        found = json.loads(counts) | json.loads(derived)
        tables = {name: n for name, n in found.items() if n}
        return costs, {"run bytes": size, "tables": tables}
    finally:
        shutil.rmtree(runs, ignore_errors=True)


def summarise(rows: int, size: int, rounds: list[dict[str, Cost]], imported: dict) -> dict:
    """Return all results for one number of rows."""
    costs = {}
    for what in STEPS:
        low, middle, high = quartiles([r[what].cpu_seconds for r in rounds])
        costs[what] = {
            "cpu seconds": middle,
            "cpu quartiles": [low, high],
            "wall seconds": statistics.median(r[what].wall_seconds for r in rounds),
            "peak bytes": max(r[what].peak_bytes for r in rounds),
        }
    together = [r["import"].cpu_seconds + r["open"].cpu_seconds for r in rounds]
    return {
        "rows": rows,
        "csv bytes": size,
        **imported,
        "rounds": [{what: asdict(cost) for what, cost in r.items()} for r in rounds],
        "costs": costs,
        "cpu seconds": statistics.median(together),
        "microseconds a row": statistics.median(together) / rows * 1e6,
        "peak bytes": max(costs[what]["peak bytes"] for what in ("import", "open")),
    }


def goal_lines(results: list[dict]) -> Iterator[tuple[str, str, str, bool]]:
    """Yield each measured goal: quantity, goal, result, and whether the goal is met."""
    for result in results:
        near = [n for n in GOALS if abs(result["rows"] / n - 1) < 0.05]
        for number in near:
            seconds, peak = GOALS[number]
            if seconds is not None:
                found = result["cpu seconds"]
                yield (
                    f"{number:,} rows, CPU",
                    f"≤ {seconds:g} s",
                    f"{found:.2f} s",
                    found <= seconds,
                )
            found = result["peak bytes"]
            yield (
                f"{number:,} rows, peak memory",
                f"≤ {peak / 1e6:,.0f} MB",
                f"{found / 1e6:,.0f} MB",
                found <= peak,
            )
    large = [r for r in results if r["rows"] > 0.95e5]
    if len(large) > 1:
        ratio = large[-1]["microseconds a row"] / large[0]["microseconds a row"]
        what = f"CPU a row, {large[-1]['rows']:,} against {large[0]['rows']:,} rows"
        yield what, "≤ 1.1", f"{ratio:.2f}", ratio <= 1.1


HEADS = ("rows", "CSV", "step", "CPU", "quartiles", "a row", "of reading", "wall", "peak")


def table_rows(results: list[dict]) -> Iterator[list[str]]:
    """Yield the lines of the table of results."""
    for result in results:
        rows, reading = result["rows"], result["costs"]["read"]["cpu seconds"]
        lead = [f"{rows:,}", f"{result['csv bytes'] / 1e6:,.1f} MB"]
        for what, name in STEPS.items():
            cost = result["costs"][what]
            cpu, (low, high) = cost["cpu seconds"], cost["cpu quartiles"]
            yield [
                *lead,
                name,
                f"{cpu:.2f} s",
                f"{low:.2f}–{high:.2f}",
                f"{cpu / rows * 1e6:.2f} µs",
                f"{cpu / reading:.1f}",
                f"{cost['wall seconds']:.2f} s",
                f"{cost['peak bytes'] / 1e6:,.0f} MB",
            ]
            lead = ["", ""]
        yield [
            *lead,
            "import + open",
            f"{result['cpu seconds']:.2f} s",
            "",
            f"{result['microseconds a row']:.2f} µs",
            f"{result['cpu seconds'] / reading:.1f}",
            "",
            f"{result['peak bytes'] / 1e6:,.0f} MB",
        ]


def show(results: list[dict]) -> None:
    """Print the results and the goals as tables."""
    console = Console()
    console = console if console.is_terminal else Console(width=120)
    costs = Table(*HEADS, title="CPU seconds are medians, memory the largest of all rounds")
    for row in table_rows(results):
        costs.add_row(*row, end_section=row[2] == "import + open")
    console.print(costs)
    goals = Table("goal", "", "measured", "")
    for what, goal, found, met in goal_lines(results):
        goals.add_row(what, goal, found, "[green]met" if met else "[red]missed")
    console.print(goals)


def markdown(found: dict) -> str:
    """Return the results as Markdown."""
    around, results = found["surroundings"], found["results"]
    head = (
        f"Measured with `benchmarks/consolidate.py` on {around['date'][:10]}: {around['cpu']}, "
        f"{around['cores']} cores; Python {around['python']}, commit {around['commit']}, "
        f"{around['changed files']} files changed since. {found['rounds']} rounds, in turn; CPU "
        "seconds are medians, memory the largest of all rounds. "
        f"{'With' if found['graph'] else 'Without'} `graph.csv`."
    )
    lines = ["# Cost of importing", "", head, ""]

    def table(heads: tuple[str, ...], rows: list[list[str]]) -> list[str]:
        return [f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows)]

    lines += table(HEADS, list(table_rows(results)))
    goals = [[*g, "met" if met else "missed"] for *g, met in goal_lines(results)]
    lines += ["", *table(("goal", "", "measured", ""), goals)] if goals else []
    return "\n".join(lines) + "\n"


def save(found: dict, file: Path) -> None:
    file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    file.with_suffix(".md").write_text(markdown(found), encoding="utf-8")


def make_files(generator: Generator, rows: int, folder: Path) -> tuple[int, int]:
    """Write files to a folder; return their numbers of rows and bytes."""
    need, free = rows * 220 * 2, shutil.disk_usage(folder.parent).free
    if free < need:
        raise OSError(f"{rows:,} rows need {need / 1e9:.1f} GB in {folder.parent}")
    started = time.monotonic()
    made = generator.write(folder, rows)
    size = sum(file.stat().st_size for file in folder.iterdir())
    log(f"{made:,} rows, {size / 1e6:,.1f} MB made in {time.monotonic() - started:.1f} s")
    return made, size


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def run(options: argparse.Namespace, scratch: Path) -> dict:
    """Measure each number of rows, for the given number of rounds."""
    found = {"surroundings": surroundings(), "rounds": options.rounds, "graph": options.graph}
    found["results"] = []
    without = () if options.graph else ("graph",)
    generator = Generator(options.fixtures, tuple(n for n in REPEATED if n not in without))
    parent = options.folder or scratch
    for rows in sorted(options.rows):
        folder = parent / f"rows-{rows}"
        made, size = make_files(generator, rows, folder)
        costs, imported = [], {}
        try:
            for number in range(options.rounds if not options.only_make else 0):
                once, imported = measure_once(folder, scratch)
                costs.append(once)
                costs_text = ", ".join(
                    f"{STEPS[w]} {c.cpu_seconds:.2f} s {c.peak_bytes / 1e6:,.0f} MB"
                    for w, c in once.items()
                )
                log(f"  {number + 1}: {costs_text}")
        finally:
            if not options.folder:
                shutil.rmtree(folder, ignore_errors=True)
        if costs:
            found["results"].append(summarise(made, size, costs, imported))
            if options.json:
                save(found, options.json)
    return found


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--rows", type=int, nargs="+", default=[10_000, 100_000, MILLION], help="numbers of rows")
    add("--rounds", type=int, default=3, help="rounds per number of rows (default: %(default)s)")
    add(
        "--fixtures",
        type=Path,
        default=FIXTURES,
        help="folder of real files (default: %(default)s)",
    )
    add("--folder", type=Path, help="write the files to this folder and keep them")
    add(
        "--graph",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="with graph.csv: one row in a hundred, each a submission of three tasks",
    )
    add("--only-make", action="store_true", help="write the files to --folder, measure nothing")
    add("--json", type=Path, help="write the results to this file, and a page next to it (.md)")
    add("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.only_make and not options.folder:
        parser.error("--only-make needs --folder")
    return options


def main(argv: list[str] | None = None) -> int:
    options = parse(argv)
    if options.child:
        step, folder = options.child
        {"read": read_files, "open": open_and_count, "tasks": consolidate}[step](Path(folder))
        return 0
    missing = [folder for folder in MIX if not (options.fixtures / folder).is_dir()]
    if missing:
        log(f"Error: no real files to repeat: {options.fixtures / missing[0]} is missing")
        return 2
    try:
        with tempfile.TemporaryDirectory(prefix="strata-consolidate-") as scratch:
            found = run(options, Path(scratch))
    except (ChildError, OSError) as error:
        log(f"Error: {error}")
        return 1
    if found["results"]:
        show(found["results"])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
