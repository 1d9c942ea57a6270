"""Rules for causes of the area memory: one file a cause."""
