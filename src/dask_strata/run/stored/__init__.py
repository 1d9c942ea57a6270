"""Reading finalised runs: views of their Parquet, partitions of it, and kept derived tables."""
