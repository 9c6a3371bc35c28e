"""Stands in for amd-smi on a machine without an AMD GPU; FAKE_MODE is "list" (ROCm 6) or "gpu_data" (ROCm 7 and newer).

The shapes are those of `amd-smi static` and `amd-smi metric` as people have published them.
"""

import json
import os
import sys
from pathlib import Path

mode = os.environ.get("FAKE_MODE", "gpu_data")
if mode == "fails":
    sys.exit("AMDSMI_STATUS_DRIVER_NOT_LOADED: amdgpu not found in modules")
load = Path(os.environ["FAKE_LOAD"]).exists()
new = mode == "gpu_data"


def value(number, unit):
    return {"value": number, "unit": unit}


if sys.argv[1] == "static":
    entries = [
        {"gpu": 0, "asic": {"market_name": "AMD Radeon Graphics"}, "bus": {"bdf": "0000:05:00.0"}},
        {"gpu": 1, "asic": {"market_name": "AMD Radeon RX 7800 XT"}, "bus": {"bdf": "0000:2f:00.0"}},
    ]
else:
    entries = [
        {
            "gpu": int(sys.argv[sys.argv.index("--gpu") + 1]),
            "usage": {
                "gfx_activity": value(95 if load else 1, "%"),
                "umc_activity": value(0, "%"),
                "jpeg_activity": ["N/A"],
            },
            "power": {"socket_power": value(210 if load else 22, "W"), "gfx_voltage": "N/A"},
            "temperature": {"edge": "N/A" if new else value(44, "C"), "hotspot": value(60, "C")},
        }
    ]
print("WARNING: User is missing the following required groups: render, video. [see the docs]")
print(json.dumps({"gpu_data": entries} if new else entries, indent=4))
