"""A number with its device and spread; a figure; a table."""
