"""Errors of reading the content of a frame."""

from __future__ import annotations


class FrameError(ValueError):
    """The content of a payload does not follow the format, although its checksum matches."""


class LargeFrameError(FrameError):
    """A payload would take more memory than the limits allow."""
