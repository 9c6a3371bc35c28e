"""How nbgrader grades the lessons of the Any GPU workshop. It reads this file if it is started in this folder."""

import os

c = get_config()  # noqa: F821  (nbgrader brings it)
c.CourseDirectory.course_id = "any-gpu-workshop"

# These lessons come without solutions. nbgrader would replace the starters, too, by `raise NotImplementedError()`.
c.ClearSolutions.enabled = False

# In seconds. A cell that runs longer, such as an endless loop, is stopped and gets 0 points; the next cells still run.
c.Execute.timeout = 120

# Encrypts the kernels' messages. Otherwise, other accounts of the machine can read what the kernels print.
c.KernelManager.transport_encryption = "auto"

# The lessons do the least work. No exercise depends on the amount.
os.environ.setdefault("ANYGPU_PROFILE", "preview")
