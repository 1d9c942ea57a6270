"""OTLP over HTTP: requests to a receiver, repeated after the answers that the protocol names."""

from __future__ import annotations

import http.client
import json
import time
from types import TracebackType
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

if TYPE_CHECKING:
    from typing_extensions import Self

from dask_strata.errors import StrataError, UsageError

#: Answers after which a request is sent again: the receiver is busy or starts.
_AGAIN = frozenset({429, 502, 503, 504})

#: Seconds between attempts to send a request.
_WAITS = (0.5, 1.0, 2.0, 4.0, 8.0)

#: Longest wait that a receiver can ask for, and longest time for an answer, in seconds.
_LONGEST_WAIT = 30.0
_TIMEOUT = 60.0

#: Most bytes of an answer that are read.
_ANSWER = 65_536

_NEEDS_HEADER = "It may need a header, such as --header x-mlflow-experiment-id=0 for MLflow."

#: Path of a receiver whose URL has none.
_PATH = "/v1/traces"


class Receiver:
    """A receiver of traces; a context that ends the connection.

    Parameters
    ----------
    url : str
        Its ``http://`` or ``https://`` URL; without a path, ``/v1/traces`` is added.
    headers : str
        Further headers, ``NAME=VALUE`` on each line.

    Attributes
    ----------
    n_requests : int
        Requests that it accepted.
    rejected : int
        Spans that it rejected in these requests.
    reason : str
        Why.

    Raises
    ------
    UsageError
        The URL or a header cannot be used.
    """

    def __init__(self, url: str, headers: str = "") -> None:
        self._url = _checked(url)
        self._headers = {"Content-Type": "application/json", **_headers(headers)}
        self._connection: http.client.HTTPConnection | None = None
        self.n_requests = 0
        self.rejected = 0
        self.reason = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close()

    @property
    def _where(self) -> str:
        return f"{self._url.scheme}://{self._url.netloc}{self._url.path or _PATH}"

    def post(self, body: bytes) -> None:
        """Send a request, and wait until the receiver has accepted it.

        Raises
        ------
        StrataError
            The receiver cannot be reached, or refuses the request.
        """
        for wait in (*_WAITS, None):
            try:
                status, answer, longer = self._exchange(body)
            except (OSError, http.client.HTTPException) as error:
                self._close()
                if wait is None:
                    raise self._unreachable(error) from error
                time.sleep(wait)
                continue
            if status in _AGAIN and wait is not None:
                time.sleep(wait if longer is None else min(max(longer, wait), _LONGEST_WAIT))
                continue
            if not 200 <= status < 300:  # noqa: PLR2004  success
                raise self._refused(status, answer)
            self._read(answer)
            return

    def _exchange(self, body: bytes) -> tuple[int, bytes, float | None]:
        """Send a request once; return the status, the answer and the wait that it asks for."""
        if self._connection is None:
            secure = self._url.scheme == "https"
            kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
            self._connection = kind(self._url.hostname or "", self._url.port, timeout=_TIMEOUT)
        path = self._url.path or _PATH
        target = f"{path}?{self._url.query}" if self._url.query else path
        self._connection.request("POST", target, body, self._headers)
        answer = self._connection.getresponse()
        text = answer.read(_ANSWER)
        if answer.will_close or answer.read(1):
            self._close()  # the rest of the answer is not read
        return answer.status, text, _seconds(answer.headers.get("Retry-After"))

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _read(self, answer: bytes) -> None:
        """Count accepted requests and rejected spans."""
        self.n_requests += 1
        try:
            partial = json.loads(answer or b"{}").get("partialSuccess", {})
            rejected = int(partial.get("rejectedSpans", 0))
        except (ValueError, AttributeError, TypeError, RecursionError):
            return  # an answer in another format is success by its status
        if rejected > 0:
            self.rejected += rejected
            self.reason = str(partial.get("errorMessage", ""))[:300] or "no reason was given."

    def _unreachable(self, error: Exception) -> StrataError:
        return StrataError(
            f"{self._where} cannot be reached: {error or type(error).__name__}. "
            f"{self.n_requests:,} requests were sent before.",
            hint="Check the URL, and that the receiver takes OTLP over HTTP (port 4318, not 4317).",
        )

    def _refused(self, status: int, answer: bytes) -> StrataError:
        text = " ".join(answer.decode("utf-8", "replace").split())[:300]
        hints = {
            400: _NEEDS_HEADER,
            401: "Give credentials: --header Authorization='Bearer …'.",
            403: "Give credentials: --header Authorization='Bearer …'.",
            404: "Check the path of the URL: it is /v1/traces for most receivers.",
            415: "The receiver does not take OTLP in JSON.",
            422: _NEEDS_HEADER,
        }
        return StrataError(
            f"{self._where} refused a request: {status} {http.client.responses.get(status, '')}: "
            f"{text or 'no text'}. {self.n_requests:,} requests were accepted before.",
            hint=hints.get(status),
        )


def _checked(url: str) -> SplitResult:
    try:
        found = urlsplit(url)
        usable = bool(found.hostname) and found.port != 0
    except ValueError:
        usable = False
    if not usable or found.scheme not in {"http", "https"}:
        raise UsageError(f"{url} is no URL of a receiver.", hint="Such as http://localhost:4318")
    if found.username is not None or found.password is not None:
        raise UsageError(
            "A URL of a receiver cannot have a user and password.",
            hint="Give them as a header: --header Authorization='Basic …'",
        )
    if any(character <= " " or character == "\x7f" for character in url):
        raise UsageError("The URL has blanks or control characters.")
    return found


def _headers(lines: str) -> dict[str, str]:
    found = {}
    for line in lines.splitlines():
        name, equals, value = line.partition("=")
        name = name.strip()
        usable = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
        if not equals or not usable or not value.isprintable():
            raise UsageError(
                f"The header {name!r} cannot be sent.", hint="Give it as --header NAME=VALUE"
            )
        found[name] = value.strip()
    return found


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isascii() and text.isdecimal() else None
