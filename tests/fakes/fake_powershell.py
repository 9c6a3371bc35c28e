"""Stands in for Windows' PowerShell: engines of the process that the script asks for, one of which only copies."""

import os
import re
import sys
from pathlib import Path

script = sys.argv[-1]
pid = re.search(r"-like 'pid_(\d+)_\*'", script).group(1)
if "Win32_PerfFormattedData_GPUPerformanceCounters_GPUEngine" not in script or int(pid) != os.getppid():
    sys.exit("not asked as expected")
busy = {"3D": 12, "Compute 0": 30, "Cuda": 8} if Path(os.environ["FAKE_LOAD"]).exists() else {}
for number, (kind, percent) in enumerate({**busy, "Copy": 50}.items()):
    print(f"{percent} pid_{pid}_luid_0x00000000_0x00016BCB_phys_0_eng_{number}_engtype_{kind}", end="\r\n")
print("Get-CimInstance : Invalid class" if os.environ["FAKE_MODE"] == "fails" else "end\r")
