"""`python -m helpers.doctor NAME`: one probe, in a subprocess that can be killed; its findings as JSON."""

from __future__ import annotations

import contextlib
import json
import sys
from dataclasses import asdict

from helpers import doctor
from helpers.compute.host import Host

if __name__ == "__main__":
    (probe,) = (probe for probe in doctor.PROBES if probe.name == sys.argv[1])
    with contextlib.redirect_stdout(sys.stderr):
        seen = [item if isinstance(item, str) else asdict(item) for item in probe.look(Host.here())]
    print(json.dumps(seen))
