"""Rules for causes of the area machine: one file a cause."""
