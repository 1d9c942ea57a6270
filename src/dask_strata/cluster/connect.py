"""Connecting to the user's cluster by its address."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dask_strata.recorder.copying.address import scheduler_address
from dask_strata.recorder.doctor.connect import look, unreachable


@contextmanager
def connected(address: str, seconds: float = 10.0) -> Iterator[Any]:
    """Connect a client that is not recorded itself, for the duration of the block.

    Parameters
    ----------
    address : str
        Address of the scheduler, or path of its scheduler file.
    seconds : float, optional
        Longest time to wait for a connection.

    Yields
    ------
    distributed.Client

    Raises
    ------
    UsageError
        The address is not one.
    StrataError
        No scheduler answers there.
    """
    import dask
    from distributed import Client

    target = scheduler_address(address)
    look(target, seconds)
    without_preloads: dict[str, list[str]] = {
        "distributed.client.preload": [],
        "distributed.client.preload-argv": [],
    }
    try:
        with dask.config.set(without_preloads):
            client = Client(
                target, timeout=seconds, set_as_default=False, name="dask-strata-compact"
            )
    except (OSError, ValueError, TypeError, RuntimeError) as error:  # for example without keys
        raise unreachable(target, str(error) or type(error).__name__) from error
    try:
        yield client
    finally:
        client.close(timeout=2)
