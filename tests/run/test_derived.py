"""Definitions of derived tables: their declared dependencies are those of their queries."""

from __future__ import annotations

import duckdb
import pytest

from dask_strata.run import Run
from dask_strata.run.derived import definitions, in_order, parse_definition, with_dependencies
from dask_strata.run.key_ids import KEYS_TABLE, KeyIds
from dask_strata.run.key_prefix import KEY_PREFIX_MACROS
from dask_strata.run.own_tasks import OTHERS_TABLE, TRANSITIONS
from dask_strata.run.query_tables import query_tables
from dask_strata.schema import DERIVED, RECORDED
from dask_strata.store.arrow import arrow_schema
from tests.support.synthetic import small_run


@pytest.fixture(scope="module")
def empty_tables() -> duckdb.DuckDBPyConnection:
    """Return a connection with every recorded and derived table, without rows."""
    connection = duckdb.connect()
    for macro in KEY_PREFIX_MACROS:
        connection.execute(macro)
    keys = KeyIds()
    for name, table in RECORDED.items():
        rows = keys.add_to(arrow_schema(table).empty_table())
        connection.register("rows", rows)
        connection.execute(f'create table "{name}" as from rows')
    connection.register("rows", keys.keys())
    connection.execute(f"create table {KEYS_TABLE} as from rows")
    connection.execute(f"create table {OTHERS_TABLE} as from {TRANSITIONS}")
    for name, definition in definitions().items():
        connection.execute(f'create table "{name}" as {definition.sql}')
    return connection


@pytest.mark.parametrize("name", list(definitions()))
def test_declared_dependencies_are_the_tables_of_the_query(
    name: str, empty_tables: duckdb.DuckDBPyConnection
) -> None:
    """Neither more nor fewer, by DuckDB's parser and, where it can bind the query, its binder."""
    definition = definitions()[name]
    assert definition.depends_on == query_tables(definition.sql)
    try:
        bound = empty_tables.get_table_names(definition.sql)
    except duckdb.BinderException:  # DuckDB binds no common table expressions with columns here
        return
    assert definition.depends_on == bound


def test_the_binder_checks_most_queries(empty_tables: duckdb.DuckDBPyConnection) -> None:
    """The exception of the previous test is rare."""
    failed = 0
    for definition in definitions().values():
        try:
            empty_tables.get_table_names(definition.sql)
        except duckdb.BinderException:
            failed += 1
    assert failed < len(definitions()) // 4


def test_each_derived_table_of_the_schema_has_a_definition() -> None:
    """Further definitions are internal: their names begin with an underscore."""
    names = set(definitions())
    assert DERIVED.keys() <= names
    assert all(name.startswith("_") for name in names - DERIVED.keys())


@pytest.mark.parametrize("name", list(definitions()))
def test_each_definition_begins_with_a_sentence(name: str) -> None:
    """The head states in words which rows the table has."""
    first = definitions()[name].sql.splitlines()[0]
    assert first.startswith("-- ")
    assert first[3].isupper()
    assert "depends on:" not in first


def test_definitions_are_ordered_by_their_dependencies() -> None:
    """Each definition comes after those that its query reads, whatever the names."""
    a = parse_definition("a", "-- depends on: b, recorded\nfrom b, recorded")
    b = parse_definition("b", "-- depends on: c\nfrom c")
    c = parse_definition("c", "-- depends on: recorded\nfrom recorded")
    assert list(in_order([a, b, c], {"recorded"})) == ["c", "b", "a"]


def test_wrong_dependencies_are_reported() -> None:
    """Cycles, unknown tables and missing declarations are errors with the names in question."""
    a = parse_definition("a", "-- depends on: b\nfrom b")
    b = parse_definition("b", "-- depends on: a\nfrom a")
    with pytest.raises(ValueError, match=r"depend on each other: (a → b → a|b → a → b)"):
        in_order([a, b], ())
    with pytest.raises(ValueError, match=r"a\.sql depends on unknown tables: b"):
        in_order([a], {"recorded"})
    for text in ("from recorded", "-- depends on: a\n-- depends on: b\nfrom a, b"):
        with pytest.raises(ValueError, match=r"a\.sql needs one line"):
            parse_definition("a", text)


def test_dependencies_may_take_several_lines() -> None:
    """A comma continues the list; a comment without one does not belong to it."""
    text = "-- Rows.\n-- depends on: a, b,\n-- c\n-- d is a comment\nfrom a, b, c"
    assert parse_definition("t", text).depends_on == {"a", "b", "c"}


def test_dependencies_are_transitive() -> None:
    """Tables of tables of a query count; tables that no query reads do not."""
    needed = with_dependencies({"phases"})
    assert {"attempts", "_scheduler_attempts", "_transitions", "scheduler_transitions"} <= needed
    assert not needed & {"tasks", "chunks", "transfers"}


def materialised(run: Run) -> set[str]:
    """Return the names of the tables in a run's workspace."""
    connection = run._workspace_for("select 1").connection
    rows = connection.execute("select table_name from duckdb_tables()").fetchall()
    views = connection.execute("select view_name from duckdb_views() where not internal").fetchall()
    return {name for (name,) in rows + views}


def test_only_tables_that_a_query_reads_are_materialised(tmp_path) -> None:
    """Names in comments, texts, columns and `with` materialise nothing."""
    run = Run(small_run(tmp_path / "run"))
    query = """
        with transfers as (select 'tasks' as chunks) -- attempts, tasks
        select chunks, s.key as workers from steals s, transfers where s.key = ?
    """
    assert run.rows(query, "tasks") == []
    assert materialised(run) - {KEYS_TABLE} == {"steals"}
    run.rows("from attempts where key = $1", "a-1")
    assert {"attempts", "_scheduler_attempts"} <= materialised(run)
    assert not materialised(run) & {"tasks", "transfers", "chunks", "workers"}
