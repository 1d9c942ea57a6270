"""Redaction replaces secrets and nothing else."""

from __future__ import annotations

import re
import string
import time
from html import escape
from urllib.parse import quote

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_strata.recorder.pipeline.redact import (
    REDACTED,
    is_secret_name,
    redact_arguments,
    redact_json,
    redact_path,
    redact_text,
    redact_value,
)
from tests.support.secrets import ASSIGNMENTS, FOLDERS, FORMS, MARKERS, ORDINARY, TOKENS

SECRET_NAMES = [
    "password", "PGPASSWORD", "db.passwd", "secret", "client-secret", "AWS_SECRET_ACCESS_KEY",
    "token", "HF_TOKEN", "accessToken", "apikey", "api-key", "API_KEY", "apiKey", "credential",
    "credentials", "private-key", "access-key", "auth", "basic_auth", "oauth2", "cookie",
    "PBS_JOBCOOKIE", "session-key", "SLURM_JWT", "DB_PWD", "smtp.pass",
    "DASK_INTERNAL_INHERIT_CONFIG", "internal_inherit_config", "DBPASS", "MYSQLPWD",
    "fs.azure.account.key.x.net", "token.value",
]  # fmt: skip
PLAIN_NAMES = [
    "author", "authority", "authenticate-timeouts", "distributed.comm.timeouts", "tokenize",
    "tokenize.ensure-deterministic", "TOKENIZERS_PARALLELISM", "key", "distributed.comm.tls.key",
    "keys", "PWD", "OLDPWD", "pass", "bypass-limit", "passes", "secretary", "monkey", "", "-",
    "bypass", "compass", "temporary-directory", "distributed.worker.memory.target",
]  # fmt: skip


SECRET = "Q7xMARKER9z"


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_secret_name(name):
    """The name of a secret is recognised, in any case and spelling."""
    assert is_secret_name(name)
    assert is_secret_name(name.upper())


@pytest.mark.parametrize("name", PLAIN_NAMES)
def test_plain_name(name):
    """A name that only resembles that of a secret is not recognised."""
    assert not is_secret_name(name)


def test_no_default_setting_counts_as_secret():
    """None of Dask's own settings has the name of a secret."""
    import dask.config
    import distributed

    assert distributed.__version__

    def names(config, prefix=""):
        for name, value in config.items():
            yield prefix + name
            if isinstance(value, dict):
                yield from names(value, f"{prefix}{name}.")

    defaults = dask.config.merge(*dask.config.defaults)
    defaults.pop("gateway", None)  # dask-gateway's, whose arguments for authentication are secret
    found = list(names(defaults))
    assert len(found) > 100
    assert [name for name in found if is_secret_name(name)] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://user:pass@host/x", "https://***@host/x"),
        ("redis://:pa@ss@host:6379/0", "redis://***@host:6379/0"),
        ("redis://:pa/s#s@host:6379/0", "redis://***@host:6379/0"),
        ("git+https://ghost@host/x.git and b", "git+https://***@host/x.git and b"),
        ("http://a:b@c/?next=http://d:e@f/", "http://***@c/?next=http://***@f/"),
        ("https://h/?token=abc&page=2", f"https://h/?token={REDACTED}&page=2"),
        (
            "https://h/k?X-Amz-Date=1&X-Amz-Signature=af03&X-Amz-Credential=AB%2F1#top",
            f"https://h/k?X-Amz-Date=1&X-Amz-Signature={REDACTED}&X-Amz-Credential={REDACTED}#top",
        ),
        ("Authorization: Bearer abc.def", f"Authorization: {REDACTED}"),
        ("{'Authorization': 'Basic dTpw', 'a': 1}", f"{{'Authorization': '{REDACTED}', 'a': 1}}"),
        ("use Bearer abcdef0123456789 now", f"use Bearer {REDACTED} now"),
        ("AKIAIOSFODNN7EXAMPLE", REDACTED),
        ("x ghp_0123456789abcdefghij0123456789abcdef y", f"x {REDACTED} y"),
        ("hf_abcdefghijklmnopqrstuvwxyzABCDEFGH", REDACTED),
        ("'sk-proj-abcdefgh0123456789ABCDEFGH'", f"'{REDACTED}'"),
        ("(eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc_-1)", f"({REDACTED})"),
        ("export DB_PASSWORD=hunter2; run", f"export DB_PASSWORD={REDACTED}; run"),
        ("run --password hunter2 --n 3", f"run --password {REDACTED} --n 3"),
        ("run --api-key='hunter two' -v", f"run --api-key='{REDACTED}' -v"),
        ('api_key = "hunter2"', f'api_key = "{REDACTED}"'),
        (
            "a\n-----BEGIN RSA PRIVATE KEY-----\nDEK: A-B\nMII=\n-----END RSA PRIVATE KEY-----\nb",
            f"a\n{REDACTED}\nb",
        ),
    ],
)
def test_secret_in_text(text, expected):
    """A secret inside a text is replaced, and the rest of the text stays."""
    assert redact_text(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "tcp://10.0.0.1:8786",
        "tls://[fe80::1%eth0]:8786/a@b",
        "http://host:8787/status/x@2?page=1&keys=3",
        "s3://bucket/key/task-sk-image/x.zarr",
        "mail me@example.org about the bearer of this letter",
        "connect(url, token=token, auth=None)",
        "password = getpass()",
        "#SBATCH --nodes=2 --partition=debug # by the author",
        "sk-learn-contrib-is-a-rather-long-name",
        "tokens = tokenize(text)  # keys: 'a', \"b\"",
        "PASSWORD=$FROM_ELSEWHERE",
    ],
)
def test_no_secret_in_text(text):
    """A text that only resembles one with secrets is unchanged."""
    assert redact_text(text) == text


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_secrets(form):
    """A secret in each of the forms is replaced; repeating that changes nothing."""
    clean = redact_text(form.replace("{M}", SECRET))
    assert SECRET not in clean
    assert REDACTED in clean or "***@" in clean
    assert redact_text(clean) == clean


def odd_forms():
    """Yield forms with odd values, which are encoded as in URLs, encoded URLs and XML."""
    for form in FORMS:
        in_a_url = re.search(r"(?:://|%)\S*\{M\}", form)
        for marker in MARKERS:
            if (form in TOKENS and not marker.isdecimal()) or (form in FOLDERS and "/" in marker):
                continue
            value = escape(marker) if form.startswith("<") else marker
            value = quote(value, safe="") if in_a_url else value
            yield form, quote(value, safe="") if "%3" in form else value


@pytest.mark.parametrize(("form", "marker"), list(odd_forms()))
def test_forms_of_odd_secrets(form, marker):
    """A secret that resembles a number, a variable, a path or a list is replaced as a whole."""
    clean = redact_text(form.replace("{M}", marker))
    assert marker[-3:] not in clean
    assert REDACTED in clean or "***@" in clean
    assert redact_text(clean) == clean


@pytest.mark.parametrize("form", ASSIGNMENTS)
def test_a_secret_with_parentheses(form):
    """Parentheses within a value are replaced with it."""
    assert redact_text(form.replace("{M}", "abc(def)99")) == form.replace("{M}", REDACTED)


@pytest.mark.parametrize("word", ["pass", "value", "required", "hunter", "Secret", "ON", "a", "$x"])
@pytest.mark.parametrize(
    "form",
    [
        "DB_PASSWORD={}",
        "https://h/?token={}&a=b",
        "run --password {}",
        "run --password={}",
        '["--password", "{}"]',
        "SET X_TOKEN={};",
    ],
)
def test_a_word_is_a_value(form, word):
    """After an equals sign or an option, a word is a secret, too."""
    assert redact_text(form.format(word)) == form.format(REDACTED)


@pytest.mark.parametrize("value", ["none", "None", "null", "true", "False", "${X}", "$X_1", ""])
@pytest.mark.parametrize("form", ["DB_PASSWORD={}", "run --password={}", "run --token {}"])
def test_a_value_that_is_no_secret(form, value):
    """No value, a switch and a variable of a shell are unchanged."""
    assert redact_text(form.format(value)) == form.format(value)


@pytest.mark.parametrize("form", ["password: {}", "password = {}", "login(me, password={})"])
def test_a_word_that_may_be_no_value(form):
    """Where sentences and code have a word, only what is no usual word or code is replaced."""
    for word in ("None", "self.password", "password", "os.environ[x]"):
        assert redact_text(form.format(word)) == form.format(word)
    assert redact_text(form.format("hunter22")) == form.format(REDACTED)
    assert redact_text("password: required") == "password: required"


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("PWD=/home/me", "PWD=/home/me"),
        ("pwd: /home/me", "pwd: /home/me"),
        ("PWD=../me; ls", "PWD=../me; ls"),
        ("UID=me;PWD=/x;DATABASE=y", "UID=me;PWD=(redacted);DATABASE=y"),
        ("Pwd=/x", "Pwd=(redacted)"),
        ("PWD=1234", "PWD=(redacted)"),
        ("pass=12 pass=12345678", "pass=12 pass=(redacted)"),
    ],
)
def test_a_folder_or_a_password(text, clean):
    """`PWD` is a folder if a path follows, but not in a connection string."""
    assert redact_text(text) == clean


@pytest.mark.parametrize("form", FORMS)
def test_forms_within_a_log(form):
    """The text before and after a secret, on other lines, is unchanged."""
    before, after = "2026-01-01 INFO computing ('sum', 0)", "done in 3.2 s, 12 tasks"
    text = redact_text(f"{before}\n{form.replace('{M}', SECRET)}\n{after}")
    assert (text.splitlines()[0], text.splitlines()[-1]) == (before, after)
    assert SECRET not in text


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_texts(text):
    """Sentences, code, keys, addresses and counts are unchanged."""
    assert redact_text(text) == text


@given(st.text(alphabet=string.ascii_lowercase + string.digits + " \n.,_/", max_size=300))
def test_plain_text_is_unchanged(text):
    """A text without the characters around secrets is unchanged."""
    assert redact_text(text) == text


@given(
    st.text(string.ascii_letters, min_size=1, max_size=8),
    st.text(min_size=1, max_size=30),
    st.sampled_from(["https", "s3", "postgresql+psycopg", "tcp"]),
    st.text(" \n\"'(,;x", max_size=5),
)
def test_url_password_never_survives(user, password, scheme, around):
    """Any password in a URL is removed from the text."""
    encoded = f"<{quote(password, safe='')}>".replace("<", "q7").replace(">", "7q")
    text = redact_text(f"{around}{scheme}://{user}:{encoded}@host.example/path{around}")
    assert encoded not in text
    assert f"{scheme}://***@host.example/path" in text


MARKS = st.sampled_from(
    ["://", "@", ":", "=", "?", "&", "token", "--", "Bearer ", "Authorization", "eyJ", "a", " ",
     "'", '"', "(", "sk-", ".", "0", "pwd", "-u ", "%3D", "[", "{", "\\", "`", "cookie: ", ";", "<",
     ">", "key", "|", "&", "getenv(", "curl ", "-su ", "$", "mysql -p",
     "sig=", "==", "x1", "-----BEGIN PRIVATE KEY-----", "password", "\ud800", "\n"],
)  # fmt: skip


@given(st.one_of(st.text(), st.lists(MARKS, max_size=40).map("".join)))
def test_redacting_twice_is_redacting_once(text):
    """Redacting a redacted text does not change it."""
    once = redact_text(text)
    assert redact_text(once) == once


@pytest.mark.long
@pytest.mark.parametrize(
    "piece",
    ["a", "://", "://a:b", "eyJ", "-eyJa", "eyJa.", "-----BEGIN PRIVATE KEY-----", 'a="', "a='",
     "token=", "--a", "--token ", "Bearer ", "?a", "&token", "sk-", "a.", "authorization", " ", "@",
     "-", "authorization:digest ", "\\", "pass", "key", "token: ", "token='''", 'token=="', "pwd=(",
     "auth={", "basic ", "cookie: a=", "%3a%2f%2f", "%3A%2F%2Fa%40", "-u a:", "mysql ", "sig=",
     "?sig=%",
     "<token>", "('token', '", "'--token=", "--token='a' ", "set_password(", "login me password ",
     "token: a|", "setenv token ", "API key:", "token\t", "\u0130token=", "curl ", "curl -a",
     "curl -uaaaaaaaa", "curl \\\n:", "curl -ua ", "curl -uaaa:",
     "mysql \\\n", "mysql -p'", "token: |\n", "token: |\n ", "- ",
     "password = (\n'a'\n", "password = ('a' ", "pass=[\n", "token.a=", "token=a&", "token=a(b)",
     "token=(", "token=a(", "pwd=/;uid=",
     "authorization: a b='c',", "[['token', '", "getenv('token', '", "'--token', 'a' "],
)  # fmt: skip
def test_time_is_linear(piece):
    """400,000 characters of any repeated pattern take less than 2 s of CPU time."""
    text = piece * (400_000 // len(piece))
    before = time.thread_time()
    redact_text(text)
    assert time.thread_time() - before < 2


@pytest.mark.parametrize(
    ("arguments", "clean"),
    [
        (["x.py", "--password", "hunter2"], ["x.py", "--password", "(redacted)"]),
        (["x.py", "--api-key=abc", "-v"], ["x.py", "--api-key=(redacted)", "-v"]),
        (["x.py", "--password", "--verbose"], ["x.py", "--password", "--verbose"]),
        (["x.py", "s3://me:pw@host/a"], ["x.py", "s3://***@host/a"]),
        (["x.py", "--input", "data"], ["x.py", "--input", "data"]),
        (["mysql", "-u", "me", "-phunter2", "x"], ["mysql", "-u", "me", "-p(redacted)", "x"]),
        (["sshpass", "-p", "hunter2", "ssh"], ["sshpass", "-p", "(redacted)", "ssh"]),
        (["plink", "-pw", "hunter2", "host"], ["plink", "-pw", "(redacted)", "host"]),
        (["x.py", "-p8080", "-p", "data"], ["x.py", "-p8080", "-p", "data"]),
        (["x.py", "--password", "$ecret99"], ["x.py", "--password", "(redacted)"]),
        (["curl", "-su", "me:/a b", "h"], ["curl", "-su", "me:(redacted)", "h"]),
        (["curl", "-sume:hunter2", "h"], ["curl", "-sume:(redacted)", "h"]),
        (["curl", "-u", "me", "-p", "h:1"], ["curl", "-u", "me", "-p", "h:1"]),
        (["rsync", "-u", "host:/data", "copy"], ["rsync", "-u", "host:/data", "copy"]),
    ],
)
def test_secrets_on_a_command_line_are_left_out(arguments: list[str], clean: list[str]) -> None:
    """The value of a secret option is redacted, after a space or an equals sign."""
    assert redact_arguments(arguments) == clean


def test_a_user_with_a_password_on_a_command_line():
    """A password after `-u me:` is redacted, numbers of a user and a group are not."""
    clean = redact_arguments(["x.py", "-u", "me:hunter2", "--user", "me:my pass", "-u", "10:10"])
    assert clean == ["x.py", "-u", "me:(redacted)", "--user", "me:(redacted)", "-u", "10:10"]


def test_values_of_secret_names():
    """Mappings within mappings and lists are searched; the forms of other values are unchanged."""
    value = {
        "retries": 3,
        "token": 123456,
        "max_tokens": 4096,
        "auth": None,
        "nested": [{"password": {"old": "a", "new": ["b"]}}, ("https://me:pw@host", 1.5)],
        ("api", "key"): "c",
        "note": "password=hunter2",
        "pwd": "hunter2",
        "headers": [("Cookie", "a=b"), ("Host", "x")],
        "environment": [{"name": "DB_PASSWORD", "value": "x"}, {"name": "HOME", "value": "/x"}],
        "folder": {"pwd": "/home/me"},
        "connection": {"Pwd": "/x", "pass": ".y", "DBPASS": "z", "fs.azure.account.key.x": "K"},
        "pairs": [["password", "hunter2"], ["a", "b"]],
        "columns": ["password", "name"],
        "keys": [["token-0123456789abcdef0123456789abcdef", "sum-1"]],
        "command": ["run", "--password", "hunter2"],
    }
    assert redact_value(value) == {
        "retries": 3,
        "token": REDACTED,
        "max_tokens": 4096,
        "auth": None,
        "nested": [{"password": REDACTED}, ["https://***@host", 1.5]],
        "('api', 'key')": REDACTED,
        "note": f"password={REDACTED}",
        "pwd": REDACTED,
        "headers": [["Cookie", REDACTED], ["Host", "x"]],
        "environment": [
            {"name": "DB_PASSWORD", "value": REDACTED},
            {"name": "HOME", "value": "/x"},
        ],
        "folder": {"pwd": "/home/me"},
        "connection": dict.fromkeys(("Pwd", "pass", "DBPASS", "fs.azure.account.key.x"), REDACTED),
        "pairs": [["password", REDACTED], ["a", "b"]],
        "columns": ["password", "name"],
        "keys": [["token-0123456789abcdef0123456789abcdef", "sum-1"]],
        "command": ["run", "--password", REDACTED],
    }


def test_a_password_with_an_at_sign_in_an_encoded_url():
    """Up to the last at sign, as in a URL that is not encoded."""
    assert redact_text("u=https%3A%2F%2Fme%3Ap%40hunter2%40host%2Fx%40y") == (
        "u=https%3A%2F%2F***@host%2Fx%40y"
    )


def test_json_without_secrets_is_unchanged():
    """Values of an event of Dask are the same as in plain JSON."""
    event = {"action": "retry", "key": "x-1", "workers": ["tcp://127.0.0.1:1"], "n": 3}
    assert redact_json(event) == (
        '{"action": "retry", "key": "x-1", "workers": ["tcp://127.0.0.1:1"], "n": 3}'
    )


class Odd(dict):
    """A mapping whose items cannot be listed a second time."""

    listed = False

    def items(self):
        if self.listed:
            raise ValueError("no items")
        self.listed = True
        return super().items()


def test_json_of_odd_values():
    """Objects without a JSON form and mappings that raise are redacted as texts."""
    assert redact_json({"x": object, "password": object()}).endswith(f'"password": "{REDACTED}"}}')
    assert redact_json({1: "password=x", None: {"token": 0.5}}) == (
        f'{{"1": "password={REDACTED}", "null": {{"token": "{REDACTED}"}}}}'
    )
    assert "hunter2" not in redact_json(Odd(password="hunter2"))
    first = Odd(password="hunter2")
    first.listed = True
    text = redact_json([first, {"n": 1}])
    assert "hunter2" not in text
    assert text.endswith(', {"n": 1}]')
    assert redact_value({"name": np.arange(2), "token": "hunter2"}) == {
        "name": "array([0, 1])",
        "token": REDACTED,
    }
    nested = "password=hunter2"
    for _ in range(50):
        nested = [nested]
    assert "hunter2" not in redact_json(nested)


@pytest.mark.parametrize(
    ("path", "clean"),
    [
        ("s3://key:hunter2@bucket/x", "s3://***@bucket/x"),
        ("/data/token=hunter2/x.parquet", f"/data/token={REDACTED}"),
        ("/data/run-7/tokens.parquet", "/data/run-7/tokens.parquet"),
        ("gs://bucket/password.csv", "gs://bucket/password.csv"),
    ],
)
def test_paths(path, clean):
    """A path keeps all but its secrets."""
    assert redact_path(path) == clean
