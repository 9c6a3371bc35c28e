"""One framework on one device in a fresh process: prepare some works, check them, then time them in turn.

    python -m helpers.ranking.worker FRAMEWORK IDENTIFIER KIND SECONDS TASK...

`helpers.ranking.measuring` starts it. Every line on standard output is JSON, written as soon as it is known, so that a
process that crashes or hangs costs what comes after, and nothing before:

    {"version": "2.21.0"}
    {"task": "memory copy", "what": "...", "amount": 134217728.0, "first": 0.1, "loops": 1, "checked": "..."}
    {"task": "16-bit product", "why_not": "..."}
    {"task": "memory copy", "seconds": 0.012}
    {"used": 12.3}

The last one is the processor time of the process.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from importlib import metadata

from helpers.compute import products
from helpers.ranking import kernels, networks
from helpers.ranking.tasks import MEMORY, PEAK, PRODUCT, Prepare, Work

LEAST_SECONDS = 0.02  # of one value: a shorter work is done several times in a row
LEAST_VALUES = 3  # of each work, even where the time is up: fewer have no spread
MOST_VALUES = 25  # of each work in one process: processes differ by more than the values of one, so more of them help

# For each framework what prepares its works on one device, as {task: prepare}. Each work ends with the framework's own
# way of waiting for the device: without it a clock would measure how fast work is handed over.
FRAMEWORKS: dict[str, Callable[[str, str], dict[str, Prepare]]] = {
    "numpy": kernels.by_numpy,
    "opencl": kernels.by_opencl,
    "webgpu": kernels.by_webgpu,
    **{name: partial(networks.by_keras, name) for name in networks.LIBRARIES},
    "onnxruntime": networks.by_onnxruntime,
}
# The tasks of each without preparing anything: what a framework that cannot start would have done.
_BY_KERAS = (MEMORY, PRODUCT, "16-bit product", "MLP training", "CNN training", "CNN inference", "CNN, one image")
DOES = {
    "numpy": (MEMORY, PRODUCT),
    "opencl": (PEAK, MEMORY, "OpenCL vector add", "OpenCL product"),
    "webgpu": (MEMORY, "WebGPU vector add", "WebGPU product"),
    "tensorflow": _BY_KERAS,
    "jax": _BY_KERAS,
    "torch": _BY_KERAS,
    "onnxruntime": (PRODUCT, "CNN inference", "CNN, one image"),
}
PACKAGES = {"opencl": "pyopencl", "webgpu": "wgpu"}

Tell = Callable[[dict[str, object]], None]


def ready(task: str, prepare: Prepare, tell: Tell) -> tuple[Work, int] | None:
    """Prepare one work, call it for the first time, check its result, and find out how often one value calls it.

    Returns:
        The work and how often; None if it failed, which was told then.
    """
    began = time.perf_counter()
    try:
        work = prepare()
        work.do(1)
        first = time.perf_counter() - began
        checked = work.check()
        work.do(1)  # warm; the check may have cooled the caches
        begin = time.perf_counter()
        work.do(1)
        loops = min(1000, int(LEAST_SECONDS / max(time.perf_counter() - begin, 1e-7)) + 1)
    except Exception as error:
        known = "" if isinstance(error, products.Refused) else f"{type(error).__name__}: "
        tell({"task": task, "why_not": f"{known}{products.in_one_line(error)}"[:300]})
        return None
    tell({"task": task, "what": work.what, "amount": work.amount, "first": first, "loops": loops, "checked": checked})
    return work, loops


def take_turns(
    works: Mapping[str, tuple[Work, int]],
    end: float,
    tell: Tell,
    clock: Callable[[], float] = time.perf_counter,
) -> None:
    """Time all works once a round until the time is up: a slow minute must not hit one of them alone.

    Each is done once before its clock starts: the one before it left other data in the caches, and perhaps threads that
    still wait for more work, and so keep a core busy.

    Args:
        works: for each task its work, and how often for one value.
        end: when the last round begins, by the clock.
        tell: takes each value.
        clock: in seconds.
    """
    for number in range(MOST_VALUES):
        for task, (work, loops) in works.items():
            if number >= LEAST_VALUES and clock() >= end:
                return
            work.do(loops)
            begin = clock()
            work.do(loops)
            tell({"task": task, "seconds": (clock() - begin) / loops})


def version(framework: str) -> str:
    """Return the version of a framework's Python package."""
    try:
        return metadata.version(PACKAGES.get(framework, framework))
    except metadata.PackageNotFoundError:  # TensorFlow's package has several names
        return str(getattr(sys.modules.get(framework), "__version__", ""))


def variables(framework: str, identifier: str, kind: str) -> dict[str, str | None]:
    """Return the environment variables that a framework must find at its start to use this device."""
    chosen: dict[str, str | None] = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    if framework in networks.LIBRARIES:
        chosen["KERAS_BACKEND"] = framework
    if framework == "jax" and kind == "cpu":
        chosen["JAX_PLATFORMS"] = "cpu"
    if framework == "torch":
        chosen["KERAS_TORCH_DEVICE"] = identifier
    return chosen


def main(framework: str, identifier: str, kind: str, seconds: str, *tasks: str) -> None:
    """Time some tasks of one framework on one device, and end."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    end = time.perf_counter() + float(seconds)
    faulthandler.enable()

    def tell(line: dict[str, object]) -> None:
        print(json.dumps(line), file=channel, flush=True)

    prepares = FRAMEWORKS[framework](identifier, kind)
    tell({"version": version(framework)})
    found = {task: ready(task, prepares[task], tell) for task in tasks}
    take_turns({task: work for task, work in found.items() if work}, end, tell)
    tell({"used": time.process_time()})
    channel.flush()
    os._exit(0)  # all is told: skip the frameworks' own tidying up, which is slow and may crash


if __name__ == "__main__":
    main(*sys.argv[1:])
