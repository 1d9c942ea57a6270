"""Chunks of the user's data: their workers, times, events and the bytes that they read."""
