"""A training: its data, its networks, its backend, its progress and its checkpoints."""
