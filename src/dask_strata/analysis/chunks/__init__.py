"""Chunks of user-visible data: which worker processed them, how fast, and what they read."""
