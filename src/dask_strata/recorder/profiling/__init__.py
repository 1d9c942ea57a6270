"""Profiles by choice: Yappi in recorded processes, Darshan in workers."""
