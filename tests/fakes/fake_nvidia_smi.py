"""Stands in for nvidia-smi on a machine without an NVIDIA GPU; FAKE_MODE says how it behaves.

Two GPUs. The second is busy while the file FAKE_LOAD exists, so that a test can load and unload it.
"""

import os
import sys
import time
from pathlib import Path

mode = os.environ["FAKE_MODE"]
arguments = dict(argument.split("=", 1) for argument in sys.argv[1:] if "=" in argument)
fields = arguments["--query-gpu"].split(",")
only = arguments.get("--id")
load = Path(os.environ["FAKE_LOAD"]).exists()

if mode == "hangs later" and only and load:
    time.sleep(60)
if mode == "fails":
    sys.exit("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.")
if mode == "garbage":
    sys.exit(print("\0\xff<<< not, a, table >>>\n\n,,,,") or 0)

names = ("index", "pci.bus_id", "name", "utilization.gpu")
gpus = [
    ("0", "00000000:01:00.0", "NVIDIA GeForce RTX 4090" if mode == "twins" else "NVIDIA GeForce RTX 3060", "1"),
    ("1", "00000000:2F:00.0", "NVIDIA GeForce RTX 4090", "[N/A]" if mode == "nothing" else "97" if load else "2"),
]
for gpu in gpus:
    if only in (None, gpu[0]):
        print(", ".join(dict(zip(names, gpu, strict=True))[field] for field in fields))
