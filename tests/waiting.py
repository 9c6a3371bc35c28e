"""Waiting for what comes true, without waiting longer than needed, and whether a process still runs."""

import contextlib
import time

import psutil


def alive(process):
    """Whether a process of psutil's, or that of a number, still runs; one that only waits to be collected does not."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = process if isinstance(process, psutil.Process) else psutil.Process(process)
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def in_the_end(condition, seconds=300):
    """Whether a condition comes true."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True
