"""The tables of a query are found with DuckDB's parser, not by its words."""

from __future__ import annotations

import pytest

import dask_strata
from dask_strata.run.query_tables import query_tables
from dask_strata.schema import TABLES
from tests.support.synthetic import small_run


@pytest.mark.parametrize(
    ("query", "tables"),
    [
        ("select * from tasks where key = ? and worker = $2", "tasks"),
        ("from Tasks", "tasks"),
        ('from main."TASKS" select key', "tasks"),
        ("table tasks", "tasks"),
        ("select 'attempts' as workers /* steals */ from tasks -- spills", "tasks"),
        ("with a as (from tasks) from a asof join attempts using (key)", "tasks attempts"),
        ("with tasks as (from tasks) from tasks", "tasks"),
        ("with tasks as (from steals) select (select count(*) from temp.tasks)", "steals tasks"),
        ("with tasks as (from attempts), a as (from tasks) from a", "attempts"),
        ("with recursive r as (select 1 as n union all select n + 1 from r) from r", ""),
        ("select (select count(*) from workers), exists (from imports) from range(3)",
         "workers imports"),
        ("from tasks union all by name from attempts", "tasks attempts"),
        ("from tasks t, lateral (from attempts where key = t.key)", "tasks attempts"),
        ("unpivot tasks on key into name k value v", "tasks"),
        ("describe select * from tasks", "tasks"),
        ("show tables", ""),
        ("", ""),
    ],
)  # fmt: skip
def test_tables_of_a_query(query: str, tables: str) -> None:
    """Parameters, shorthands and names that the query defines are understood."""
    assert query_tables(query) == set(tables.split())


@pytest.mark.parametrize(
    "query",
    [
        "explain analyze select * from tasks",
        "pivot tasks on state using count(*)",
        "select from where tasks",
        "from tasks select '\ud800'",
        "select 1 from tasks where 0 < " + " + ".join("1" for _ in range(250)),
        "select 1 from tasks where 0 < " + " + ".join("1" for _ in range(450)),
        "from tasks where key in (" * 200 + "''" + ")" * 200,
    ],
)
def test_every_word_counts_where_duckdb_returns_no_syntax_tree(query: str) -> None:
    """No table is missed."""
    assert "tasks" in query_tables(query)


def test_users_queries_have_their_tables(tmp_path) -> None:
    """By name in any form, or all of them where the query is about tables."""
    run = dask_strata.open_run(small_run(tmp_path / "run"))
    for query in (
        "select count(*) from Tasks",
        "select count(*) from query_table('tasks')",
        "select count(*) from query('from tasks')",
        "select count(*) from attempts, pragma_table_info('tasks') where name = 'key'",
        "select count(*) from attempts, pragma_show('tasks') where column_name = 'key'",
        f"select count(*) from tasks where {' + '.join('1' for _ in range(250))} > 0",
    ):
        ((n,),) = (row.values() for row in run.sql(query).to_arrow().to_pylist())
        assert n == 2, query
    assert len(run.sql("describe tasks")) == len(run.tasks.schema)
    assert len(run.sql("explain select * from workers")) == 1
    assert set(run.sql("show tables").to_arrow()["name"].to_pylist()) >= set(TABLES)
