"""Rules for causes of the area parallelism: one file a cause."""
