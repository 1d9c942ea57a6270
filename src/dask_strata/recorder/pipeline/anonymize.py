"""Replacement of left-out facts before rows are encoded; see the setting ``leave-out``.

The recorder's thread does this, only if something is left out.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dask_strata.config import Settings
from dask_strata.store.segments.frames import Batch, Encoder
from dask_strata.store.segments.replacing import Replacing


def with_secret(settings: Settings) -> Settings:
    """Return settings with a secret, so that all processes of a run compute the same hashes.

    Settings that leave nothing out, or have a secret already, are returned unchanged.
    """
    if not settings.leave_out or settings.leave_out_secret:
        return settings
    return replace(settings, leave_out_secret=secrets.token_hex(16))


def left_out(settings: Settings) -> tuple[str, ...]:
    """Return the classes of facts that the settings leave out, as in the setting ``leave-out``.

    The class ``inputs`` stands for the setting of this name.
    """
    return tuple(sorted({*settings.leave_out, *(() if settings.inputs else ("inputs",))}))


def encoder_for(settings: Settings, process: str, facts: Mapping[str, Any]) -> Encoder:
    """Return an encoder of frames that replaces left-out facts.

    Parameters
    ----------
    settings : Settings
        Settings with the left-out classes and the secret of the run.
    process : str
        Id of the process.
    facts : mapping
        Facts of the process for the header of its segment.
    """
    if not settings.leave_out:
        return Encoder(process, facts)
    return _ReplacingEncoder(settings, process, facts)


class _ReplacingEncoder(Encoder):
    def __init__(self, settings: Settings, process: str, facts: Mapping[str, Any]) -> None:
        self._replacing = Replacing(settings)
        super().__init__(process, self._replacing.facts(facts))

    def frame(self, batches: Sequence[Batch]) -> bytes:
        """Return the frame of these batches, with left-out facts replaced."""
        return super().frame([self._replacing.batch(batch) for batch in batches])
