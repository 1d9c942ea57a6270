"""Rules for causes of the area scheduling: one file a cause."""
