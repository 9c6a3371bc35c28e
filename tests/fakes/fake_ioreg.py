"""Stands in for macOS' ioreg, with the accelerator of an Apple M4 as it is really written."""

import os
import sys
from pathlib import Path

if sys.argv[1:] != ["-r", "-d", "1", "-w", "0", "-c", "IOAccelerator"]:
    sys.exit(f"not asked as expected: {sys.argv[1:]}")
busy = 93 if Path(os.environ["FAKE_LOAD"]).exists() else 4
print("+-o AGXAcceleratorG16X  <class AGXAcceleratorG16X, id 0x100000a0b, registered, matched, active, busy 0 (3 ms)>")
statistic = f'"Device Utilization %"={busy}' if os.environ["FAKE_MODE"] == "works" else ""
print('    {\n      "model" = "Apple M4 Max"')
print(f'      "PerformanceStatistics" = {{"Tiler Utilization %"=2,{statistic}}}\n    }}')
