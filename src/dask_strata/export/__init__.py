"""Runs in the formats of other tools, and in tables that every tool reads."""
