"""Untrusted input: no crash, no hang, no excessive memory, no access outside of a run."""
