"""Making runs of records that others made."""
