"""Entries of logs on a terminal, one line each, and new ones while a run is recorded."""
