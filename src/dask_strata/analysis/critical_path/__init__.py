"""The critical path: the cause of each second of the makespan."""
