"""The record of clients: connections, submissions with the user's source lines, the script."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import assert_whole, rows, runs_in
from tests.recorder.roles import workload
from tests.recorder.roles.workload import RecordedWork, line_of, nanoseconds


@pytest.mark.long
def test_connections(recorded: RecordedWork) -> None:
    """A client is recorded as connected at the start, or with the times of both its events."""
    found = rows(recorded.run, "select client, action from clients order by time, seq")
    assert found == [
        {"client": recorded.client, "action": "connected"},
        {"client": recorded.facts["other"], "action": "connect"},
        {"client": recorded.facts["other"], "action": "disconnect"},
    ]


@pytest.mark.parametrize(
    ("mark", "n_tasks", "n_keys", "first_key"),
    [
        ("submit", 1, 1, "cell-submit"),
        ("map", 5, 5, "cell-map-%"),
        ("compute", 3, 3, "cell-delayed-%"),
        ("array", None, 1, "%"),
        ("persist", None, 3, "%"),
        ("get", 3, 1, "diamond-c"),
        ("frame", None, 1, "%"),
    ],
)
def test_submissions(
    recorded: RecordedWork, mark: str, n_tasks: int | None, n_keys: int, first_key: str
) -> None:
    """Each submission has the user's line, file and function, its time and number of tasks."""
    if mark == "frame" and recorded.facts["frame"] is None:
        pytest.skip("pandas is not installed here")
    number, text = line_of(mark)
    [found] = rows(
        recorded.run,
        f"""
        select c.file, c.code, c.function, c.n_keys as asked, s.n_keys, s.n_tasks, s.client, g.key,
               (select count(*) from graph_tasks t where t.submission = s.submission) as n,
               s.time as scheduler_time, c.time as client_time
        from client_submissions c
        join graph_tasks g on g.key = c.first_key and g.key_type = c.first_key_type
        join submissions s using (submission)
        where c.line = {number} and g.requested
        """,
    )
    assert found["file"] == workload.__file__
    assert found["code"] == text
    assert found["function"] == "submit_everything"
    assert found["asked"] == found["n_keys"] == n_keys
    assert found["n_tasks"] == found["n"]
    assert found["client"] == recorded.client
    if n_tasks is not None:
        assert found["n_tasks"] == n_tasks
    else:
        assert found["n_tasks"] >= n_keys
    assert abs(nanoseconds(found["scheduler_time"]) - nanoseconds(found["client_time"])) < 5e9
    pattern = first_key.replace("%", "")
    assert pattern in found["key"]


def test_submission_has_dasks_own_code(recorded: RecordedWork) -> None:
    """If Dask itself collects source lines, the submission contains them, too."""
    number, text = line_of("array")
    found = rows(recorded.run, "select code from submissions where code is not null")
    frames = [frame for row in found for frame in json.loads(row["code"])]
    own = [f for f in frames if f["file"] == workload.__file__]
    assert any(text in f["code"] for f in own)
    assert any(f["line"] == number for f in own)


def test_script_and_git(
    tmp_path: Path, strata: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """A recorded script has text, hash, arguments, and the commit and state of its repository."""
    repository = tmp_path / "repository"
    repository.mkdir()
    script = repository / "work.py"
    script.write_text(
        "import sys\n"
        "from distributed import Client\n"
        "if __name__ == '__main__':\n"
        "    with Client(n_workers=1, threads_per_worker=1, dashboard_address=':0') as client:\n"
        "        print(client.submit(len, sys.argv[1]).result())\n"
    )

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-c", "user.name=t", "-c", "user.email=t@t", *arguments],
            cwd=repository,
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip()

    git("init", "-q", "-b", "trunk")
    git("add", "work.py")
    git("commit", "-q", "-m", "first")
    for runs, dirty in (("clean", "false"), ("dirty", "true")):
        if dirty == "true":
            script.write_text(script.read_text() + "# changed\n")
        done = strata("record", "-q", "-o", tmp_path / runs, script, "four", check=True)
        assert done.stdout == "4\n"
        [run] = runs_in(tmp_path / runs)
        assert_whole(run)
        facts = run.script
        assert facts["text"] == script.read_text()
        assert facts["sha256"] == hashlib.sha256(script.read_bytes()).hexdigest()
        assert facts["path"] == str(script)
        assert facts["kind"] == "script"
        assert json.loads(facts["argv"]) == [str(script), "four"]
        assert facts["cwd"] == str(tmp_path)
        assert facts["git_commit"] == git("rev-parse", "HEAD")
        assert facts["git_dirty"] == dirty
        assert facts["git_branch"] == "trunk"
        [sent] = rows(run, "select line, code from client_submissions")
        assert sent == {"line": 5, "code": "print(client.submit(len, sys.argv[1]).result())"}
        actions = rows(run, "select action from clients order by time, seq")
        assert actions[0]["action"] == "connect"
