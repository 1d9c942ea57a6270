"""Bytes that come from anywhere: no crash, no hang, no bomb, no way out of a run."""
