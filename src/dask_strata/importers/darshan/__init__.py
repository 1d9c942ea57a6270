"""Darshan logs, added to a run."""
