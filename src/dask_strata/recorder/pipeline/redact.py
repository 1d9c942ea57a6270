"""Redaction of secrets: replace them in texts, paths, command lines and values of JSON.

Most texts contain no sign of a secret, and the search for signs is all that they cost. Every
pattern runs in linear time: repetitions are bounded, or start only where the previous repetition
ended. Redacting a redacted text again can only replace more of it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

from dask_strata.recorder.pipeline.plain_values import is_path
from dask_strata.recorder.pipeline.secret_names import (
    holds_secret,
    is_folder_name,
    is_key,
    is_secret_name,
    is_secret_option,
    is_short_name,
)
from dask_strata.recorder.pipeline.secret_values import lowered, may_have_values, without_values
from dask_strata.recorder.pipeline.text import json_text, plain_text
from dask_strata.schema.columns import NO_USER, REDACTED

__all__ = [
    "REDACTED",
    "is_secret_name",
    "redact_arguments",
    "redact_json",
    "redact_path",
    "redact_text",
    "redact_value",
]

_PEM = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    r"(?:[^-]|-(?!----))*(?:-----END [A-Z0-9 ]{0,60}-----)?"
)
_AFTER_SCHEME = re.compile(r'(?<=://)[^\s"<>]+')
_ENCODED_USER = re.compile(r"""(?i)(%3a%2f%2f)(?:(?!%2f|%3f|%23)[^\s"'<>&/])*%40""")
_PORT = re.compile(r"\d*")

#: Beginnings and rests of tokens of well-known forms; a beginning has a fixed length.
_FORMS = (
    (r"A(?:KI|SI|RO|ID)A", r"[0-9A-Z]{16,}"),  # Amazon
    (r"gh[pousr]_", r"\w{16,}"),
    (r"github_pat_", r"\w{16,}"),
    (r"gl(?:pat|ptt)-|gl(?:rt|dt)-", r"[\w.-]{16,}"),
    (r"hf_|api_org_", r"[A-Za-z0-9]{16,}"),  # Hugging Face
    (r"sk-", r"(?=[A-Za-z_-]{0,400}\d)[\w-]{16,}"),  # OpenAI, Anthropic
    (r"[rs]k_(?:live|test)_|whsec_", r"\w{10,}"),  # Stripe
    (r"xox[abceoprs]-|xapp-", r"[\w-]{10,}"),  # Slack
    (r"hooks\.slack\.com/services/", r"\w+/\w+/\w+"),
    (r"AIza|GOCSPX-|ya29\.", r"[\w-]{20,}"),  # Google
    (r"pypi-", r"[\w-]{16,}"),
    (r"npm_", r"\w{30,}"),
    (r"SG\.", r"[\w-]{16,}\.[\w-]{16,}"),  # SendGrid
    (r"hv[sb]\.", r"[\w-]{20,}"),  # Vault
    (r"dapi", r"[0-9a-f]{32}"),  # Databricks
    (r"do[por]_v1_", r"[0-9a-f]{32,}"),  # DigitalOcean
    (
        r"dckr_pat_|dp\.pt\.|glsa_|shp(?:at|ca|pa|ss)_|lin_api_|nvapi-|gsk_|sq0(?:atp|csp)-",
        r"[\w-]{16,}",
    ),
    (r"AGE-SECRET-KEY-1", r"[0-9A-Z]{20,}"),
    (r"eyJ", r"[\w-]{5,}\.[\w-]+\.[\w-]*"),  # JSON web tokens
)
#: Texts of which each token contains one.
_TOKEN_SIGNS = (
    "eyJ", "AKIA", "ASIA", "AROA", "AIDA", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_",
    "glpat-", "glptt-", "gldt-", "glrt-", "hf_", "api_org_", "_live_", "_test_", "whsec_", "xox",
    "xapp-", "hooks.slack.com", "AIza", "GOCSPX-", "ya29.", "pypi-", "npm_", "SG.", "hvs.", "hvb.",
    "dapi", "_v1_", "dckr_pat_", "dp.pt.", "shpat_", "shpca_", "shppa_", "shpss_", "lin_api_",
    "glsa_", "nvapi-", "gsk_", "sq0atp-", "sq0csp-", "AGE-SECRET-KEY",
)  # fmt: skip


def _alternatives(pattern: str) -> list[str]:
    """Return the alternatives of a pattern, not those inside its parentheses."""
    return re.split(r"\|(?![^(]*\))", pattern)


def _of_tokens() -> str:
    """Return the pattern of tokens that are no part of a longer word."""
    starts = [(part, rest) for parts, rest in _FORMS for part in _alternatives(parts)]
    # The start of a word is verified after its literal, because `re` finds literals faster.
    return "|".join(
        rf"{part}(?:(?<![\w-]{part})|(?<=%[0-9A-Fa-f]{{2}}{part})){rest}" for part, rest in starts
    )


_TOKENS = re.compile(_of_tokens())
_OPENAI = re.compile(r"sk-(?:(?<![\w-]sk-)|(?<=%[0-9A-Fa-f]{2}sk-))")

#: `-u me:password`, also as two arguments in a list. It starts with a letter, for which `re` is
#: fast; the text before it is verified afterwards.
_USER_AND_PASSWORD = re.compile(
    r"""-(?:[uU]|-user|-proxy-user)(?:=|[ \t]{1,4}|["'],[ ]?)(?P<quote>["'])?"""
    r"""(?P<user>[^\s:"'/@\\$]{1,100}):(?![/(]|\$[A-Z_{(])(?P<password>(?(quote)[^"'\n]+|[^\s"']+))"""
)
#: As above after `curl`, of which one argument may contain several options: `curl -su me:password`.
_OF_CURL = re.compile(
    r"""\bcurl\b(?:[^\n;|]|\\\n){0,300}?[\s"']-(?:[A-Za-z#]{0,10}?[uU]|-user|-proxy-user)"""
    r"""(?:=|[ \t]{1,4}|["'],[ ]?)?(?P<quote>["'])?(?P<user>[^\s:"'=-][^\s:"']{0,100}):"""
    r"""(?!//|\$(?:[A-Z_][A-Z0-9_]*|\{\w+\})(?:[\s"']|\Z)|\$\()"""
    r"""(?P<password>(?(quote)[^"'\n]+|[^\s"']+))"""
)
_USER_AT_END = re.compile(r"-[A-Za-z#]{0,10}[uU]")
_USER_OPTIONS = frozenset(("-u", "-U", "--user", "--proxy-user"))

#: `-px` is a password only after these commands, and `-p x` only after sshpass.
_SHORT_PASSWORD = re.compile(
    r"""\b((?:mysql|mariadb)[\w-]{0,20}\b(?:[^\n;|]|\\\n){0,300}?"""
    r"""(?:[\s"']-p(?=[^\s"',])|\s-p(?P<quote>["'])(?=[^\s"']))"""
    r"""|sshpass\b["', \\]{0,16}-p["', \\]{0,16})"""
    r"""(?(quote)[^"'\n]+|[^\s"';|]+)"""
)


_SHORT_PASSWORD_COMMAND = re.compile(r"(?:^|/)(mysql|mariadb|sshpass|curl)[\w-]{0,20}$")


def may_contain_secret(text: str) -> bool:
    """Return whether a text has a sign of a secret; fast if it has none."""
    return (
        may_have_values(lowered(text))
        or _has_token_sign(text)
        or ("://" in text and "@" in text)
        or "-----BEGIN " in text
        or "%40" in text
        or _USER_AND_PASSWORD.search(text) is not None
        or ("curl" in text and _OF_CURL.search(text) is not None)
        or ("-p" in text and _SHORT_PASSWORD.search(text) is not None)
    )


def _has_token_sign(text: str) -> bool:
    if "sk-" in text and _OPENAI.search(text):  # many names of Dask contain `task-`
        return True
    for sign in _TOKEN_SIGNS:  # noqa: SIM110  a generator would double the time
        if sign in text:
            return True
    return False


def redact_path(path: str) -> str:
    """Return a path or URL without secrets.

    Call it before normalising the path, which would remove a slash of ``://``.

    Parameters
    ----------
    path : str
        The path or URL.

    Examples
    --------
    >>> redact_path("/data/run-7/events.root"), redact_path("https://me:pass@host/x.csv")
    ('/data/run-7/events.root', 'https://***@host/x.csv')
    """
    return redact_text(path)


def _without_userinfo(match: re.Match[str]) -> str:
    """Replace the credentials of each URL in the text after ``://``, up to the next space."""
    parts = match.group().split("://")
    for i, part in enumerate(parts):
        authority = re.split(r"[/?#]", part, maxsplit=1)[0]
        if "@" in authority:
            parts[i] = NO_USER + part[authority.rindex("@") + 1 :]
        elif (
            ":" in authority
            and "@" in part
            and not authority.endswith("]")
            and not _PORT.fullmatch(authority.rpartition(":")[2])
        ):  # not a port after the colon: a password with an unescaped / ? or #
            parts[i] = NO_USER + part[part.rindex("@") + 1 :]
    return "://".join(parts)


def _without_password(match: re.Match[str]) -> str:
    user, password = match["user"], match["password"]
    before = match.string[max(0, match.start() - 1) : match.start()]
    in_a_word = before.isalnum() or before in ("-", "_")
    if in_a_word or (user.isdecimal() and password.isdecimal()):  # numbers of a user and a group
        return match.group()
    return match.group()[: match.start("password") - match.start()] + REDACTED


def redact_text(text: str) -> str:
    """Return a text with all recognised secrets replaced.

    It recognises credentials in URLs, secrets in their queries, authorization headers and cookies,
    private keys, tokens of well-known forms, users with passwords (``-u me:x``), and values of
    secret names (``--password x``, ``export API_KEY=x``, ``Pwd=x``, ``"token": "x"``).

    Parameters
    ----------
    text : str
        Any text, for example a script.

    Returns
    -------
    str
        The same text if it contains no secret.

    Examples
    --------
    >>> redact_text("postgres://me:pass@host/db?sslmode=require")
    'postgres://***@host/db?sslmode=require'
    >>> redact_text("curl -H 'Authorization: Bearer abc' https://host/?token=abc&page=2")
    "curl -H 'Authorization: (redacted)' https://host/?token=(redacted)&page=2"
    """
    if "-----BEGIN " in text:
        text = _PEM.sub(REDACTED, text)
    if "@" in text and "://" in text:
        text = _AFTER_SCHEME.sub(_without_userinfo, text)
    if "%40" in text:
        text = _ENCODED_USER.sub(rf"\1{NO_USER}", text)
    if ":" in text and ("-u" in text or "-U" in text):
        text = _USER_AND_PASSWORD.sub(_without_password, text)
    if "curl" in text and ":" in text:
        text = _OF_CURL.sub(_without_password, text)
    if "-p" in text and ("mysql" in text or "mariadb" in text or "sshpass" in text):
        text = _SHORT_PASSWORD.sub(rf"\1{REDACTED}", text)
    text = without_values(text)
    return _TOKENS.sub(REDACTED, text) if _has_token_sign(text) else text


def redact_value(value: Any, depth: int = 20) -> Any:
    """Return a value of JSON with secrets replaced, also the values of secret names.

    Parameters
    ----------
    value : object
        Texts, numbers, lists and mappings; other objects are replaced by their redacted text.
    depth : int, optional
        Number of nested containers to enter; deeper ones are replaced by their redacted text.

    Examples
    --------
    >>> redact_value({"token": "abc", "hosts": ["https://me:pw@host"], "retries": 2})
    {'token': '(redacted)', 'hosts': ['https://***@host'], 'retries': 2}
    """
    if isinstance(value, str):
        return redact_text(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if depth and isinstance(value, Mapping):
        names_secret = _names_secret(value)
        return {
            key: REDACTED
            if (names_secret and key == "value") or _holds_secret(str(key), inner)
            else redact_value(inner, depth - 1)
            for key, inner in ((_name(key), inner) for key, inner in value.items())
        }
    if depth and isinstance(value, (list, tuple, set, frozenset)):
        if _are_arguments(value):
            return redact_arguments(list(value))
        if _is_pair(value):
            return [next(iter(value)), REDACTED]
        return [
            [inner[0], REDACTED] if _is_pair(inner, list) else redact_value(inner, depth - 1)
            for inner in value
        ]
    return redact_text(plain_text(value))


def _holds_secret(key: str, value: Any) -> bool:
    if is_short_name(key):
        is_folder = is_folder_name(key) and isinstance(value, str) and is_path(value)
        return isinstance(value, str) and bool(value) and not is_folder
    return holds_secret(key, value)


def _names_secret(mapping: Mapping[Any, Any]) -> bool:
    """Return whether a mapping is one such as `{"name": "DB_PASSWORD", "value": "x"}`."""
    names = mapping.get("name"), mapping.get("key")
    return any(isinstance(n, str) and holds_secret(n, mapping.get("value")) for n in names)


def _is_pair(items: Any, kind: type[tuple[Any, ...] | list[Any]] = tuple) -> bool:
    """Return whether items are a secret with its name, as in `("password", "x")`."""
    if not isinstance(items, kind) or len(items) != 2:  # noqa: PLR2004  a name and a value
        return False
    name, value = items
    if not (isinstance(name, str) and isinstance(value, (str, bytes))):
        return False
    return holds_secret(name, value) and not is_key(name)


def _are_arguments(items: Collection[Any]) -> bool:
    """Return whether items are arguments of a command, of which an option may name the next."""
    texts = [item for item in items if isinstance(item, str)]
    return len(texts) == len(items) and any(text.startswith("-") for text in texts)


def _name(key: Any) -> Any:
    """Return a key as text without secrets; JSON has its own texts of numbers and None."""
    if key is None or isinstance(key, (bool, int, float)):
        return key
    return redact_text(key if isinstance(key, str) else plain_text(key))


#: Longest text, in characters, for which the search for signs is cached: tasks share annotations.
_SHORT_TEXT = 500
_may_contain = lru_cache(maxsize=1024)(may_contain_secret)


def redact_json(value: Any) -> str:
    """Return a value as JSON with secrets replaced; see `redact_value`.

    Parameters
    ----------
    value : object
        The value; objects without a JSON form are replaced by their `repr`.

    Examples
    --------
    >>> redact_json({"password": "abc", "n": 1})
    '{"password": "(redacted)", "n": 1}'
    """
    text = json_text(value)
    if not (_may_contain if len(text) <= _SHORT_TEXT else may_contain_secret)(text):
        return text
    try:
        return json_text(redact_value(value))
    except Exception:  # noqa: BLE001  a user's mapping may do anything
        return redact_text(text)


def redact_arguments(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of a command line with secrets replaced.

    An argument after a secret option, as in ``--password x``, is replaced, too.

    Parameters
    ----------
    arguments : sequence of str
        The arguments, with or without the command.

    Examples
    --------
    >>> redact_arguments(["run.py", "--password", "hunter2", "--user=me", "--token=abc"])
    ['run.py', '--password', '(redacted)', '--user=me', '--token=(redacted)']
    """
    clean: list[str] = []
    follows_secret = follows_user = False
    command = ""
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        secret = is_secret_option(name)
        if follows_secret and not argument.startswith("-"):
            clean.append(REDACTED)
        elif secret and equals:
            clean.append(f"{name}={REDACTED}")
        elif follows_user:
            start = "curl -u '" if command == "curl" else "-u '"
            clean.append(redact_text(f"{start}{argument}'")[len(start) : -1])
        elif command == "curl" and argument.startswith("-"):
            clean.append(redact_text(f"curl {argument}")[len("curl ") :])
        elif command != "curl" and command and argument.startswith("-p") and argument != "-p":
            clean.append(f"-p{REDACTED}")
        else:
            clean.append(redact_text(argument))
        follows_secret = secret and not equals
        follows_secret |= command == "sshpass" and argument == "-p"
        follows_user = argument in _USER_OPTIONS
        follows_user |= command == "curl" and _USER_AT_END.fullmatch(argument) is not None
        if not argument.startswith("-"):
            found = _SHORT_PASSWORD_COMMAND.search(argument)
            command = found[1] if found is not None else command
    return clean
