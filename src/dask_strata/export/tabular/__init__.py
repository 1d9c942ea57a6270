"""All tables of a run, in formats that tools for tables open: Parquet, CSV, SQLite, DuckDB."""
