"""What the packages that workshop.py installed ask of each start: Keras' backend, and a place for Intel's OpenCL."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from pathlib import Path

from helpers.devices.host import Host, command
from helpers.setup import environment, families
from helpers.setup.environment import State
from helpers.training import backends

DEFAULT_BACKENDS = {"cuda": "jax", "metal": "torch"}  # the default of each family; TensorFlow for the others


def prepare() -> None:
    """Prepare this process and those that it starts; where workshop.py has installed nothing, do nothing."""
    built = environment.read(Path(sys.prefix))
    if not built:
        return
    if backends.VARIABLE not in os.environ:
        os.environ[backends.VARIABLE] = _choose_keras_backend(built)
    is_wanted = (
        families.INTEL_OPENCL in built.extras and " " not in sys.prefix
    )  # where it has a space, the driver fails
    if sys.platform == "linux":
        _register_intel_opencl(Path(sys.prefix, "lib", "libintelocl.so") if is_wanted else None)
    elif sys.platform == "win32" and is_wanted:
        _name_intel_opencl(Path(sys.prefix, "Library", "bin", "intelocl64.dll"))


def _choose_keras_backend(built: State) -> str:
    """Return Keras' default backend for what is installed."""
    backend = DEFAULT_BACKENDS.get(built.family, "tensorflow")
    if backend == "torch" and "torch" not in built.extras:
        get = command(Host.here(), "lab --with torch")
        print(f"Keras would use this GPU through PyTorch, which is not installed: {get}")
        return "tensorflow"
    return backend


def _register_intel_opencl(driver: Path | None) -> None:
    """Tell the OpenCL loader in PyOpenCL's wheel where Intel's driver is: the wheel's own .icd names another place.

    The loader reads this file beside those of the system, so that their drivers stay.

    Args:
        driver: the library; None where it must not be listed.
    """
    package = importlib.util.find_spec("pyopencl")
    if not package or not package.origin:
        return
    register = Path(package.origin).parent / ".libs" / "intel.icd"
    with contextlib.suppress(OSError):  # a .venv that may not be written to: the doctor says that the driver is missing
        if driver is None:
            register.unlink(missing_ok=True)
        elif not register.exists() or register.read_text(encoding="utf-8") != f"{driver}\n":  # new, or it was moved
            draft = register.with_suffix(f".{os.getpid()}")  # the file may be a hard link to another workshop's
            draft.write_text(f"{driver}\n", encoding="utf-8")
            draft.replace(register)


def _name_intel_opencl(driver: Path) -> None:
    """Name Intel's driver to the OpenCL loader in PyOpenCL's wheel for Windows, which reads the variable beside the
    registry, and let Windows find the driver's other libraries. Not verified on Windows.

    Args:
        driver: the library.
    """
    for name, value in (("OCL_ICD_FILENAMES", driver), ("PATH", driver.parent)):
        listed = os.environ.get(name, "").split(os.pathsep)
        if str(value) not in listed:
            os.environ[name] = os.pathsep.join([str(value), *filter(None, listed)])
