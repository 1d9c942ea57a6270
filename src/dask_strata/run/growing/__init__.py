"""Runs that grow: their derived tables are computed again only for the keys that have new rows."""
