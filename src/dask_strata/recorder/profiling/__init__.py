"""Profilers on request: Yappi in recorded processes, Darshan in workers."""
