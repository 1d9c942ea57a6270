"""Derived tables: SQL over the recorded ones."""
