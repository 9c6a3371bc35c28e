"""PlaidML itself, which brought the Tile language: where it runs beside the lessons, and what it did elsewhere.

PlaidML 0.7.0 of January 2020 was its last release with Tile. It still runs, in an environment of its own that
`python3 workshop.py plaidml` builds: the packages of its time must not mix with those of the lessons. A lesson runs a
function there (lesson 03; its Keras in lesson 06b):

    processes.run(plaidml.compute, python=plaidml.python(), variables=plaidml.VARIABLES,
                  arguments={"source": MATMUL, "arrays": {"A": a, "B": b}, "output": "C"})

Where that environment cannot exist, `recorded()` tells what PlaidML did on another machine, and says so.
"""

from __future__ import annotations

import collections.abc
import json
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from helpers import ROOT
from helpers.errors import WorkshopError

if TYPE_CHECKING:
    import numpy as np

    from helpers.measure.tables import Table

ENVIRONMENT = ROOT / ".plaidml"
LOCK = ROOT / "requirements" / "plaidml.txt"
RECORDED = ROOT / "data" / "results" / "plaidml.json"
COMMAND = "py workshop.py plaidml" if os.name == "nt" else "python3 workshop.py plaidml"
DEVICE = "llvm_cpu.0"
# What plaidml-setup would store in the home folder: which devices to list, which one to take, no reports of usage.
VARIABLES = {"PLAIDML_EXPERIMENTAL": "1", "PLAIDML_DEVICE_IDS": DEVICE, "PLAIDML_TELEMETRY": "0"}
KERAS = VARIABLES | {"KERAS_BACKEND": "plaidml.keras.backend"}  # for Keras 2.2.4, which is beside it on Python 3.11


# --------------------------------------------------------------------------------------------------------------------
# The environment


def ready() -> bool:
    """Say whether PlaidML's environment is there and whole: it then keeps a copy of the lock it was built from."""
    copy = ENVIRONMENT / LOCK.name
    return executable(ENVIRONMENT).exists() and copy.exists() and copy.read_bytes() == LOCK.read_bytes()


def python() -> str:
    """Return the path of the Python that has PlaidML, for `processes.run(..., python=...)`.

    Raises:
        WorkshopError: it is not there, or cannot be on this machine.
    """
    if ready():
        return str(executable(ENVIRONMENT))
    if reason := unfit():
        raise WorkshopError("PlaidML cannot run on this machine.", reason, "Look at what was recorded elsewhere.")
    raise WorkshopError(
        "PlaidML is not ready here.",
        "It lives in an environment of its own, which has not been built to its end, or from another list of packages.",
        f"Type in the workshop's folder: {COMMAND}",
    )


def unfit() -> str:
    """Return why PlaidML 0.7.0 cannot run on this machine; empty if nothing speaks against it."""
    if platform.machine().lower() in ("x86_64", "amd64"):
        return ""
    return f"Its packages of 2020 are for x86-64 processors alone, and this Python runs on {platform.machine()}."


def executable(environment: Path) -> Path:
    """Return where an environment has its Python."""
    return environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


# --------------------------------------------------------------------------------------------------------------------
# Functions for `processes.run`: they run in PlaidML's environment, and use nothing of this module


def compute(source: str, arrays: dict[str, np.ndarray], output: str, repeats: int = 0) -> tuple:
    """Run a Tile function in PlaidML.

    Args:
        source: the Tile function.
        arrays: the inputs by name, float32 or int32.
        output: the name of the output to return.
        repeats: how often to run it again, for the clock.

    Returns:
        The output as an array, and the seconds of each run on arrays that are on the device already. The first run
        compiles.
    """
    import time

    import plaidml

    context = plaidml.Context()
    device = plaidml.Device(context, plaidml.devices(context)[0])

    def tensor(array):  # noqa: ANN001, ANN202
        kind = plaidml.DType[str(array.dtype).upper()]
        made = plaidml.Tensor(device, plaidml.Shape(context, kind, *array.shape))
        with made.mmap_discard(context) as view:
            view.copy_from_ndarray(array)
            view.writeback()
        return made

    inputs = {name: tensor(array) for name, array in arrays.items()}
    function = plaidml.Invoker(context, plaidml.Function(source), inputs)
    result = plaidml.Tensor(device, function.get_output_shape(output))
    function.set_output(output, result)
    seconds = []
    for _ in range(1 + repeats):
        begin = time.perf_counter()
        function.invoke()
        with result.mmap_current():  # waits for the result
            seconds.append(time.perf_counter() - begin)
    return result.as_ndarray(context), seconds


def put_names_back() -> None:
    """Put back the names that Keras 2.2.4 uses and Python has dropped; for another Keras do nothing (lesson 06b)."""
    import inspect

    if os.environ.get("KERAS_BACKEND") != KERAS["KERAS_BACKEND"]:
        return
    for name in collections.abc.__all__:  # Python 3.10 dropped them
        setattr(collections, name, getattr(collections.abc, name))
    inspect.getargspec = lambda function: inspect.getfullargspec(function)[:4]  # Python 3.11 did


# --------------------------------------------------------------------------------------------------------------------
# Article C's operations, and what was recorded of them


class Operation(NamedTuple):
    """One of article C's operations, in the Tile that PlaidML and `helpers.tile` both understand."""

    source: str  # the Tile function
    output: str  # the name of its output
    shapes: dict[str, tuple[int, ...]]  # of the inputs by name, all float32
    numpy: Callable[..., np.ndarray]  # the same in NumPy

    def arrays(self) -> dict[str, np.ndarray]:
        """Return inputs made at random, always the same."""
        import numpy as np

        rng = np.random.default_rng(0)
        return {name: rng.standard_normal(shape, np.float32) for name, shape in self.shapes.items()}


def _convolve(image: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    import numpy as np

    windows = np.lib.stride_tricks.sliding_window_view(image, kernel.shape[:2], axis=(1, 2))  # n, x, y, ci, kx, ky
    return np.tensordot(windows, kernel, axes=([4, 5, 3], [0, 1, 2]))


def _pool(image: np.ndarray) -> np.ndarray:
    n, x, y, c = image.shape
    return image.reshape(n, x // 2, 2, y // 2, 2, c).max((2, 4))


_MATMUL = "function (A[M, L], B[L, N]) -> (C) { C[i, j: M, N] = +(A[i, k] * B[k, j]); }"
_POOL = """function (I[N, X, Y, C]) -> (O) {
    O[n, x, y, c: N, X / 2, Y / 2, C] = >(I[n, 2 * x + i, 2 * y + j, c]), i < 2, j < 2;
}"""
_CONVOLUTION = """function (I[N, X, Y, CI], K[KX, KY, CI, CO]) -> (O) {
    O[n, x, y, co: N, X - KX + 1, Y - KY + 1, CO] = +(I[n, x + kx, y + ky, ci] * K[kx, ky, ci, co]);
}"""
OPERATIONS: dict[str, Operation] = {
    "matrix product, 512": Operation(_MATMUL, "C", {"A": (512, 512), "B": (512, 512)}, lambda a, b: a @ b),
    "matrix product, 1,152": Operation(_MATMUL, "C", {"A": (1152, 1152), "B": (1152, 1152)}, lambda a, b: a @ b),
    "largest of 2 x 2": Operation(_POOL, "O", {"I": (32, 64, 64, 16)}, _pool),
    "convolution, 3 x 3": Operation(_CONVOLUTION, "O", {"I": (8, 66, 66, 16), "K": (3, 3, 16, 32)}, _convolve),
    "cumulative sum": Operation(
        "function (I[N]) -> (O) { O[i: N] = +(I[k]), i - k < N; }", "O", {"I": (4000,)}, lambda i: i.cumsum()
    ),
    "largest of each row": Operation(
        "function (A[M, N]) -> (O) { O[i: M] = >(A[i, j]); }", "O", {"A": (1152, 1152)}, lambda a: a.max(1)
    ),
    "smallest of each row": Operation(
        "function (A[M, N]) -> (O) { O[i: M] = <(A[i, j]); }", "O", {"A": (1152, 1152)}, lambda a: a.min(1)
    ),
    "ReLU": Operation("function (X) -> (Y) { Y = max(X, 0.0); }", "Y", {"X": (1152, 1152)}, lambda x: x.clip(0)),
}


def recorded() -> Table:
    """Return what PlaidML did once, elsewhere: its first header says when and where."""
    from helpers.measure import timing
    from helpers.measure.tables import Table

    known = json.loads(RECORDED.read_text(encoding="utf-8"))
    version = known["versions"]["plaidml"]
    rows = [
        [name, f"{result['difference']:.1g}", *(timing.duration(result[key][1]) for key in ("seconds", "tile_seconds"))]
        for name, result in known["results"].items()
    ]
    label = f"recorded on {known['date']} on {known['machine']}, with PlaidML {version} on {known['device']}"
    ours = f"ours, recorded: {known['tile_device']}"
    return Table(rows, [label, "largest difference to NumPy", f"PlaidML {version}, recorded", ours])
