"""Static facts of a process: job, machine, script, configuration, packages."""
