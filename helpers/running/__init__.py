"""Processes that end: a function or a command in processes of its own, silence, and what works around a library."""
