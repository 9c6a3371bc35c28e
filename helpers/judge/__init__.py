"""Judge a learner's answer, and record what a kernel touches."""
