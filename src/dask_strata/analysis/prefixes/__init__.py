"""Prefixes: how long their tasks computed, and when."""
