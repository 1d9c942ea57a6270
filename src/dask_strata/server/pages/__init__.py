"""The pages of the history server: the list, a run, its tables, SQL."""
