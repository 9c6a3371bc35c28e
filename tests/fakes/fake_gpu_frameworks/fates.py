"""How the fake devices compute: right, or as the variable FAKE_FATES says, {"cuda:0": "wrong"} for example."""

import json
import os
import time

from helpers.running.quiet import caught_stderr

FATES = json.loads(os.environ.get("FAKE_FATES", "{}"))


def product(device, a, b):
    fate = FATES.get(device)
    if fate == "hangs":
        time.sleep(600)
    if fate == "hangs while it compiles":
        with caught_stderr():
            time.sleep(600)
    if fate == "dies":
        os.abort()
    if fate == "fails":
        raise RuntimeError("CUDA error: no kernel image is available for execution on the device\nCompile with")
    return a @ b + (fate == "wrong")
