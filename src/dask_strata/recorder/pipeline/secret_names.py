"""Names of secrets: of variables, settings, options, headers and fields."""

from __future__ import annotations

import re
from functools import lru_cache

_CAMEL = re.compile(r"([a-z0-9])([A-Z])")
_SEPARATORS = re.compile(r"[^a-z0-9]+")

#: Words before "key" in the names of secrets; `sort-key` and `primary-key` are no secrets.
_KEYS = (
    "access|account|admin|api|app|application|auth|client-secret|consumer|decryption|deploy"
    "|encryption|functions|hmac|license|master|pre-?shared|private|session|shared|signing|ssh"
    "|storage|subscription"
)

#: Words that are joined with "pass" in names of secrets, as in `DBPASS`; `bypass` is no secret.
_OWNERS = (
    "admin|amqp|app|auth|db|ftp|http|imap|kafka|key|ldap|login|mail|mongo|my|mysql|ora|oracle|pg"
    "|pop3|postgres|proxy|redis|root|smtp|sql|ssh|store|su|sudo|svn|user|vnc|web|wifi"
)

_SECRET_NAME = re.compile(
    r"password|passwd|passphrase|passcode|passkey|secret(?!ar)|credential|apikey|accesskey"
    r"|privatekey|authkey|sessionkey|cookie(?!cutter)|token(?!i[sz])|internal-inherit-config"
    r"|-(?:o?auth\d?|authz|authorization|bearer|jwt)-"
    rf"|-(?:{_KEYS})-key-"
    r"|[a-z0-9]-(?:pass|pwd|pw)-"
    rf"|-(?:{_OWNERS})(?:pass|pwd|pw)\d?-",
)


@lru_cache(maxsize=4096)
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


#: Options that are secrets although their names alone are not.
_SECRET_OPTIONS = frozenset(("pass", "pw", "passin", "passout"))

_COUNTED = re.compile(
    r"(?i)(?:token|secret|password|credential|cookie)s$|(?:^|[^a-z])token[^a-z]*(?:id|len|length)$"
)


def holds_secret(name: str, value: object) -> bool:
    """Return whether a value with this name is a secret.

    Parameters
    ----------
    name : str
        Name of a variable, setting, option or field.
    value : object
        Its value. None, switches, empty values and numbers of tokens are no secrets.

    Examples
    --------
    >>> holds_secret("token", "abc"), holds_secret("max_tokens", 4096), holds_secret("auth", None)
    (True, False, False)
    """
    if value is None or isinstance(value, bool) or not is_secret_name(name):
        return False
    if isinstance(value, (int, float)):
        return not is_counted(name)
    return value not in ("", b"") if isinstance(value, (str, bytes)) else not _is_empty(value)


def _is_empty(value: object) -> bool:
    return type(value) in (list, tuple, dict, set, frozenset) and not value


def is_counted(name: str) -> bool:
    """Return whether a number with the name of a secret is probably a count or an index.

    >>> is_counted("max_tokens"), is_counted("pad_token_id"), is_counted("token")
    (True, True, False)
    """
    return _COUNTED.search(name) is not None


def is_short_name(name: str) -> bool:
    """Return whether a name is a password in some forms, and a folder or a count in others.

    >>> is_short_name("Pwd"), is_short_name("db_pwd")
    (True, False)
    """
    return name.lstrip("-").lower() in ("pwd", "pw", "pass")


def is_folder_name(name: str) -> bool:
    """Return whether a short name may also be that of a folder.

    >>> is_folder_name("PWD"), is_folder_name("Pwd"), is_folder_name("pass")
    (True, False, False)
    """
    return name.lstrip("-") in ("pwd", "PWD")


def is_pass(name: str) -> bool:
    """Return whether a short name may also be that of the number of a pass.

    >>> is_pass("pass"), is_pass("Pwd")
    (True, False)
    """
    return name.lstrip("-").lower() == "pass"


#: Dask's hash at the end of a task's name.
_HASH = re.compile(r"-[0-9a-f]{32}")


def is_key(name: str) -> bool:
    """Return whether a name is that of a task, which may contain a word such as `token`.

    >>> is_key("read-token-0123456789abcdef0123456789abcdef"), is_key("token")
    (True, False)
    """
    return _HASH.search(name) is not None


def is_secret_option(argument: str) -> bool:
    """Return whether an argument of a command is an option for a secret.

    >>> is_secret_option("--db-password"), is_secret_option("-pw"), is_secret_option("token")
    (True, True, False)
    """
    name = argument.lstrip("-")
    return argument.startswith("-") and (name in _SECRET_OPTIONS or is_secret_name(name))
