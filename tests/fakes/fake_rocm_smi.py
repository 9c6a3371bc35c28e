"""Stands in for rocm-smi on a machine without an AMD GPU; the keys are those that it really writes."""

import json
import os
import sys
from pathlib import Path

load = Path(os.environ["FAKE_LOAD"]).exists()
if "--showbus" in sys.argv:
    cards = {"card0": {"Card Series": "AMD Radeon RX 6600 XT", "PCI Bus": "0000:2F:00.0"}}
else:
    cards = {
        "card0": {
            "Temperature (Sensor edge) (C)": "51.0",
            "Temperature (Sensor junction) (C)": "55.0",
            "Max Graphics Package Power (W)": "560.0",
            "Average Graphics Package Power (W)": "118.0" if load else "9.0",
            "GPU use (%)": "99" if load else "0",
            "GFX Activity": "2469071528",
        }
    }
print("WARNING: AMD GPU device(s) is/are in a low-power state. Check power control/runtime_status\n")
print(json.dumps({**cards, "system": {"Driver version": "6.1.2"}}))
