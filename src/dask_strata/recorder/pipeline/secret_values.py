"""Values of secrets in texts: the forms in which code, files and programs give a name a value."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass

from dask_strata.recorder.pipeline.plain_values import (
    is_called,
    is_code,
    is_name_in_code,
    is_number,
    is_path,
    is_reference,
    is_word,
)
from dask_strata.recorder.pipeline.secret_names import (
    is_counted,
    is_folder_name,
    is_key,
    is_secret_name,
    is_secret_option,
    is_short_name,
)
from dask_strata.schema.columns import REDACTED

#: Words in lower case after which the value of a secret may follow.
_WORDS = (
    "pass", "token", "secret", "auth", "cookie", "credential", "pwd", "pw", "jwt", "bearer",
    "basic", "identified by",
)  # fmt: skip
#: As above, but only as a part of a name or in the query of a URL.
_KEY, _SIGNATURE = "key", "sig"
_KEY_OF_SOMETHING = re.compile(r"key(?<=[\w .-]key)")
_KEY_OF_QUERY = re.compile(r"key(?<=[?&;#]key)(?:=|%3d)")
_SIGNATURE_OF_QUERY = re.compile(r"sig(?:nature)?(?:=|%3d)")

_BEFORE_QUERY_NAME = re.compile(r"(?:[?&;#]|%3f|%26|%3b)(?:amp;)?(?:x-(?:amz|goog)-)?$")
_QUERY_NAME = re.compile(r"(?:sig|signature|key)(?:=|%3d)")

_QUOTE = r"""\\{0,3}["'`]"""

#: The type of a variable between its name and its value, as in `password: str = "x"`.
_TYPE = (
    r":[ \t]{0,4}[A-Za-z_](?:[\w.\[\],]|[ ]?\|[ ]?){0,60}[ \t]{0,4}="
    rf"(?=[ \t]{{0,4}}[frbu]?{_QUOTE})"
)

_REST_OF_NAME = re.compile(r"[\w.-]{0,100}")
#: What follows a name: the beginning of one of the forms, see `_FORMS`.
_AFTER = re.compile(
    rf"(?P<close>(?:{_QUOTE}|%22|%27)?(?:\\?\]|%5[Dd])?)"
    r"(?:"
    rf"(?P<assigned>[ \t]{{0,8}}(?:{_TYPE}|[:!]?==?>?|:|%3[DdAa]|%253[DdAa])[ \t]{{0,8}})"
    r"""|(?P<paired>,?\s{0,40}["']?[vV]alue["']?\s{0,4}[:=]\s{0,4})(?=\S)"""
    rf"|(?P<comma>,\s{{0,40}})(?=b?{_QUOTE})"
    r"|(?P<called>)(?=\()"
    r"|(?P<element>(?:\s[^<>\n]{0,100})?>)(?=[^<\s])"
    r"|(?P<space>[ \t]{1,4})(?=\S)"
    r")"
)

_QUOTED = re.compile(
    r"""(?s:[frbuFRBU]{0,2}(?P<triple>\\{0,3}(?:"{3}|'{3}))(?P<long>(?:[^\\]|\\.)*?)(?P=triple))"""
    rf"""|[frbuFRBU]{{0,2}}(?P<quote>{_QUOTE})(?P<inner>(?:[^\\\n]|\\[^\n])*?)"""
    r"""(?:(?P=quote)|(?=\\?(?:\n|\Z)))"""
)
_END_OF_PAIR = re.compile(r"\s{0,8},?\s{0,8}[)\]]")
_BARE = re.compile(r"""(?:[^\s"'`&;(),\\]|,(?=[^\s"'])|\\(?![rnt"'`])|&(?=[^\s"'`&;(),\\>]))+""")
#: Lists of tokens are lists of words.
_TOKENS = re.compile(r"(?i)tokens$")
_SEVERAL = re.compile(r"[\s,\"']")
#: As above in an assignment of a shell or a file, with parentheses.
_ASSIGNED = re.compile(rf"""(?:{_BARE.pattern.removesuffix("+")}|\([^\s"'()]{{0,200}}\))+""")
#: The part that decides whether a value is code or a word. A bound keeps the time linear.
_START_OF_BARE = re.compile(_BARE.pattern.removesuffix("+") + "{1,300}")
_QUERY_VALUE = re.compile(r"""[^&;\s"'<>#()\\]+""")
_CONTAINER = re.compile(
    r"[\[({](?:[^\[\](){}\n]{0,1000}|[ \t\r]{0,100}\n[^\[\](){}]{0,1000})[\])}]"
)
#: A line that is continued, before the text in quotes on the next one.
_CONTINUED = re.compile(rf"(?:\((?:[ \t]*\r?\n)?|\\?\r?\n)[ \t]*(?=[frbuFRBU]{{0,2}}{_QUOTE})")
_BETWEEN_STRINGS = re.compile(rf"\s{{1,200}}(?=[frbuFRBU]{{0,2}}{_QUOTE})")
_END_OF_STRINGS = re.compile(r"\s{0,200}\)")
#: A value of YAML on the lines that follow, which are indented.
_BLOCK = re.compile(r"[|>][+-]?\d?[+-]?[ \t]*\r?(?=\n)")
_BEFORE_YAML_NAME = re.compile(r"""(?:\A|\n)([ \t]*(?:-[ \t]+)*)["']?\Z""")
_ELEMENT = re.compile(r"[^<\n]{1,1000}(?=</)")
_SEPARATORS = r"(?:26|23|20|22|27|3[Bb]|7[Dd]|0[AaDd]|2[Cc])"
_END_OF_ENCODED = re.compile(f"%{_SEPARATORS}")
_END_OF_TWICE_ENCODED = re.compile(f"%(?:25)?{_SEPARATORS}")

#: A parameter in quotes.
_PARAMETER = r"""[\w.-]{1,60}=(?:\\{0,3}"[^"\n\\]*\\{0,3}"|\\{0,3}'[^'\n\\]*\\{0,3}')"""
#: Schemes whose parameters extend to the end of the line, or one word after any other scheme.
_AUTHORIZATION = re.compile(
    r"""(?i)(?:[frb]?["'`])?(?P<value>(?:digest|oauth|hawk|mac|signature|aws4-\S{1,30})\s"""
    r"""(?:[^\n"'\\]|\\?"(?:[^"\\\n]|\\[^"\n])*\\?")+"""
    rf"""|[a-z][a-z0-9-]{{1,30}}[ \t]{{1,4}}{_PARAMETER}(?:[,;][ ]?{_PARAMETER})*"""
    r"""|(?:[a-z][a-z0-9-]{1,30}(?:[ \t]{1,4}|%20|\+))?[^\s"',;()\\]+)"""
)
_COOKIES = re.compile(r"""[^\s=;,"'\\()]{1,200}=(?:"[^"\n]*"|[^\s;,"'\\]*)(?:;[ ]?[^\s;"',\\]+)*""")
_AFTER_SCHEME = {
    "bearer": re.compile(
        r"(?i)bearer(?:\s{1,8}|%20|\+)"
        r"(?P<value>(?=[^\s\d]{0,400}\d)[\w.~+/=-]{8,}|[\w.~+/=-]{20,})"
    ),
    "basic": re.compile(r"(?i)basic(?:\s{1,8}|%20|\+)(?P<value>[A-Za-z0-9+/]{6,}={0,2})"),
}

#: A user or a server in a connection string.
_CONNECTION = re.compile(
    r"(?i)(?:^|[;\s\"'])(?:uid|user(?:[ ]?id|name)?|server|host|driver|dsn|data[ ]source|database"
    r"|initial[ ]catalog)[ ]?="
)

#: Texts before a name.
_WORD_BEFORE = re.compile(r"\b[A-Za-z]{3,12}[ ]\Z")
_PAIR_BEFORE = re.compile(
    r"""(?:(?:^|\W)\(|(?:(?:^|[^\w\])])\[|\]\s{0,4},)\s{0,8}\[)\s{0,8}b?\\{0,3}["']$"""
)
#: Functions whose arguments are a name and a value.
_CALL_BEFORE = re.compile(
    r"""(?i:env|setdefault|\.(?:get|pop|set|option|config|add|put|add_?header|set_?property))"""
    r"""\(\s{0,8}b?\\{0,3}["']$"""
)
#: Declarations of options, in which the text after an option is no value.
_DECLARATION_BEFORE = re.compile(r"\b(?:add_)?(?:[oO]ption|[aA]rgument)\([^()]*$")
_SETENV_BEFORE = re.compile(r"(?:\bsetenv|\bENV|\bset -g?x)\s{1,4}$")
_LABEL_BEFORE = re.compile(r"\b(?:name|key):[ \t]{1,4}$")
_LOGIN_BEFORE = re.compile(r"\blogin\s{1,4}\S{1,100}\s{1,20}$")
_FIELD_BEFORE = re.compile(r":(?:param|type|var|ivar|raises) $")

#: Functions whose arguments are secrets.
_SETTER = re.compile(
    r"(?:^|[._])(?:set|with)_?[A-Za-z_]+$|Secret(?:Str|Bytes)$|Auth$|(?:^|\.)[A-Z]\w*Credentials?$"
)
_COMPARISONS = ("==", "!=")

#: Endings of file names: `token.py: 3` is a line of a file.
_FILE_NAME = (
    r"(?i:\.(?:py[cixo]?|c|cc|cpp|cs|h|hpp|go|rs|rb|js|ts|java|sh|txt|json|ya?ml|toml|ini|cfg|conf"
    r"|md|rst|html?|log|csv|pem|so|dll))$"
)
#: Names in which the word for a secret describes something else.
_NO_VALUE = re.compile(
    rf"{_FILE_NAME}|(?i:[._-](?:fd|file|files|path|paths|dir|folder|len|length|size|count|type"
    r"|types|index|idx|pos|offset|start|end|interval|ttl|timeout|lifetime|expiry|expires|expiration|limit|url"
    r"|uri|endpoint))$"
)
#: Owners whose parts are secrets, whatever the parts are called.
_SECRET_OWNER = re.compile(
    r"(?i)secret|passw|credential|(?:access|account|api|private|storage)[._-]?key"
)
#: First and last position of a secret in a text.
_Span = tuple[int, int]


@dataclass(slots=True)
class _Site:
    """A place in a text where a secret may have a value.

    Attributes
    ----------
    text : str
        The whole text.
    begin : int
        Position of the name.
    after : re.Match
        The beginning of one of the forms, after the name.
    """

    text: str
    begin: int
    after: re.Match[str]

    @property
    def name(self) -> str:
        return self.text[self.begin : self.after.start()]

    @property
    def position(self) -> int:
        """Position of the value."""
        return self.after.end()

    @property
    def operator(self) -> str:
        return self.after.group(self.after.lastgroup or 0).strip()

    def before(self, length: int) -> str:
        """Return the text before the name."""
        return self.text[max(0, self.begin - length) : self.begin]

    @property
    def is_secret(self) -> bool:
        """Whether the name is probably that of a secret's value."""
        name = self.name
        if not is_secret_name(name) or _NO_VALUE.search(name) is not None:
            return False
        owner, dot, last = name.rpartition(".")
        if not dot or is_short_name(last) or is_secret_name(last):
            return True
        return _SECRET_OWNER.search(owner) is not None or self._is_setting

    @property
    def _is_setting(self) -> bool:
        """Whether a dotted name is that of a setting rather than of an attribute in code."""
        if self.name.startswith("-"):
            return True
        if self.after.lastgroup != "assigned" or self.operator in _COMPARISONS:
            return False
        return self.is_assignment or _QUOTED.match(self.text, self.position) is not None

    @property
    def is_in_a_call(self) -> bool:
        """Whether the name is that of a keyword argument."""
        return self.operator == "=" and self.before(100).rstrip().endswith(("(", ","))

    @property
    def is_assignment(self) -> bool:
        """Whether a value follows an equals sign as in a shell, where words are values."""
        if self.after.lastgroup != "assigned" or self.after["close"] or self.is_in_a_call:
            return False
        sign = self.after["assigned"]
        return sign == "=" or (sign[0] == "%" and sign[-1] in "dD")

    @property
    def is_option(self) -> bool:
        """Whether the name is that of an option for a secret."""
        name = self.name
        return is_secret_option(name) and (self.is_secret or not is_secret_name(name))


def lowered(text: str) -> str:
    """Return the text in lower case, with the same length.

    >>> lowered("A\u0130B")
    'aib'
    """
    lower = text.lower()
    # The lower case of this one letter has two characters.
    return lower if len(lower) == len(text) else text.replace("\u0130", "i").lower()


def may_have_values(lower: str) -> bool:
    """Return whether a text in lower case may give a secret a value; fast if it does not."""
    for word in _WORDS:
        if word in lower:
            return True
    if _KEY in lower and (_KEY_OF_SOMETHING.search(lower) or _KEY_OF_QUERY.search(lower)):
        return True
    return _SIGNATURE in lower and _SIGNATURE_OF_QUERY.search(lower) is not None


def _signs(lower: str) -> list[tuple[int, str]]:
    """Return positions and words after which the value of a secret may follow, in order."""
    signs: list[tuple[int, str]] = []
    # Searching for one word at a time is several times as fast as a pattern of all words.
    for word in _WORDS:
        at = lower.find(word)
        while at >= 0:
            signs.append((at, word))
            at = lower.find(word, at + len(word))
    if _KEY in lower:
        signs += [(match.start(), _KEY) for match in _KEY_OF_SOMETHING.finditer(lower)]
        signs += [(match.start(), _KEY) for match in _KEY_OF_QUERY.finditer(lower)]
    if _SIGNATURE in lower:
        signs += [(match.start(), _SIGNATURE) for match in _SIGNATURE_OF_QUERY.finditer(lower)]
    signs.sort()
    return signs


def without_values(text: str) -> str:
    """Return a text with the values of secrets replaced.

    Parameters
    ----------
    text : str
        Any text.

    Examples
    --------
    >>> without_values("X-Auth-Token: abc")
    'X-Auth-Token: (redacted)'
    """
    lower = lowered(text)
    signs = _signs(lower)
    if not signs:
        return text
    parts: list[str] = []
    done = copied = 0
    for start, sign in signs:
        if start < done:
            continue
        found, done = _examine(text, lower, sign, start, copied)
        if found is not None:
            parts += text[copied : found[0]], REDACTED
            done = copied = found[1]
    return "".join([*parts, text[copied:]]) if parts else text


def _examine(text: str, lower: str, sign: str, start: int, floor: int) -> tuple[_Span | None, int]:
    """Return the secret after a sign, if any, and the position at which the search continues."""
    end = start + len(sign)
    if sign in (_KEY, _SIGNATURE):
        query = _QUERY_NAME.match(lower, start)
        if query and _BEFORE_QUERY_NAME.search(lower[max(0, start - 16) : start]):
            return _cut(_QUERY_VALUE.match(text, query.end()), query.group()), end
        if sign == _SIGNATURE:
            return None, end
    elif sign in _AFTER_SCHEME:
        found = _after_scheme(text, sign, start)
        if found is not None:
            return found, found[1]
    elif sign == "identified by":
        blanks = len(text[end : end + 8]) - len(text[end : end + 8].lstrip())
        return _quoted(text, end + blanks), end
    rest = _REST_OF_NAME.match(text, end)
    stop = rest.end() if rest is not None else end
    after = _AFTER.match(text, stop)
    if after is None:
        return None, stop
    begin = start
    lowest = max(floor, start - 100)
    while begin > lowest and (text[begin - 1].isalnum() or text[begin - 1] in "_-."):
        begin -= 1
    if sign == _KEY and (word := _WORD_BEFORE.search(text, lowest, begin)) is not None:
        begin = word.start()  # as in `API key: x`
    return _FORMS[str(after.lastgroup)](_Site(text, begin, after)), stop


def _after_scheme(text: str, sign: str, start: int) -> _Span | None:
    """Return the secret after the scheme of an authorization, as in `Bearer x`."""
    match = _AFTER_SCHEME[sign].match(text, start)
    if match is None or (start and text[start - 1].isalnum()):
        return None
    if sign == "basic" and not _is_user_and_password(match["value"]):
        return None
    return match.span("value")


def _is_user_and_password(value: str) -> bool:
    """Return whether a text is `user:password` in base 64."""
    try:
        decoded = base64.b64decode(value.encode() + b"==").decode("ascii")
    except (binascii.Error, ValueError):
        return False
    return ":" in decoded and decoded.isprintable()


def _assigned(site: _Site) -> _Span | None:
    """Return the secret after `name=`, `name:` and the like."""
    text, position = site.text, site.position
    is_short = is_short_name(site.name)
    if not (is_short or site.is_secret) or text.startswith(REDACTED, position):
        return None
    if site.after["close"] == "]" and site.after["assigned"] != "=":
        return None  # an index, as in `seen[token] = x`
    found, is_decided = _in_lines(site)
    if is_decided:
        return found
    quoted = _QUOTED.match(text, position)
    if quoted is not None:
        found = _inside(quoted)
        is_no_secret = found is None or _is_folder(site, found) or _is_no_value(site, quoted)
        return None if is_no_secret else found
    last = site.name.lower()
    if last.endswith("authorization"):
        return _authorization(site)
    if last.endswith("cookie") and site.operator == ":":
        cookies = _COOKIES.match(text, position)
        if cookies is not None:
            return cookies.span()
    container = _CONTAINER.match(text, position)
    return _contained(site, container) if container is not None else _bare(site)


def _in_lines(site: _Site) -> tuple[_Span | None, bool]:
    """Return the secret on the lines after a name, if any, and whether no other form applies."""
    block = _BLOCK.match(site.text, site.position)
    if block is not None and site.operator == ":":
        return _in_a_block(site, block.end()), True
    continued = _CONTINUED.match(site.text, site.position)
    if continued is None or not _continues(site, continued):
        return None, False
    found = _on_next_lines(site.text, continued)
    return found, found is not None


def _in_a_block(site: _Site, position: int) -> _Span | None:
    """Return the lines that follow and are indented more than the name."""
    name = _BEFORE_YAML_NAME.search(site.before(100))
    if name is None:
        return None
    text, indent = site.text, len(name[1]) + 1
    lines = re.compile(rf"(?:\n[ \t]{{{indent},}}\S[^\n]*|\n[ \t]*(?=\n))*").match(text, position)
    if lines is None or not any(map(str.isalnum, lines.group())):
        return None
    start = position + len(lines.group()) - len(lines.group().lstrip())
    stop = start + len(lines.group().strip())
    return None if text[start:stop] == REDACTED else (start, stop)


def _continues(site: _Site, continued: re.Match[str]) -> bool:
    """Return whether the next line has the value, and not the body of `class Token:`."""
    if site.operator == "=":
        return continued.group()[0] in "(\\"
    if site.operator != ":":
        return False
    return bool(site.after["close"]) or _BEFORE_YAML_NAME.search(site.before(100)) is not None


def _on_next_lines(text: str, continued: re.Match[str]) -> _Span | None:
    """Return a text in quotes on the next lines, or in parentheses, of one or more parts."""
    first = part = _QUOTED.match(text, continued.end())
    while part is not None:
        last = part
        between = _BETWEEN_STRINGS.match(text, part.end())
        part = _QUOTED.match(text, between.end()) if between is not None else None
    if first is None:
        return None
    if continued.group()[0] in "\r\n" and first["triple"] is not None:
        return None  # the docstring of a function
    if continued.group()[0] == "(" and not _END_OF_STRINGS.match(text, last.end()):
        return None  # a tuple or code
    start, stop = first.span("inner" if first["triple"] is None else "long")
    stop = last.span("inner" if last["triple"] is None else "long")[1]
    if text[start:stop] == REDACTED or not any(map(str.isalnum, text[start:stop])):
        return None
    return start, stop


def _is_folder(site: _Site, value: _Span) -> bool:
    """Return whether a value is a folder, as in `PWD=/home/me`, outside of connection strings."""
    if not (is_folder_name(site.name) and is_path(site.text, value[0])):
        return False
    line = site.before(300).rpartition("\n")[2]
    following = site.text[value[1] : value[1] + 100]
    return not (
        (line.rstrip().endswith(";") and _CONNECTION.search(line)) or _CONNECTION.match(following)
    )


def _authorization(site: _Site) -> _Span | None:
    text = site.text
    match = _AUTHORIZATION.match(text, site.position)
    if match is None:
        return None
    value = match["value"]
    is_call = text[match.end() : match.end() + 1] == "(" and is_name_in_code(value)
    is_plain = is_reference(value) if site.is_assignment else is_word(value)
    if is_call or is_plain or not any(map(str.isalnum, value)):
        return None
    return match.span("value")


def _is_no_value(site: _Site, quoted: re.Match[str]) -> bool:
    """Return whether a quoted text is compared with a word, or starts at the end of another."""
    if site.operator in _COMPARISONS and not any(map(str.isdigit, quoted.group())):
        return True
    if site.after["close"]:
        return False
    # In `"Password: "` the quote after the colon closes a text that began before the name.
    quote = quoted["quote"] or quoted["triple"]
    content = quoted.start() + quoted.group().index(quote) + len(quote)
    following = site.text[content : content + 1]
    if following and following not in " \t\n)]},;:+%.":
        return False
    line = site.before(400).rpartition("\n")[2]
    mark = re.escape(quote)
    return len(re.findall(rf"(?<!\w){mark}|{mark}(?!\w)", line)) % 2 == 1


def _inside(quoted: re.Match[str]) -> _Span | None:
    """Return the content of a quoted text as a secret, unless it is empty."""
    group = "inner" if quoted["triple"] is None else "long"
    if quoted[group] == REDACTED or not any(map(str.isalnum, quoted[group])):
        return None
    return quoted.span(group)


def _quoted(text: str, position: int) -> _Span | None:
    match = _QUOTED.match(text, position)
    return _inside(match) if match is not None else None


def _cut(value: re.Match[str] | None, operator: str = "") -> _Span | None:
    """Return a value as a secret, without closing punctuation.

    After a percent-encoded operator, a percent-encoded separator ends the value.
    """
    if value is None:
        return None
    text, (start, stop) = value.string, value.span()
    if "%" in operator:
        ends = _END_OF_TWICE_ENCODED if "%25" in operator else _END_OF_ENCODED
        end = ends.search(text, start, stop)
        stop = end.start() if end is not None else stop
    while stop > start and text[stop - 1] in "}]>.,:":
        stop -= 1
    if text.startswith(REDACTED, start) or not any(map(str.isalnum, text[start:stop])):
        return None
    return start, stop


def _bare(site: _Site) -> _Span | None:
    """Return an unquoted value, unless it is code, a number of tokens or a word of a sentence."""
    text, begin, position = site.text, site.begin, site.position
    if _is_no_assignment(site):
        return None
    start = _START_OF_BARE.match(text, position)
    if start is None or _is_plain(site, start):
        return None
    before = site.before(1)
    if site.name.startswith("-") and site.operator == "=" and before in ("'", '"'):
        # The whole argument is in quotes, and may contain spaces.
        stop = text.find(text[begin - 1], position, position + 1000)
        if stop > 0 and "\n" not in text[position:stop]:
            return position, stop
    value = _QUERY_VALUE.match(text, position) if before in ("?", "&") else None
    if value is not None or not site.is_assignment:
        return _cut(value or _BARE.match(text, position), site.operator)
    found = _cut(_ASSIGNED.match(text, position), site.operator)
    # The arguments of a call, as in `password=SecretStr("x")`.
    arguments = _CONTAINER.match(text, found[1]) if found is not None else None
    if found is None or arguments is None or arguments.group()[0] != "(":
        return found
    return found[0], arguments.end()


def _is_no_assignment(site: _Site) -> bool:
    """Return whether the operator gives an unquoted value no name."""
    if site.operator in _COMPARISONS:
        return True  # or the version of a package
    if site.operator != ":":
        return False
    before = site.before(16)
    if before.endswith("/") or _FIELD_BEFORE.search(before):
        return True  # a path, or a parameter in a docstring
    return site.after["assigned"] == ":" and before.endswith((":", "@"))  # a URN or a host


def _is_plain(site: _Site, match: re.Match[str]) -> bool:
    """Return whether an unquoted value is code, a number of tokens or a word of a sentence."""
    name, operator, value = site.name, site.operator, match.group()
    spaced = site.text[site.position - 1] in " \t"
    in_a_call = site.is_in_a_call
    unspaced_colon = site.after["assigned"] == ":"
    if site.is_assignment:
        is_command = value == "$" and site.text[match.end() : match.end() + 1] == "("
        if is_command or is_reference(value):
            return True
    elif is_word(value) or is_called(match):
        return True
    if is_number(name, value, port=unspaced_colon, in_code=spaced or in_a_call):
        return True
    if _is_folder(site, match.span()):
        return True
    if is_short_name(name) and operator == ":" and name.lower().lstrip("-") != "pwd":
        return True
    if not (spaced or in_a_call or site.after["close"]):
        return False
    return is_code(name, match, colon=operator == ":", in_a_call=in_a_call)


def _contained(site: _Site, container: re.Match[str]) -> _Span | None:
    """Return a tuple, list or mapping with texts, or a value in braces as in `Pwd={x;y}`."""
    inner = container.group()[1:-1]
    if site.operator in _COMPARISONS:
        return None
    if site.is_assignment:
        is_list = _TOKENS.search(site.name) is not None and _SEVERAL.search(inner) is not None
        is_count = is_number(site.name, inner, port=False, in_code=True)
        is_plain = is_list or is_count or not any(map(str.isalnum, inner))
        return None if is_plain else container.span()
    if "token" in site.name.lower():
        return None
    in_braces = container.group()[0] == "{" and site.after["assigned"] == "="
    if '"' in inner or "'" in inner or (in_braces and not inner.isalpha()):
        return container.span() if any(map(str.isalnum, inner)) else None
    return None


def _paired(site: _Site) -> _Span | None:
    """Return the secret of `{"name": "DB_PASSWORD", "value": "x"}` and the like."""
    if not site.is_secret:
        return None
    if not site.after["close"] and not _LABEL_BEFORE.search(site.before(16)):
        return None
    if _QUOTED.match(site.text, site.position):
        return _quoted(site.text, site.position)
    return _cut(_BARE.match(site.text, site.position))


def _after_comma(site: _Site) -> _Span | None:
    """Return the secret of `("password", "x")`, or of the arguments `"--password", "x"`."""
    if not site.after["close"] or not (site.is_option or site.is_secret) or is_key(site.name):
        return None
    match = _QUOTED.match(site.text, site.position)
    found = _inside(match) if match is not None else None
    if match is None or found is None:
        return None
    if site.name.startswith("-"):
        value = site.text[found[0] : found[1]]
        is_declared = _DECLARATION_BEFORE.search(site.before(200)) is not None
        return None if value.startswith("-") or is_declared else found
    before = site.before(32)
    is_pair = _PAIR_BEFORE.search(before) and _END_OF_PAIR.match(site.text, match.end())
    return found if is_pair or _CALL_BEFORE.search(before) else None


def _called(site: _Site) -> _Span | None:
    """Return the arguments of `set_password("x")` and the like."""
    if site.after["close"] or not _SETTER.search(site.name) or not is_secret_name(site.name):
        return None
    if site.before(4) == "def ":
        return None
    container = _CONTAINER.match(site.text, site.position)
    if container is None or not ('"' in container.group() or "'" in container.group()):
        return None
    return container.span()


def _in_an_element(site: _Site) -> _Span | None:
    """Return the secret of XML's `<password>x</password>`."""
    opening = site.before(30).rpartition("<")
    if not opening[1] or " " in opening[2] or not site.is_secret:
        return None
    match = _ELEMENT.match(site.text, site.position)
    return match.span() if match is not None and match.group() != REDACTED else None


def _after_space(site: _Site) -> _Span | None:
    """Return the secret of `--password x`, `setenv TOKEN x`, `PASSWORD 'x'`, or of a netrc file."""
    if site.after["close"] or not (site.is_option or site.is_secret):
        return None
    text, position = site.text, site.position
    if not site.is_option:
        before = site.before(130)
        if not (_SETENV_BEFORE.search(before) or _LOGIN_BEFORE.search(before)):
            # SQL's `PASSWORD 'x'`
            return _quoted(text, position) if site.name.lower().startswith("pass") else None
    if text[position] == "-":
        return None
    if _QUOTED.match(text, position):
        return _quoted(text, position)
    start = _START_OF_BARE.match(text, position)
    if start is None or is_reference(start.group()):
        return None
    if start.group().isdecimal() and is_counted(site.name):
        return None
    return _cut(_BARE.match(text, position))


#: Function for each form in which a value may follow a name; the names are groups of `_AFTER`.
_FORMS: dict[str, Callable[[_Site], _Span | None]] = {
    "assigned": _assigned,
    "paired": _paired,
    "comma": _after_comma,
    "called": _called,
    "element": _in_an_element,
    "space": _after_space,
}
