"""Redaction of secrets: recognise names of secrets, and replace secrets inside texts.

Every pattern runs in linear time: repetitions are bounded, or start only where the previous
repetition ended. Redacting a redacted text does not change it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from dask_strata.schema.columns import NO_USER, REDACTED

_CAMEL = re.compile(r"([a-z0-9])([A-Z])")
_SEPARATORS = re.compile(r"[^a-z0-9]+")

_SECRET_NAME = re.compile(
    r"password|passwd|passphrase|passcode|secret(?!ar)|credential|apikey|accesskey|privatekey"
    r"|authkey|sessionkey|cookie|token(?!i[sz])|internal-inherit-config"
    r"|-(?:o?auth\d?|authz|authorization|bearer|jwt)-"
    r"|-(?:api|access|private|session|signing|encryption|account|storage|shared|auth|ssh)-key-"
    r"|[a-z0-9]-(?:pass|pwd|pw)-",
)


def is_secret_name(name: str) -> bool:
    """Return whether a name probably denotes a secret.

    Parameters
    ----------
    name : str
        Name of a variable, setting, option or field; in camel case or with any separators.

    Examples
    --------
    >>> is_secret_name("AWS_SECRET_ACCESS_KEY"), is_secret_name("apiKey")
    (True, True)
    >>> is_secret_name("distributed.comm.timeouts.connect"), is_secret_name("author")
    (False, False)
    """
    words = _SEPARATORS.sub("-", _CAMEL.sub(r"\1-\2", name).lower())
    return _SECRET_NAME.search(f"-{words.strip('-')}-") is not None


_PEM = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----"
    r"(?:[^-]|-(?!----))*(?:-----END [A-Z0-9 ]{0,60}-----)?"
)
_AUTHORIZATION = re.compile(
    r"""(?i)(\bauthorization["']?\s{0,4}[:=]\s{0,4}(?:[frb]?["'])?)"""
    r"""(?!\(redacted\))(?:digest\s[^\n]+|(?:[a-z][a-z0-9-]{1,30}\s{1,4})?[^\s"',;()]+)"""
)
_BEARER = re.compile(
    r"(?i)(\bbearer(?:\s{1,8}|%20|\+))"
    r"(?:(?=[^\s\d]*\d)[\w.~+/=-]{8,}|[\w.~+/=-]{20,})"
)
_AFTER_SCHEME = re.compile(r'(?<=://)[^\s"<>]+')
_PORT = re.compile(r"\d*")
_QUERY = re.compile(r"""([?&;])([\w.~%\[\]-]{1,64})=([^&;\s"'<>#()]+)""")
_QUERY_SECRETS = frozenset(("sig", "signature", "key", "x-amz-signature", "x-goog-signature"))
_FLAG = re.compile(
    r"""(?<![\w-])(--?([A-Za-z][\w-]{0,60})(?:=-{0,2}|\s{1,4}))"""
    r"""("[^"\n]*"|'[^'\n]*'|[^\s"'();-][^\s"'();]*)"""
)
_QUOTED_VALUE = re.compile(
    r"""(?<![\w.-])(([A-Za-z_][\w.-]{0,100})["']?\s{0,4}[:=]\s{0,4}[frb]?)"""
    r"""("[^"\n]*"|'[^'\n]*')"""
)
_PLAIN_VALUE = re.compile(r"""(?<![\w.-])(([A-Za-z_][\w.-]{0,100})=)([^\s"'&;()$][^\s"'&;()]*)""")
_NO_SECRETS = frozenset(("none", "null", "true", "false"))
_TOKENS = re.compile(
    r"(?:(?<![\w-])|(?<=%20))(?:"
    r"A(?:KI|SI|RO|ID)A[0-9A-Z]{16,}"  # Amazon
    r"|gh[pousr]_\w{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}"
    r"|hf_[A-Za-z0-9]{16,}"
    r"|sk-(?=[A-Za-z_-]*\d)[\w-]{16,}"
    r"|xox[abeoprs]-[\w-]{10,}"  # Slack
    r"|AIza[\w-]{30,}"  # Google
    r"|pypi-[\w-]{16,}|npm_\w{30,}"
    r"|eyJ[\w-]{5,}\.[\w-]+\.[\w-]*"  # JSON web tokens
    r")"
)


#: Every text that `redact_text` changes matches this.
_SUSPICIOUS = re.compile(
    r"[:=\s]|-----|A(?:KI|SI|RO|ID)A|gh[pousr]_|github_pat_|glpat-|hf_|sk-|xox|AIza|pypi-|npm_|eyJ"
)


def redact_path(path: str) -> str:
    """Return a path or URL without secrets; fast for paths that cannot contain one.

    Parameters
    ----------
    path : str
        The path or URL.

    Examples
    --------
    >>> redact_path("/data/run-7/events.root"), redact_path("https://me:pass@host/x.csv")
    ('/data/run-7/events.root', 'https://***@host/x.csv')
    """
    return path if _SUSPICIOUS.search(path) is None else redact_text(path)


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


def _query(match: re.Match[str]) -> str:
    mark, name, _ = match.groups()
    if is_secret_name(name) or name.lower() in _QUERY_SECRETS:
        return f"{mark}{name}={REDACTED}"
    return match.group()


def _flag_or_quoted_value(match: re.Match[str]) -> str:
    start, name, value = match.groups()
    if value in ('""', "''") or not is_secret_name(name):
        return match.group()
    quote = value[0] if value[0] in "\"'" else ""
    return f"{start}{quote}{REDACTED}{quote}"


def _plain_value(match: re.Match[str]) -> str:
    start, name, value = match.groups()
    before = match.string[max(0, match.start() - 16) : match.start()].rstrip()
    in_a_call = before.endswith(("(", ","))  # token=token in a call is a variable, not a secret
    if in_a_call or value.lower() in _NO_SECRETS or not is_secret_name(name):
        return match.group()
    return start + REDACTED


def redact_text(text: str) -> str:
    """Return a text with all recognised secrets replaced.

    It recognises credentials in URLs, secrets in their queries, ``Authorization`` headers, private
    keys, tokens of well-known formats, and values assigned to a secret name (``--password x``,
    ``export API_KEY=x``, ``"token": "x"``).

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
    text = _AUTHORIZATION.sub(rf"\1{REDACTED}", text)
    text = _BEARER.sub(rf"\1{REDACTED}", text)
    if "://" in text:
        text = _AFTER_SCHEME.sub(_without_userinfo, text)
    text = _QUERY.sub(_query, text)
    text = _FLAG.sub(_flag_or_quoted_value, text)
    text = _QUOTED_VALUE.sub(_flag_or_quoted_value, text)
    text = _PLAIN_VALUE.sub(_plain_value, text)
    return _TOKENS.sub(REDACTED, text)


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
    follows_secret = False
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        secret = argument.startswith("-") and is_secret_name(name.lstrip("-"))
        if follows_secret and not argument.startswith("-"):
            clean.append(REDACTED)
        elif secret and equals:
            clean.append(f"{name}={REDACTED}")
        else:
            clean.append(redact_text(argument))
        follows_secret = secret and not equals
    return clean
