"""Add Darshan's logs to a run."""
