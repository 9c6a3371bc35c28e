"""Stands in for nvidia-smi on a machine without an NVIDIA GPU; FAKE_MODE says how it behaves.

Two GPUs. The second is busy while the file FAKE_LOAD exists, so that a test can load and unload it.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

mode = os.environ.get("FAKE_MODE", "works")
arguments = dict(argument.split("=", 1) for argument in sys.argv[1:] if "=" in argument)
fields = arguments["--query-gpu"].split(",")
only = arguments.get("--id")

if mode == "hangs" or (mode == "hangs later" and only and Path(os.environ["FAKE_LOAD"]).exists()):
    child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
    Path(os.environ["FAKE_PIDS"]).write_text(f"{os.getpid()} {child.pid}")
    time.sleep(60)
if mode == "fails" or (mode == "fails later" and only and Path(os.environ["FAKE_LOAD"]).exists()):
    sys.exit("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.")
if mode == "garbage":
    sys.exit(print("\0\xff<<< not, a, table >>>\n\n,,,,") or 0)

load = Path(os.environ["FAKE_LOAD"]).exists()
gpus = [
    {
        "index": "0",
        "pci.bus_id": "00000000:01:00.0",
        "name": "NVIDIA GeForce RTX 3060",
        "utilization.gpu": "1",
        "power.draw": "14.31",
    },
    {
        "index": "1",
        "pci.bus_id": "00000000:2F:00.0",
        "name": "NVIDIA GeForce RTX 4090",
        "utilization.gpu": "97" if load else "2",
        "power.draw": "401.50" if load else "21.07",
    },
]
if mode == "twins":
    gpus[0]["name"] = gpus[1]["name"]
if mode == "no utilisation":
    gpus[1]["utilization.gpu"] = "[N/A]"
if mode == "nothing":
    gpus[1].update({"utilization.gpu": "[N/A]", "power.draw": "[N/A]"})
for gpu in gpus:
    if only in (None, gpu["index"]):
        print(", ".join(gpu[field] for field in fields))
