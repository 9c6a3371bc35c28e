"""Stands in for Windows' PowerShell: one 3D engine of the process that the script asks for."""

import os
import re
import sys
from pathlib import Path

script = sys.argv[-1]
pid = re.search(r"-like 'pid_(\d+)_\*'", script).group(1)
if "Win32_PerfFormattedData_GPUPerformanceCounters_GPUEngine" not in script or int(pid) != os.getppid():
    sys.exit("not asked as expected")
busy = 88 if Path(os.environ["FAKE_LOAD"]).exists() else 0
print(f"{busy} pid_{pid}_luid_0x00000000_0x00016BCB_phys_0_eng_0_engtype_3D\r\nend\r")
