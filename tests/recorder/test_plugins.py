"""What Dask carries to workers and nannies for us is names, and data."""

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
    ("dumps", "ours", "base"),
    [
        (dumps_worker_plugin, StrataWorkerPlugin, WorkerPlugin),
        (dumps_nanny_plugin, StrataNannyPlugin, NannyPlugin),
    ],
)

#: All that a pickle of ours may name.
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
    """Yield what a pickle names, also the pickles that it holds."""
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
def test_a_pickle_has_names_only(dumps: Callable[[Any], bytes], ours: type, base: type) -> None:
    """No code travels: nothing but functions that are there without us, and plain data."""
    found = set(named(dumps(SPEC)))
    assert found <= ALLOWED, found - ALLOWED
    assert "importlib.import_module" in found
    assert set(named(cloudpickle.dumps(lambda: None))) - ALLOWED, "the test would not notice"


@DUMPS
def test_a_pickle_is_the_same_each_time(
    dumps: Callable[[Any], bytes], ours: type, base: type
) -> None:
    """Its bytes depend on what is asked for only, in a protocol that each Python knows."""
    assert dumps(SPEC) == dumps(dict(SPEC))
    assert dumps(SPEC)[:2] == b"\x80\x04"


@DUMPS
def test_where_the_package_is_the_plugin_is_ours(
    dumps: Callable[[Any], bytes], ours: type, base: type
) -> None:
    """It is the one of the version that is there, and has what it was asked."""
    plugin = pickle.loads(dumps(SPEC))
    assert type(plugin) is ours
    assert plugin._spec == SPEC
    assert getattr(plugin, "restart", False) is False


@DUMPS
def test_where_an_early_version_is_the_plugin_is_that_ones(
    dumps: Callable[[Any], bytes], ours: type, base: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Early versions have a function of the same name, which returns a pickle of their own."""
    module = "dask_strata.recorder.plugins"
    dumped = dumps(SPEC)
    early = base()
    monkeypatch.delattr(f"{module}.{ours.__name__}")
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


def test_where_the_package_is_not_the_plugin_is_one_of_dasks() -> None:
    """It does nothing but say, once in the log and once to the scheduler, that it is not there."""
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


def test_settings_of_another_version_are_used_as_far_as_they_are_known() -> None:
    """What this version does not know is named; what differs from no default is not sent."""
    asked = {"flush-interval": 0.2, "quantum-mode": True, "yappi": {"clock": "cpu", "spin": 1}}
    known, unknown = understood(asked)
    assert known == {"flush-interval": 0.2, "yappi.clock": "cpu"}
    assert unknown == ("quantum-mode", "yappi.spin")
    chosen = read_settings(known).chosen()
    assert chosen == {"flush-interval": 0.2, "yappi.clock": "cpu"}
    assert read_settings(chosen) == read_settings(known)
    assert understood(vars(read_settings(known)))[1] == ()
    assert read_settings(understood(vars(read_settings(known)))[0]) == read_settings(known)
