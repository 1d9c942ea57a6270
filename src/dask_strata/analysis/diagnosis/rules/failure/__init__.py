"""Rules for causes of the area failure: one file a cause."""
