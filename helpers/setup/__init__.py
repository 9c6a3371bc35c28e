"""What workshop.py builds the environment with: Python 3.8 or newer runs it, without any package."""
