"""Lines that are the printed form of records: many of them, of rows that the test chooses."""

from __future__ import annotations

from importlib.resources import files

import duckdb
import pytest

QUERY = (files("dask_strata.run") / "derived" / "_log_entries.sql").read_text(encoding="utf-8")

TABLES = """
    create table processes as
    select 'nanny-1' as process, 'nanny' as role, 'tcp://h:1' as address, '0' as name, 'h' as host,
           1 as pid, make_timestamp_ns(0) as start
    union all select 'worker-1', 'worker', 'tcp://h:2', '0', 'h', 2, make_timestamp_ns(1000);
    create table log_records as
    select 'worker-1' as process, i as seq, make_timestamp_ns(i * 1000000) as time,
           'INFO' as level, 20 as level_number, 'mylab' as logger, {message} as message,
           null::varchar as exception, 'log' as kind, 'tcp://h:2' as worker, null as _key,
           null as key, null as key_type, null as run_id, 1 as thread, 't' as thread_name
    from range({n}) as t(i);
    create table output_lines as
    select 'nanny-1' as process, i as seq, make_timestamp_ns(i * 1000000 + 500000) as time,
           'tcp://h:2' as worker, 2 as pid, 'stderr' as stream, true as terminated,
           '2026-11-26 00:00:00,123 - mylab - INFO - ' || {line} as line
    from range({n}) as t(i);
    insert into output_lines by name
    select 'nanny-1' as process, {n} as seq, make_timestamp_ns({n}::bigint * 1000000) as time,
           2 as pid, 'a print of my own' as line, 'stdout' as stream;
"""


def _entries(message: str, line: str, n: int) -> list[tuple[str, int]]:
    """Return how many entries each stream has, for such records and their printed forms."""
    settings = {"memory_limit": "250MB", "temp_directory": "", "threads": 2}
    with duckdb.connect(config=settings) as database:
        for statement in TABLES.format(message=message, line=line, n=n).split(";"):
            database.execute(statement)
        return database.execute(
            f"select stream, count(*) from ({QUERY}) group by all order by 1"
        ).fetchall()


@pytest.mark.parametrize(
    ("message", "n"),
    [
        ("'tick'", 10_000),
        ("'number ' || i", 10_000),
        ("i || repeat(' word: and', 900)", 900),  # as many as a process records at once
    ],
    ids=["equal", "different", "long"],
)
def test_many_lines_pair_in_little_memory(message: str, n: int) -> None:
    """Each line is its record; long lines are not copied for each place where one may start."""
    assert _entries(message, message, n) == [("log", n), ("stdout", 1)]


def test_long_texts_pair_although_both_are_clipped() -> None:
    """A record has 10,000 characters, and a line 10,000 bytes with its prefix."""
    text = "repeat('lång ' || i || ' ', 2000)"
    clipped = f"left({text}, 10000) || '…'", f"left({text}, 8000) || '… (99 more bytes)'"
    assert _entries(*clipped, 20) == [("log", 20), ("stdout", 1)]
    others = f"replace({text}, '7', 'x')"
    assert _entries(clipped[0], others, 20) == [("log", 20), ("stderr", 2), ("stdout", 1)]
