"""Logs: records of Python's logging, warnings, and what worker processes write to 1 and 2."""
