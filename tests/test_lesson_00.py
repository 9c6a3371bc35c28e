"""helpers.load: real work on every framework that is installed here, and done when it returns."""

import subprocess
import sys

import pytest

from helpers import devices
from helpers.devices import Device
from helpers.errors import WorkshopError
from helpers.lessons import lesson_00

WORK = """
import sys, time
from helpers import devices
from helpers.lessons import lesson_00
device = devices.pick([devices.ask(sys.argv[1])])
work = lesson_00.keep_busy(device)
before = time.process_time()
for _ in range(5):  # a slice is sized by the clock, and a busy machine leaves it little of the processor
    assert work() is None
print("seconds of processor time:", time.process_time() - before, "on", device.kind)
"""


@pytest.mark.parametrize("framework", lesson_00.LOADS)
def test_the_load_is_real_work_that_is_done_when_it_returns(framework):
    if not devices.installed(framework):
        pytest.skip(f"{framework} is not installed here")
    done = subprocess.run([sys.executable, "-c", WORK, framework], capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    seconds, kind = done.stdout.split(":")[1].split(" on ")
    # On a CPU the work is processor time of this process; on a GPU it is waited for.
    assert kind.strip() != "cpu" or float(seconds) > 0.001
    assert done.stderr == "" or framework == "jax"


def test_a_framework_without_a_load_says_what_to_choose():
    with pytest.raises(WorkshopError, match="no load for onnxruntime") as caught:
        lesson_00.keep_busy(Device("onnxruntime", "CPUExecutionProvider", "AMD EPYC", "cpu"))
    assert "opencl" in caught.value.next
