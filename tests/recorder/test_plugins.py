"""The pickled plugins for workers and nannies contain only names and data."""

from __future__ import annotations

import pickle
import pickletools
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
import pytest
from distributed.diagnostics.plugin import NannyPlugin, WorkerPlugin

from dask_strata.config import read_settings, understood
from dask_strata.recorder.plugins import (
    StrataNannyPlugin,
    StrataWorkerPlugin,
    dumps_nanny_plugin,
    dumps_worker_plugin,
)

SPEC = {"run": "0a1b2c3d", "folder": "/runs/x", "settings": {"yappi.roles": ("worker",)}}

DUMPS = pytest.mark.parametrize(
    ("dumps", "own", "base"),
    [
        (dumps_worker_plugin, StrataWorkerPlugin, WorkerPlugin),
        (dumps_nanny_plugin, StrataNannyPlugin, NannyPlugin),
    ],
)

#: Functions and classes that a pickle may name.
ALLOWED = {
    "builtins.Exception",
    "builtins.dict",
    "builtins.getattr",
    "distributed.diagnostics.plugin.NannyPlugin",
    "distributed.diagnostics.plugin.WorkerPlugin",
    "distributed.protocol.pickle.loads",
    "functools.partial",
    "importlib.import_module",
    "logging.getLogger",
    "operator.itemgetter",
    "operator.methodcaller",
    "toolz.functoolz.Compose",
    "toolz.functoolz.excepts",
    "toolz.functoolz.return_none",
}


def named(dumped: bytes) -> Iterator[str]:
    """Yield the names in a pickle and in the pickles inside it."""
    texts: list[Any] = []
    memo: list[Any] = []
    for opcode, argument, _ in pickletools.genops(dumped):
        if opcode.name == "STACK_GLOBAL":
            yield f"{texts[-2]}.{texts[-1]}"
        elif opcode.name == "MEMOIZE":
            memo.append(texts[-1] if texts else None)
        elif opcode.name == "BINGET":
            texts.append(memo[argument])
        elif isinstance(argument, str):
            texts.append(argument)
        elif isinstance(argument, bytes) and argument[:2] == b"\x80\x04":
            yield from named(argument)
        assert opcode.name not in {"GLOBAL", "INST", "EXT1", "EXT2", "EXT4", "PERSID", "BINPERSID"}


@DUMPS
def test_a_pickle_has_names_only(dumps: Callable[[Any], bytes], own: type, base: type) -> None:
    """A pickle has no code, only names of functions outside of dask-strata, and plain data."""
    found = set(named(dumps(SPEC)))
    assert found <= ALLOWED, found - ALLOWED
    assert "importlib.import_module" in found
    assert set(named(cloudpickle.dumps(lambda: None))) - ALLOWED, "the test would not find code"


@DUMPS
def test_a_pickle_is_the_same_each_time(
    dumps: Callable[[Any], bytes], own: type, base: type
) -> None:
    """Its bytes depend on the spec only, and its protocol is known to each Python."""
    assert dumps(SPEC) == dumps(dict(SPEC))
    assert dumps(SPEC)[:2] == b"\x80\x04"


@DUMPS
def test_with_the_package_the_plugin_is_its_own(
    dumps: Callable[[Any], bytes], own: type, base: type
) -> None:
    """The pickle loads as the plugin of the installed version, with the spec."""
    plugin = pickle.loads(dumps(SPEC))
    assert type(plugin) is own
    assert plugin._spec == SPEC
    assert getattr(plugin, "restart", False) is False


@DUMPS
def test_with_an_early_version_the_plugin_is_that_versions(
    dumps: Callable[[Any], bytes], own: type, base: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Early versions have a function of the same name, which returns their own pickle."""
    module = "dask_strata.recorder.plugins"
    dumped = dumps(SPEC)
    early = base()
    monkeypatch.delattr(f"{module}.{own.__name__}")
    monkeypatch.setattr(
        f"{module}.{dumps.__name__}", lambda spec: pickle.dumps((early, spec), protocol=4)
    )
    plugin, spec = pickle.loads(dumped)
    assert (type(plugin), spec) == (base, SPEC)


ABSENT = """
import pickle, sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "dask_strata":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hide())
class Worker:
    def log_event(self, topic, message):
        print(topic, message)
from distributed.diagnostics.plugin import NannyPlugin, WorkerPlugin
for dumped in sys.argv[1:]:
    plugin = pickle.loads(bytes.fromhex(dumped))
    print(type(plugin).__name__)
    if type(plugin) is WorkerPlugin:
        plugin.setup(worker=Worker())
"""


def test_without_the_package_the_plugin_is_one_of_dasks() -> None:
    """It only reports the missing package, once in the log and once to the scheduler."""
    dumped = [dumps(SPEC).hex() for dumps in (dumps_worker_plugin, dumps_nanny_plugin)]
    done = subprocess.run(
        [sys.executable, "-c", ABSENT, *dumped], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [
        "WorkerPlugin",
        "dask-strata-0a1b2c3d {'not-recorded': 'dask-strata cannot be imported there'}",
        "NannyPlugin",
    ]
    assert done.stderr == (
        "dask-strata does not record this worker: No module named 'dask_strata'\n"
    )


def test_known_settings_of_another_version_are_used() -> None:
    """Unknown settings are listed; settings with default values are not sent."""
    received = {"flush-interval": 0.2, "quantum-mode": True, "yappi": {"clock": "cpu", "spin": 1}}
    known, unknown = understood(received)
    assert known == {"flush-interval": 0.2, "yappi.clock": "cpu"}
    assert unknown == ("quantum-mode", "yappi.spin")
    chosen = read_settings(known).chosen()
    assert chosen == {"flush-interval": 0.2, "yappi.clock": "cpu"}
    assert read_settings(chosen) == read_settings(known)
    assert understood(vars(read_settings(known)))[1] == ()
    assert read_settings(understood(vars(read_settings(known)))[0]) == read_settings(known)
