"""Is the learner's answer right, and who touched what."""
