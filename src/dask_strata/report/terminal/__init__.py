"""Terminals: the console, and tables on it. Nothing here imports Arrow."""
