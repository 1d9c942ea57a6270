"""Rules for causes of the area data: one file a cause."""
