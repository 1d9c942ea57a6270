"""Profiles that Yappi and Python saved, added to a run."""
