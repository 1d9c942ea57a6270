"""Tables and SQL of the history server, by GET: rows, links, downloads, access and limits."""

from __future__ import annotations

import csv
import html
import io
import json
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from urllib.parse import urlencode

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dask_strata import open_run
from dask_strata.errors import QueryError
from dask_strata.server import sql_child
from dask_strata.store.manifest import Manifest
from tests.server.test_serve import Server
from tests.support.synthetic import T0, Process, life

#: Run of 231 tasks with hostile keys and two prefixes.
RUN = "2026-01-01-run"
N = 231
OTHERS = ("2026-01-02-b", "2026-01-03-c")
ODD = 'it\'s <b>"odd"</b>'
WORKER = "tcp://w:1"


def make(folder: Path, n: int = N) -> Path:
    """Make a run, whose id is the name of its folder."""
    Manifest(folder.name, "synthetic", T0, "0").write(folder)
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1")
    rows = []
    for i in range(n):
        key = f"{('inc', 'add')[i % 2]}-{i:03}" if i else ODD
        rows += life(key, 1 + i / 100, 2 + i / 100, WORKER)
    scheduler.write("scheduler_transitions", sorted(rows, key=lambda r: r["time"]))
    scheduler.end()
    Process(folder, "worker-1", address=WORKER, name="w", nthreads=2).end()
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of the run."""
    runs = tmp_path_factory.mktemp("tables") / "runs"
    make(runs / RUN)
    for name in OTHERS:
        make(runs / name, 2)
    command = [sys.executable, "-m", "dask_strata", "serve", str(runs), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    found = re.search(r"(http://\S+?:\d+)/\?token=(\S+)", process.stdout.readline())
    assert found
    started = Server(found[1], process, found[2])
    started.folder = runs / RUN  # type: ignore[attr-defined]
    yield started
    process.send_signal(signal.SIGINT)
    process.wait(30)


def cells(page: str) -> list[list[str]]:
    """Return the texts of the rows of a page."""
    body = page.partition('<table id="rows">')[2].partition("<tbody>")[2]
    rows = re.findall(r"<tr>(.*?)</tr>", body, re.DOTALL)
    return [
        [html.unescape(re.sub("<[^>]*>", "", c)) for c in re.findall(r"<td.*?</td>", row)]
        for row in rows
    ]


def links(page: str) -> set[str]:
    """Return the addresses that a page leads to."""
    return {html.unescape(each) for each in re.findall(r'href="([^"]*)"', page)}


def table(server: Server, arguments: str = "", name: str = "tasks") -> str:
    """Return a page of a table."""
    page = server.get(f"/runs/{RUN}/tables/{name}?{arguments}")
    assert page.status == 200, page.text
    return page.text


def sql(server: Server, query: str, suffix: str = "", **headers: str):
    """Send a query by GET."""
    return server.get(f"/runs/{RUN}/sql{suffix}?{urlencode({'q': query})}", **headers)


def test_each_row_is_on_one_page(server: Server) -> None:
    """The pages together have all rows once, and lead to each other."""
    keys: list[str] = []
    address, n_pages = "", 0
    while True:
        page = table(server, address)
        keys += [row[0] for row in cells(page)]
        n_pages += 1
        following = re.findall(r'rel="next" href="\?([^"]*)"', page)
        if not following:
            break
        address = html.unescape(following[0])
    expected = open_run(server.folder).rows("select key from tasks")  # type: ignore[attr-defined]
    assert n_pages == 3
    assert sorted(keys) == sorted(row["key"] for row in expected)
    assert f"Rows 201 to {N} of {N}" in page


@pytest.mark.parametrize(
    ("arguments", "condition"),
    [
        ({"f": "prefix:eq:add"}, "prefix = 'add'"),
        ({"f": "prefix:ne:add"}, "prefix <> 'add' or prefix is null"),
        ({"f": "compute_seconds:gt:0.5", "q": "ADD-10"}, "contains(key, 'add-10')"),
        ({"column": "key", "op": "has", "value": "Inc-01"}, "contains(key, 'inc-01')"),
        ({"f": "exception:null:"}, "true"),
        ({"f": "exception:known:"}, "false"),
        ({"q": ODD}, "contains(key, 'odd')"),
        ({"f": f"key:eq:{ODD}"}, "contains(key, 'odd')"),
        ({"f": "n_attempts:lt:1"}, "false"),
        ({"f": "finished_before:ne:False"}, "finished_before"),
        ({"f": "finished_before:eq:false"}, "not finished_before"),
        ({"q": "'; drop table tasks; --"}, "false"),
    ],
)
def test_filters_select_what_their_condition_does(
    server: Server, arguments: dict[str, str], condition: str
) -> None:
    """Numbers, texts and odd characters; a filter of the form counts as one of the address."""
    run = open_run(server.folder)  # type: ignore[attr-defined]
    (expected,) = run.rows(f"select count(*) as n from tasks where {condition}")
    page = table(server, urlencode(arguments))
    n = expected["n"]
    assert f"of {n}</p>" in page if n else "No row" in page
    assert len(cells(page)) == min(n, 100)
    assert "<b>" not in page


def test_a_value_is_found_by_its_text_on_the_page(server: Server) -> None:
    """Also times and booleans, which have other texts in SQL."""
    page = table(server, "sort=key")
    columns = [html.unescape(each) for each in re.findall(r'">([a-z_]+)</a></th>', page)]
    first = dict(zip(columns, cells(page)[0], strict=True))
    known = {column: text for column, text in first.items() if text not in ("–", "…")}
    assert {"submitted", "finished_before", "compute_seconds", "state"} <= set(known)
    for column, text in known.items():
        page = table(server, urlencode({"f": f"{column}:eq:{text}"}))
        assert first["key"] in [row[0] for row in cells(page)], column


def test_a_page_after_the_last_one_leads_back(server: Server) -> None:
    """It has no rows; its link leads to the last page that has some."""
    page = table(server, "page=9")
    assert f"No row on page 9: {N} rows are on 3 pages" in page
    assert "?page=3" in links(page)


def test_rows_are_sorted_by_a_column(server: Server) -> None:
    """In both directions, by links in the head."""
    page = table(server, "sort=-key&f=prefix:eq:add")
    keys = [row[0] for row in cells(page)]
    assert keys == sorted(keys, reverse=True)
    assert 'aria-sort="descending"' in page
    page = table(server, "sort=key&f=prefix:eq:add")
    assert [row[0] for row in cells(page)] == sorted(row[0] for row in cells(page))


def test_facets_count_and_select(server: Server) -> None:
    """The most frequent values, with their numbers, lead to their rows."""
    page = table(server)
    found = dict(re.findall(r'href="\?([^"]*)">add</a> <span class="dim">(\d+)</span>', page))
    ((address, n),) = found.items()
    assert int(n) == N // 2
    assert f"of {N // 2}</p>" in table(server, html.unescape(address))


def test_cells_lead_to_stories_workers_and_prefixes(server: Server) -> None:
    """Also in the answers to queries; each link has an answer."""
    base = f"/runs/{RUN}"
    expected = {
        f"{base}/story?" + urlencode({"key": ODD, "type": "str"}),
        f"{base}/tables/workers?" + urlencode({"f": f"worker:eq:{WORKER}"}),
        f"{base}/tables/tasks?" + urlencode({"f": "prefix:eq:inc"}),
    }
    assert expected <= links(table(server, urlencode({"q": "odd"})) + table(server, "q=inc"))
    page = sql(server, "select key, key_type, worker, prefix from tasks")
    assert expected <= links(page.text)
    for address in expected:
        page = server.get(address)
        assert page.status == 200
        assert "No row" not in page.text


def test_wrong_filters_have_their_reason_on_the_page(server: Server) -> None:
    """An unknown column, a value of another type, an unknown table."""
    for arguments in ("f=nope:eq:1", "f=submitted:gt:yesterday"):
        page = server.get(f"/runs/{RUN}/tables/tasks?{arguments}")
        assert page.status == 400
        assert 'role="alert"' in page.text
    assert server.get(f"/runs/{RUN}/tables/nope").status == 404
    assert server.get(f"/runs/{RUN}/tables/tasks?page=99999999&sort=nope&f=x").status == 200


def test_a_query_by_get_has_a_permanent_link_and_downloads(server: Server) -> None:
    """The link leads to the same answer; the files have all rows."""
    query = f"select key, prefix from tasks where key <> '{ODD.replace(chr(39), chr(39) * 2)}'"
    page = sql(server, query)
    assert page.status == 200
    assert f"{N - 1:,} rows" in page.text
    permanent = f"sql?{urlencode({'q': query})}"
    assert permanent in links(page.text)
    assert cells(server.get(f"/runs/{RUN}/{permanent}").text) == cells(page.text)
    rows = cells(page.text)
    answer = sql(server, query, ".csv")
    assert answer.headers["Content-Disposition"] == 'attachment; filename="result.csv"'
    assert [*csv.reader(io.StringIO(answer.text))] == [["key", "prefix"], *rows]
    found = json.loads(sql(server, query, ".json").text)
    assert [[row["key"], row["prefix"]] for row in found] == rows
    found = pq.read_table(io.BytesIO(sql(server, query, ".parquet").body)).to_pylist()
    assert [[row["key"], row["prefix"]] for row in found] == rows
    assert re.search(r"\b1 row\b", sql(server, "select 1").text)
    many = sql(server, "select * from range(5000)", ".csv")
    assert len(many.text.splitlines()) == 5001, "more rows than the page shows"


@pytest.mark.parametrize("suffix", ["", ".csv", ".json", ".parquet"])
def test_queries_by_get_have_the_limits_of_others(server: Server, suffix: str) -> None:
    """They only read; too long ones are refused."""
    for query in ("drop table tasks", "select * from read_csv('/etc/passwd')", "select nope"):
        page = sql(server, query, suffix)
        assert page.status == 400
        assert "SQL" in page.text
        assert "root:" not in page.text
    assert sql(server, "select 1" + " " * 21_000, suffix).status == 414


def test_a_result_that_is_too_large_for_a_file_is_refused(server: Server) -> None:
    """With the limit."""
    page = sql(server, "select * from range(1000001)", ".csv")
    assert (page.status, "1,000,000 rows" in page.text) == (400, True)


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_a_file_that_grows_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """While it is written; the limit of the process is as before."""
    monkeypatch.setattr(sql_child, "FILE_BYTES", 5_000)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    random = Random(0)
    table = pa.table({"n": [random.random() for _ in range(20_000)]})
    with pytest.raises(QueryError, match="select fewer"):
        sql_child._written(table, form, str(tmp_path / "result"))
    assert resource.getrlimit(resource.RLIMIT_FSIZE) == before
    assert sql_child._written(table[:10], form, str(tmp_path / "few"))["n"] == 10


def test_queries_need_the_token(server: Server) -> None:
    """As any page."""
    for path in ("sql?q=select+1", "sql.csv?q=select+1", "tables/tasks", "tables"):
        assert server.get(f"/runs/{RUN}/{path}", Authorization="token wrong").status == 401


def test_links_of_other_sites_run_no_query(server: Server) -> None:
    """A page of another site can lead to a query, which the user reads and runs."""
    elsewhere = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    page = sql(server, "select 41 + 1 as n", **elsewhere)
    assert page.status == 200
    assert "select 41 + 1 as n" in page.text
    assert cells(page.text) == []
    assert "read the query" in page.text
    page = sql(server, "select 41 + 1 as n", ".csv", **elsewhere)
    assert "attachment" not in (page.headers["Content-Disposition"] or "")
    assert cells(page.text) == []
    for mode in ("cors", "no-cors", "same-origin"):
        headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": mode}
        assert sql(server, "select 1", **headers).status == 403
    assert cells(sql(server, "select 42", **{"Sec-Fetch-Site": "same-origin"}).text) == [["42"]]


def test_the_schema_is_beside_the_query(server: Server) -> None:
    """Each table with its columns."""
    page = server.get(f"/runs/{RUN}/sql").text
    assert 'data-table="scheduler_transitions"' in page
    assert "<dt>compute_seconds <small>seconds</small></dt>" in page


def test_hints_can_be_followed_in_a_browser(server: Server) -> None:
    """No error page names a command or an option of the command line."""
    for path in (
        "/runs/nope",
        f"/runs/{RUN}/story?key=nope",
        f"/runs/{RUN}/story",
        f"/runs/{RUN}/export?to=csv",
        "/compare",
        f"/compare?run={RUN}&run=nope",
        f"/compare?run={RUN}&run={RUN}&by=x",
        "/trend?name=nope",
        f"/runs/{RUN}/sql?q=select+nope",
        f"/runs/{RUN}/sql.csv",
    ):
        page = server.get(path)
        assert page.status in (400, 404, 422), path
        main = page.text.partition("<main>")[2].partition("<aside")[0]
        assert "dask-strata" not in main, path
        assert not re.search(r"\s--\w", main), path


def test_any_number_of_runs_is_compared(server: Server) -> None:
    """By an address, or by POST, where an address would be too long; not for other sites."""
    names = [RUN, *OTHERS]
    form = urlencode([("run", name) for name in names])
    joined = urlencode({"runs": "/".join(names)}).encode()
    by_get, by_post = server.get(f"/compare?{form}"), server.get("/compare", joined)
    for page in (by_get, by_post):
        assert page.status == 200
        assert {f"/runs/{name}" for name in names} <= links(page.text)
    assert 'method="post"' in by_post.text, "further comparisons of these runs are sent alike"
    many = urlencode({"runs": "/".join(f"run-{i}" for i in range(3_000))}).encode()
    assert server.get("/compare", many).status == 404, "not too long"
    page = server.get("/compare", joined, Origin="http://elsewhere.example")
    assert page.status == 403


def test_the_trend_leads_to_each_run(server: Server) -> None:
    """One point a run."""
    page = server.get("/trend?name=synthetic")
    assert {f"/runs/{name}" for name in (RUN, *OTHERS)} <= links(page.text)
    assert page.text.count("<circle") == 3


def test_the_axis_of_a_trend_has_the_values_of_its_lines(server: Server) -> None:
    """Half of an odd number is no whole number."""
    page = server.get("/trend?name=synthetic&value=tasks").text
    assert re.findall(r'text-anchor="end">([\d,.]+)<', page) == ["0", f"{N / 2:g}", f"{N}"]
