"""Whether a cluster is recorded, or would be recorded, and what to change otherwise."""
