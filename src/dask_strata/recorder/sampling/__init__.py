"""Samples of threads: why tasks and the client's thread wait, and at which line."""
