"""Whether a cluster is recorded, or would be recorded, and the remedy otherwise."""
