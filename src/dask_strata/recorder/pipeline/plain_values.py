"""Unquoted values after the name of a secret: whether they are code, counts or words instead."""

from __future__ import annotations

import re

from dask_strata.recorder.pipeline.secret_names import is_counted, is_pass, is_secret_name

#: Words after the name of a secret that are no secrets: values in code, and words of a sentence.
_WORDS = (
    "none null nil true false undefined yes no on off ok str string bytes int integer float bool "
    "boolean object any optional union list dict tuple set type self cls default required missing "
    "invalid expired wrong incorrect unknown unset empty failed failure success successful enabled "
    "disabled denied rejected accepted valid redacted hidden changed not and or if in is are was "
    "were be been being has have had must should can cannot may might will would do does did a an "
    "the this that these those it its of for from to at by with without as than then when where "
    "while which who how please enter provide use uses used using see same also only but so "
    "because via per instead before after until into over under end eof return returns yield raise "
    "else elif lambda await async import del pass assert global option argument flag value"
)
_NO_SECRETS = frozenset(_WORDS.split())

#: Placeholders: `%(token)s`, `{token}`, `<token>`, `***`.
_PLACEHOLDER = re.compile(r"%(?:\(\w*\)?)?[sdr]?|\{+[A-Za-z_.!:]*\}+|<[A-Za-z_.-]*>?|\*+|[{\[(].*")
#: Values that are no secrets wherever they are, and references to variables of a shell.
_REFERENCE = re.compile(
    r"(?:(?i:none|null|true|false)|\$(?:[A-Z_][A-Z0-9_]*|\{[A-Za-z_]\w*\}))[.,:;!?\]})]*"
)
_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_DOTTED = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_OPERATOR_AFTER = re.compile(
    r"\(|\[|[ \t]{1,4}(?:[+*/|%&<>]|-(?=\s)|[!=]=|(?:if|or|and|is|in|for)\b)"
)
_DEFAULT_AFTER = re.compile(r"[ \t]{0,4}=(?!=)")
_PATH = re.compile(r"""[/~]|\.{1,2}(?=[/\\\s"';]|\Z)|[A-Za-z]:[\\/]""")

#: Number of digits of a port, of a number in code that is no secret, and of a number of passes.
_LONGEST_PORT, _LONGEST_COUNT, _LONGEST_PASS = 5, 3, 5


def is_word(value: str) -> bool:
    """Return whether a value is a placeholder, a value of code or a word of a sentence.

    >>> is_word("required,"), is_word("$TOKEN"), is_word("hunter2")
    (True, True, False)
    """
    word = value.lower().rstrip(".,:;!?]})")
    return word in _NO_SECRETS or is_reference(value) or _PLACEHOLDER.fullmatch(value) is not None


def is_reference(value: str) -> bool:
    """Return whether a value is no value, a switch or a variable of a shell.

    >>> is_reference("none"), is_reference("${TOKEN}"), is_reference("required")
    (True, True, False)
    """
    return _REFERENCE.fullmatch(value) is not None


def is_path(text: str, position: int = 0) -> bool:
    """Return whether a path starts at a position of a text.

    >>> is_path("/home/me"), is_path("hunter2")
    (True, False)
    """
    return _PATH.match(text, position) is not None


def is_name_in_code(value: str) -> bool:
    """Return whether a value has the form of a variable or an attribute.

    >>> is_name_in_code("self.token"), is_name_in_code("a-b")
    (True, False)
    """
    return _DOTTED.fullmatch(value) is not None


def is_number(name: str, value: str, *, port: bool, in_code: bool) -> bool:
    """Return whether a value is a number that is no secret.

    Parameters
    ----------
    name : str
        The name that has the value.
    value : str
        The value.
    port : bool
        Whether a colon without spaces is between them, as between host and port.
    in_code : bool
        Whether the value is spaced as in code.

    Examples
    --------
    >>> is_number("auth-server", "8786", port=True, in_code=False)
    True
    >>> is_number("token", "123456", port=False, in_code=True)
    False
    """
    number = value.rstrip("]},").replace("_", "").lstrip("-")
    if not number.isdecimal():
        return False
    if port and len(number) <= _LONGEST_PORT and "pass" not in name.lower():
        return True
    if in_code and len(number) <= _LONGEST_COUNT:
        return True
    return is_counted(name) or (is_pass(name) and len(number) <= _LONGEST_PASS)


def is_code(name: str, match: re.Match[str], *, colon: bool, in_a_call: bool) -> bool:
    """Return whether an unquoted value in code is a call, an attribute, a type or a variable.

    Parameters
    ----------
    name : str
        The name that has the value.
    match : re.Match
        The value and the text around it.
    colon : bool
        Whether a colon is between name and value.
    in_a_call : bool
        Whether the name is a keyword argument.
    """
    value = match.group()
    core = value.rstrip("]},.:")
    if not is_name_in_code(core):
        return _IDENTIFIER.match(value) is not None and ("[" in value or "{" in value)
    if _OPERATOR_AFTER.match(match.string, match.start() + len(core)):
        return True
    if colon and _DEFAULT_AFTER.match(match.string, match.end()):
        return True
    if any(map(str.isdigit, core)):
        return False
    if in_a_call or "." in core or core.lower() in name.lower() or is_secret_name(core):
        return True
    is_type = core[0].isupper() and not core.isupper()
    return is_type and (not colon or not core[1:].islower())


def is_called(match: re.Match[str]) -> bool:
    """Return whether a value is the name of a function that is called."""
    following = match.string[match.end() : match.end() + 1]
    return following == "(" and _IDENTIFIER.fullmatch(match.group()) is not None
