"""A device, a process, a dataset, a backend."""
