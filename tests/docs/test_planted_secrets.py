"""Secrets in all places from which texts get into a run: only documented ones are recorded."""

from __future__ import annotations

import base64
import cProfile
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from dask_strata import Run
from dask_strata.importers.registry import add_files
from tests.conftest import assert_whole, rows, runs_in
from tests.docs.test_security import texts, written

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("long_timeouts")]

PAGE = Path(__file__).parents[2] / "docs" / "security.md"

#: Kinds of texts that are not searched, as on the page, each with the secrets of that kind that
#: the script below contains.
OPAQUE = {
    "keys": {"key", "prefix", "layer"},
    "names": {"function", "run"},
    "unnamed": {"prose", "positional"},
    "encoded": {"base64", "pieces"},
    "files": {"profile"},
}

SCRIPT = r'''
"""A script that knows secrets."""
from pathlib import Path

import dask
import dask.array as da
import dask.dataframe as dd
import pandas as pd
from dask import delayed
from distributed import Client, LocalCluster, get_worker

import dask_strata

# curl -u me:@text-curl@ https://host/ -H 'X-Auth-Token: @text-header@'
# passwd: @text-passwd@
# export FOO_TOKEN=@text-export@ && mysql -p@text-mysql@ db
# curl -fsSu me:@text-curl-options@ https://host/ && mysql -u me -p'@text-mysql-quoted@' db
# --conf fs.azure.account.key.x.dfs.core.windows.net=@text-azure@
# password=$e@text-dollar@ password=a&@text-ampersand@ Pwd=/@text-slash@;
# wget 'https://host/x?X-Amz-Signature=@text-presigned@&page=1'
# the password is @prose@, in base 64 @base64@
# "Server=db;Uid=me;Pwd=@text-connection@;Database=x"
password = "@text-assigned@"
headers = {"Set-Cookie": "sid=@text-cookie@; Path=/", "Authorization": "Basic @text-basic@"}
dsn = "postgresql+psycopg2://me:@text-url@@host/db"
auth = ("me", "@text-tuple@")
config = {"db": {"api_key": "@text-json@"}}
pieces = "pass" + "word=" + "@pieces@"
key = """-----BEGIN OPENSSH PRIVATE KEY-----
@text-pem@
-----END OPENSSH PRIVATE KEY-----"""
default = dict(DB="x").get("DB_PASSWORD", "@text-default@")
long_password = (
    "@text-long@"
    "@text-longer@"
)
settings = """
token: |
  @text-block@
"""
aws = "AKIA@TEXTAWS@"
jwt = "eyJhbGciOiJIUzI1NiJ9.@text-jwt@.sIgNaTuRe"
github = "ghp_@text-github@0123456789"
slack = "https://hooks.slack.com/services/T0/B0/@text-slack@"
hugging = "hf_@TEXTHF@abcdefgh"


def fail(message):
    raise ValueError(message)


def login(host, user, password):
    raise OSError(f"cannot log in: {dict(host=host, user=user, password=password)!r}")


def in_the_source():
    return login("host", "me", password="@source-argument@")


def function_@function@(x):
    return x


def made(number, storage_options):
    return pd.DataFrame({"x": [number]})


def nothing(path):
    return len(path)


def opens(paths):
    for path in paths:
        try:
            open(path).close()
        except OSError:
            pass


def measured():
    dask_strata.count("rows of https://me:@counter-url@@host/x")
    with dask_strata.section("reads token=@section-token@"):
        pass
    worker = get_worker()
    worker.log_event("notes", {"nested": [{"client_secret": "@worker-event-key@"}]})
    worker.log_event("notes", "Proxy-Authorization: Basic @worker-event-text@")
    worker.state.tasks[worker.get_current_task()].metadata["session_key"] = "@metadata-key@"


def warn(number):
    import logging

    logging.getLogger("distributed.worker").warning("secret=@worker-log@")
    return number


if __name__ == "__main__":
    # Code that no form recognises: these secrets come from a file.
    hidden = dict(line.split() for line in Path("hidden.txt").read_text().splitlines())
    dask.config.set({
        "myapp.token": "@config-token@",
        "myapp.nested": {"list": [{"passwd": "@config-nested@"}]},
        "myapp.urls": ["https://me:@config-url@@host/"],
        "myapp.note": "PWD=@config-connection@;",
        "distributed.worker.preload-argv": ["--db-password", "@config-argv@"],
        "myapp.command": ["curl", "-u", "me:@config-user@"],
    })
    cluster = LocalCluster(
        n_workers=1, threads_per_worker=2, dashboard_address=":0",
        env={"WORKER_PASSWORD": "@worker-environment@", "LOADEDMODULES": "?token=@worker-modules@"},
    )
    with cluster, Client(cluster) as client:
        submit = client.submit
        submit(nothing, "x", key="token=@key@").result()
        submit(nothing, "y", key=("secret=@prefix@-x", 0)).result()
        submit(function_@function@, 1).result()
        for message in (
            "https://me:@exception-url@@host/x",
            "psql: Pwd=@exception-pwd@",
            "passwd: @exception-passwd@",
            "X-Auth-Token: @exception-header@",
            "Set-Cookie: sid=@exception-cookie@; HttpOnly",
            "curl -u me:@exception-user@ https://host/",
            "Command '['sshpass', '-p', '@exception-sshpass@']' returned 1",
            '{"token": "@exception-json@", "n": 1}',
            "<password>@exception-xml@</password>",
            "login?next=%2Fx%3Ftoken%3D@exception-encoded@%26a%3D1",
            "SharedAccessSignature=sv=2020&sig=@exception-sas@",
            "b'GET / HTTP/1.1\\r\\nAuthorization: Bearer @exception-bearer@\\r\\n'",
        ):
            submit(fail, message).exception()
        submit(login, "host", "me", hidden["exception-repr"]).exception()
        submit(login, host="host", user="me", password="@exception-kwargs@").exception()
        submit(in_the_source).exception()
        submit(
            opens,
            [
                "https://me:@open-url@@host/x.csv",
                "s3://key:@open-s3@@bucket/x.parquet",
                "/data/token=@open-partition@",
                "/data/x.csv?sig=@open-signature@",
                b"https://me:@open-bytes@@host/x.csv",
            ],
        ).result()
        submit(nothing, "s3://key:@claim-s3@@bucket/x.parquet").result()
        submit(nothing, "https://host/x.csv?token=@claim-token@").result()
        submit(nothing, "/data/password=@claim-path@/x.csv").result()
        submit(nothing, "simplecache::https://me:@claim-chain@@host/x.csv").result()
        with dask.annotate(
            token="@annotation-key@",
            note="password=@annotation-text@",
            login={"hosts": [{"pwd": 1, "db_password": "@annotation-nested@"}]},
            url=["https://me:@annotation-url@@host/"],
        ):
            submit(nothing, "z").result()
            total = da.ones(4, chunks=2, name="secret=@layer@").sum()
        total.compute(optimize_graph=False)
        with dask.annotate(header={"Authorization": "Bearer @layer-annotation@"}):
            many = [delayed(nothing)(f"w{i}") for i in range(2)]
        dask.compute(*many)
        submit(measured).result()
        submit(warn, 1).result()
        client.log_event("notes", {"message": "password = @event-text@"})
        client.log_event("notes", {"jwt": "@event-key@", "n": 4096})
        client.log_event("notes", ["--password", "@event-argument@"])
        client.log_event("notes", [["password", "@event-pair@"], ["n", 1]])
        client.log_event("notes", {"text": hidden["event-hidden"]})
        client.log_event("https://me:@event-topic@@host/", {"n": 1})
        (worker,) = client.nthreads()
        client.log_event(worker, {
            "action": "closing-worker", "reason": "lost https://me:@event-reason@@host/",
        })
        frame = dd.from_map(made, [1, 2], storage_options={"password": "@expression-options@"})
        frame["x"].sum().compute()
        print("done", password != "@line-argument@")
'''

ARGUMENTS = [
    "--password", "@argument-password@", "--token=@argument-token@", "-u", "me:@argument-user@",
    "https://me:@argument-url@@host/", "-H", "X-Auth-Token: @argument-header@", "@positional@",
    "DB_PASSWORD=@argument-assigned@", "--user=me:@argument-equals@",
]  # fmt: skip

ENVIRONMENT = {
    "DB_PASSWORD": "@environment-password@",
    "AWS_SECRET_ACCESS_KEY": "@environment-aws@",
    "DASK_MYAPP__SECRET": "@environment-config@",
    "DASK_MYAPP__SERVER": "https://me:@environment-url@@host/",
    "DASK_MYAPP__CONNECTION": "Uid=me;Pwd=@environment-connection@",
    "LOADEDMODULES": "x?sig=@environment-modules@",
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NAME": "password=@job-name@",
    "SLURM_SUBMIT_DIR": "/data/token=@job-folder@",
}

BATCH_SCRIPT = """#!/bin/sh
#SBATCH --comment="passwd: @batch-comment@"
export API_KEY=@batch-export@
mysql -u root -p@batch-mysql@ < tables.sql
sshpass -p '@batch-sshpass@' ssh host
setenv HF_TOKEN @batch-setenv@
"""

CONFIG_FILE = """
myfile:
  passwd: "@file-passwd@"
  server: {user: me, private-key: "@file-key@"}
  headers: ["Cookie: sid=@file-cookie@"]
"""

HIDDEN = """exception-repr @exception-repr@
event-hidden Pwd=@event-hidden@;
"""


class Secrets:
    """Makes a secret for each `@name@` in a text."""

    def __init__(self) -> None:
        self.by_name: dict[str, str] = {}

    def fill(self, text: str) -> str:
        return re.sub(r"@([A-Za-z][\w-]*)@", lambda match: self._of(match[1]), text)

    def _of(self, name: str) -> str:
        made = f"S{len(self.by_name):03d}K9Q4T8W2Z6B1"
        if name == "base64":
            made = base64.b64encode(f"password {made}".encode()).decode()
        return self.by_name.setdefault(name, made)


def in_files(run: Run) -> str:
    """Return all texts in the files of a run's folder, and the files' names."""
    found = [str(path.relative_to(run.path.parent)) for path in run.path.rglob("*")]
    for path in (path for path in run.path.rglob("*") if path.is_file()):
        if path.suffix == ".parquet":
            table = pq.read_table(path)
            found += texts(table.to_pylist())
            found += texts(table.schema.metadata or {})
        elif "segments" not in path.parts:
            found.append(path.read_bytes().decode("utf-8", "replace"))
    if list((run.path / "segments").glob("*")):
        found += written(run)
    return "\n".join(found)


def documented() -> set[str]:
    """Return the kinds of texts that the page calls unsearched."""
    section = PAGE.read_text(encoding="utf-8").partition("## Not searched for secrets")[2]
    return set(re.findall(r"^\| `(\w+)` \|", section.partition("\n## ")[0], re.MULTILINE))


def test_only_documented_secrets_are_recorded(strata: Callable[..., Any], tmp_path: Path) -> None:
    """Of more than 100 secrets, the run contains those of documented kinds, before and after
    compaction, and no other."""
    secrets = Secrets()
    path = tmp_path / "script.py"
    path.write_text(secrets.fill(SCRIPT.lstrip()), encoding="utf-8")
    (tmp_path / "hidden.txt").write_text(secrets.fill(HIDDEN))
    batch = tmp_path / "batch.sh"
    batch.write_text(secrets.fill(BATCH_SCRIPT))
    config = tmp_path / "config"
    config.mkdir()
    (config / "myfile.yaml").write_text(secrets.fill(CONFIG_FILE))
    remote = secrets.fill("https://me:@git-remote@@host/repository.git")
    for command in (
        ("init", "-q"),
        ("add", path.name),
        ("-c", "user.name=x", "-c", "user.email=x@y", "commit", "-q", "-m", "x"),
        ("remote", "add", "origin", remote),
    ):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True, capture_output=True)
    environment = {name: secrets.fill(value) for name, value in ENVIRONMENT.items()}
    environment |= {"DASK_STRATA_BATCH_SCRIPT": str(batch), "DASK_CONFIG": str(config)}
    done = strata(
        "record", "--no-compact", "--name", secrets.fill("password=@run@"), path,
        *map(secrets.fill, ARGUMENTS), env={**os.environ, **environment}, check=True,
    )  # fmt: skip
    assert "done True" in done.stdout, done.stderr
    (run,) = runs_in(tmp_path / "runs")
    assert_whole(run)
    assert_recorded(run)
    add_profile(run, tmp_path, secrets.fill("token=@profile@.py"))
    assert len(secrets.by_name) >= 100
    opaque = set().union(*OPAQUE.values())
    assert opaque <= set(secrets.by_name)
    for compacted in (False, True):
        if compacted:
            strata("compact", run.path, check=True)
            assert list(run.path.rglob("*.parquet"))
        found = in_files(run)
        left = {name for name, secret in secrets.by_name.items() if secret in found}
        assert left == opaque


def add_profile(run: Run, folder: Path, file: str) -> None:
    """Add a profile of code in a file to a run."""
    profile = cProfile.Profile()
    profile.runctx(compile("sorted([2, 1])", file, "exec"), {}, {})
    profile.dump_stats(folder / "later.pstat")
    assert add_files(run.path, [folder / "later.pstat"]).rows


def assert_recorded(run: Run) -> None:
    """Assert that the texts around the secrets are in the run, so that their absence is no gap."""
    claimed = {row["uri"] for row in rows(run, "select uri from claimed_inputs")}
    assert {"s3://***@bucket/x.parquet", "https://host/x.csv?token=(redacted)"} <= claimed
    opened = [row["uri"] for row in rows(run, "select uri from file_opens")]
    assert sum("***@" in uri for uri in opened) == 2
    annotated = rows(run, "select annotations from graph_tasks where annotations like '%note%'")
    assert all('"token": "(redacted)"' in row["annotations"] for row in annotated)
    assert annotated
    layers = rows(run, "select annotations from graph_layers where annotations is not null")
    assert any("(redacted)" in row["annotations"] for row in layers)
    failures = "select exception from scheduler_transitions where exception is not null"
    assert len(rows(run, failures)) == 15
    settings = {row["name"]: row["value"] for row in rows(run, "select name, value from config")}
    assert settings["myapp.command"] == '["curl", "-u", "me:(redacted)"]'
    facts = run.script
    assert facts["git_remote"] == "https://***@host/repository.git"
    assert rows(run, "select value from job where name = 'job.script'")
    assert rows(run, "select * from custom_metrics where name like '%***@host%'")
    expressions = "select expression from client_graphs where expression like '%(redacted)%'"
    assert rows(run, expressions)


def test_the_page_names_all_kinds() -> None:
    """The kinds of texts that are not searched are those of the secrets that are recorded."""
    assert documented() == set(OPAQUE)
