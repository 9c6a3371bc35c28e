"""What every test shares: little work unless a profile was asked for."""

import os

os.environ.setdefault("ANYGPU_PROFILE", "preview")
