"""Segments: the format of their frames, encoding and decoding columns, and reading a file.

``frames`` frames and checks bytes, ``encode`` turns columns into typed bytes, ``decode`` turns
frames into checked columns, ``assemble`` turns these into Arrow. ``values`` and ``earlier`` check
the encodings of this format and of format 1. ``read`` reads the segment of one process.
"""
