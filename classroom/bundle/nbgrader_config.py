"""How nbgrader grades the lessons of the Any GPU workshop: it reads this file when it is called in this folder."""

import os

c = get_config()  # noqa: F821  (nbgrader brings it)
c.CourseDirectory.course_id = "any-gpu-workshop"

# These lessons come without solutions. nbgrader would replace the starters, too, by `raise NotImplementedError()`.
c.ClearSolutions.enabled = False

# Seconds. A cell that takes longer, such as an endless loop, is stopped and gets 0 points; the next cells still run.
c.Execute.timeout = 120

# Kernels are encrypted: else other accounts of the machine can read what they print.
c.KernelManager.transport_encryption = "auto"

# The lessons do the least work: no exercise depends on it.
os.environ.setdefault("ANYGPU_PROFILE", "preview")
