"""The critical path: what each second of the makespan waited for."""
