"""Who can do what: for each framework its tasks, and the function that prepares them on one device.

Such a function returns {task: prepare}. `prepare()` uploads, builds, and returns a `Work`. Every call of a `Work` ends
with the framework's own way of waiting for the device: without it a clock would measure how fast work is handed over.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from helpers.ranking import kernels, networks
from helpers.ranking.tasks import MEMORY, PEAK, PRODUCT
from helpers.ranking.work import Prepare

FRAMEWORKS: dict[str, Callable[[str, str], dict[str, Prepare]]] = {
    "numpy": kernels.by_numpy,
    "opencl": kernels.by_opencl,
    "webgpu": kernels.by_webgpu,
    **{name: partial(networks.by_keras, name) for name in networks.LIBRARIES},
    "onnxruntime": networks.by_onnxruntime,
}
# The same without preparing anything: what a framework that cannot start would have done.
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


def by_name(framework: str, identifier: str, kind: str) -> dict[str, Prepare]:
    """Return {task: prepare} of one framework on one device, in this process.

    Args:
        framework: one of FRAMEWORKS.
        identifier: of the device, as the framework calls it.
        kind: of the device.
    """
    return FRAMEWORKS[framework](identifier, kind)


def version(framework: str) -> str:
    """Return the version of a framework's Python package."""
    from importlib import metadata

    try:
        return metadata.version(PACKAGES.get(framework, framework))
    except metadata.PackageNotFoundError:  # TensorFlow's package has several names
        import sys

        return str(getattr(sys.modules.get(framework), "__version__", ""))


def variables(framework: str, identifier: str, kind: str) -> dict[str, str | None]:
    """Return the environment variables that a framework must find at its start to use this device.

    Args:
        framework: one of FRAMEWORKS.
        identifier: of the device, as the framework calls it.
        kind: of the device.
    """
    gentle = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    if framework not in ("tensorflow", "jax", "torch"):
        return dict(gentle)
    chosen: dict[str, str | None] = {**gentle, "KERAS_BACKEND": framework}
    if framework == "jax" and kind == "cpu":
        chosen["JAX_PLATFORMS"] = "cpu"
    if framework == "torch":
        chosen["KERAS_TORCH_DEVICE"] = identifier
    return chosen
