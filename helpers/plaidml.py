"""PlaidML itself, which brought the Tile language: where it runs beside the lessons, and what it said elsewhere.

PlaidML 0.7.0 of January 2020 was its last release with Tile. It still runs, in an environment of its own that
`python3 workshop.py plaidml` builds: the packages of its time must not mix with those of the lessons. A lesson runs a
function there (lesson 03; its Keras in lesson 06):

    processes.run(plaidml.compute, python=plaidml.python(), variables=plaidml.VARIABLES,
                  arguments={"source": MATMUL, "arrays": {"A": a, "B": b}, "output": "C"})

Where that environment cannot exist, `recorded()` tells what PlaidML did on another machine, and says so.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from helpers.errors import WorkshopError

if TYPE_CHECKING:
    import numpy as np

    from helpers.tables import Table

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".plaidml"
LOCK = ROOT / "requirements" / "plaidml.txt"
RECORDED = ROOT / "data" / "results" / "plaidml.json"
COMMAND = "py workshop.py plaidml" if os.name == "nt" else "python3 workshop.py plaidml"
DEVICE = "llvm_cpu.0"
# What plaidml-setup would store in the home folder: which devices to list, which one to take, no reports of usage.
VARIABLES = {"PLAIDML_EXPERIMENTAL": "1", "PLAIDML_DEVICE_IDS": DEVICE, "PLAIDML_TELEMETRY": "0"}


# --------------------------------------------------------------------------------------------------------------------
# The environment


def python(environment: Path | None = None) -> str:
    """Return the path of the Python that has PlaidML, for `processes.run(..., python=...)`.

    Args:
        environment: the folder to look into; that of the project if None.

    Raises:
        WorkshopError: it is not there, or cannot be on this machine.
    """
    why = missing(environment or ENVIRONMENT)
    if not why:
        return str(executable(environment or ENVIRONMENT))
    impossible = unfit()
    if impossible:
        raise WorkshopError("PlaidML cannot run on this machine.", impossible, "Look at what was recorded elsewhere.")
    raise WorkshopError("PlaidML is not ready here.", why, f"Type in the workshop's folder: {COMMAND}")


def ready() -> bool:
    """Say whether PlaidML's environment is there, and whole."""
    return not missing(ENVIRONMENT)


def missing(environment: Path) -> str:
    """Return what an environment lacks to be PlaidML's; empty if nothing. Nothing is started for that."""
    try:
        stamp = json.loads((environment / "workshop.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return "It lives in an environment of its own, which has not been built."
    except (OSError, ValueError) as error:
        return f"Its environment is damaged: {error}."
    if not executable(environment).exists():
        return "The Python with which its environment was built is gone."
    if not isinstance(stamp, dict) or stamp.get("lock") != digest():
        return "Its environment was built from another list of packages."
    return ""


def unfit() -> str:
    """Return why PlaidML 0.7.0 cannot run on this machine; empty if nothing speaks against it."""
    if platform.machine().lower() in ("x86_64", "amd64"):
        return ""
    return f"Its packages of 2020 are for x86-64 processors alone, and this Python runs on {platform.machine()}."


def executable(environment: Path) -> Path:
    """Return where an environment has its Python."""
    return environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def digest() -> str:
    """Return the SHA-256 of the list of packages, by which an environment knows whether it is up to date."""
    return hashlib.sha256(LOCK.read_bytes()).hexdigest()


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


def menu() -> dict[str, list[tuple[str, str]]]:
    """Return the devices that plaidml-setup would offer, as (identifier, description), by its two configurations."""
    import plaidml
    import plaidml.settings

    context, devices = plaidml.Context(), {}
    plaidml.quiet()
    for configuration in ("default", "experimental"):
        plaidml.settings.experimental = configuration == "experimental"
        found, _ = plaidml.devices(context, limit=100, return_all=True)
        devices[configuration] = [(device.id.decode(), device.description.decode()) for device in found]
    return devices


# --------------------------------------------------------------------------------------------------------------------
# Article C's operations, and what was recorded of them


@dataclass(frozen=True)
class Operation:
    """One of article C's operations, in the Tile that PlaidML and `helpers.tile` both understand.

    Attributes:
        source: the Tile function.
        output: the name of its output.
        shapes: the inputs by name, all float32.
        numpy: the same in NumPy.
    """

    source: str
    output: str
    shapes: dict[str, tuple[int, ...]]
    numpy: Callable[..., np.ndarray]

    def arrays(self, seed: int = 0) -> dict[str, np.ndarray]:
        """Return inputs made at random, the same for the same seed."""
        import numpy as np

        rng = np.random.default_rng(seed)
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


@dataclass(frozen=True)
class Result:
    """What PlaidML made of one operation on the machine of the recording.

    Attributes:
        source: the Tile function.
        shapes: of the inputs by name.
        seed: of `Operation.arrays`.
        shape: of the output.
        sum: of all elements of the output, added up in float64.
        first: the first elements of the output.
        difference: the largest distance of an element from NumPy's.
        first_seconds: of a first run, which compiles: the median of three.
        seconds: first quartile, median and third quartile of the later runs.
        tile_seconds: the same for `helpers.tile` on the same machine, in turn about.
        runs: how many later runs.
    """

    source: str
    shapes: dict[str, tuple[int, ...]]
    seed: int
    shape: tuple[int, ...]
    sum: float
    first: tuple[float, ...]
    difference: float
    first_seconds: float
    seconds: tuple[float, float, float]
    tile_seconds: tuple[float, float, float]
    runs: int


@dataclass(frozen=True)
class Recording:
    """What PlaidML did once, elsewhere: never to be shown without its label.

    Attributes:
        date: the day, as YYYY-MM-DD.
        machine: processor, cores and system.
        versions: of PlaidML and what ran with it.
        device: PlaidML's device.
        tile_device: the OpenCL device on which `helpers.tile` ran.
        results: by the name of the operation, as in `OPERATIONS`.
    """

    date: str
    machine: str
    versions: dict[str, str]
    device: str
    tile_device: str
    results: dict[str, Result]

    @property
    def label(self) -> str:
        """Say that this is no live result: when and where it was recorded."""
        return f"recorded on {self.date} on {self.machine}, with PlaidML {self.versions['plaidml']} on {self.device}"

    def table(self) -> Table:
        """Return the recorded times, with the label over them."""
        from helpers import timing
        from helpers.tables import Table

        rows = [
            [name, f"{one.difference:.1g}", timing.duration(one.seconds[1]), timing.duration(one.tile_seconds[1])]
            for name, one in self.results.items()
        ]
        headers = [
            self.label,
            "largest difference to NumPy",
            f"PlaidML {self.versions['plaidml']}, recorded",
            f"ours, recorded: {self.tile_device}",
        ]
        return Table(rows, headers)

    def __str__(self) -> str:
        return str(self.table())

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def recorded(path: Path | None = None) -> Recording:
    """Read what `python3 workshop.py plaidml --record` wrote.

    Args:
        path: the file; that of the project if None.

    Raises:
        WorkshopError: the file is not there, or damaged.
    """
    path = path or RECORDED
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
        results = {name: Result(**_tuples(one)) for name, one in known.pop("results").items()}
        return Recording(**known, results=results)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise WorkshopError(
            "What was recorded of PlaidML cannot be read.",
            f"{path.name}: {error}",
            f"Get data/results again, or record anew where PlaidML runs: {COMMAND} --record",
        ) from None


def _tuples(known: dict) -> dict:
    """JSON has no tuples."""
    made = {name: tuple(value) if isinstance(value, list) else value for name, value in known.items()}
    return made | {"shapes": {name: tuple(shape) for name, shape in known["shapes"].items()}}


def quartiles(seconds: Sequence[float]) -> list[float]:
    """Return the first quartile, the median and the third quartile."""
    import numpy as np

    return [float(value) for value in np.percentile(seconds, [25, 50, 75])]
