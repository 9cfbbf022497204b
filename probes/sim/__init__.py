"""A simulated engine, as a process, for machines without one."""
