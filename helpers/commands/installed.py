"""What the packages that workshop.py installed ask of each start: Keras' backend, and a place for Intel's OpenCL."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path

from helpers.devices.host import STAMP, Host, command
from helpers.training import backends

DEFAULT_BACKENDS = {"cuda": "jax", "metal": "torch"}  # the default of each family; TensorFlow for the others


def prepare() -> None:
    """Prepare this process and those that it starts; where workshop.py has installed nothing, do nothing."""
    try:
        stamp = json.loads(Path(sys.prefix, STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    if backends.VARIABLE not in os.environ:
        os.environ[backends.VARIABLE] = _choose_keras_backend(stamp["family"], stamp["extras"])
    if "intel-opencl" in stamp["extras"]:
        _register_intel_opencl()


def _choose_keras_backend(family: str, extras: list[str]) -> str:
    """Return Keras' default backend for what is installed."""
    backend = DEFAULT_BACKENDS.get(family, "tensorflow")
    if backend == "torch" and "torch" not in extras:
        get = command(Host.here(), "lab --with torch")
        print(f"Keras would use this GPU through PyTorch, which is not installed: {get}")
        return "tensorflow"
    return backend


def _register_intel_opencl() -> None:
    """Tell the OpenCL loader in PyOpenCL's wheel where Intel's driver is: the wheel's own .icd names another place."""
    package = importlib.util.find_spec("pyopencl")
    assert package and package.origin  # the extra intel-opencl needs it
    register = Path(package.origin).parent / ".libs" / "intel.icd"
    driver = f"{Path(sys.prefix, 'lib', 'libintelocl.so')}\n"
    if not register.exists() or register.read_text(encoding="utf-8") != driver:  # new, or the folder was moved
        register.unlink(missing_ok=True)  # it may be a hard link to that of another folder's workshop
        register.write_text(driver, encoding="utf-8")
