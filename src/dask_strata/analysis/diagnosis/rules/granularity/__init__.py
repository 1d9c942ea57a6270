"""Rules for causes of the area granularity: one file a cause."""
