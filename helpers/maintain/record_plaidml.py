"""Record what PlaidML makes of article C's operations and CNN, for machines where it cannot run (lessons 03 and 06).

    python3 workshop.py plaidml && .venv/bin/python -m helpers.maintain.record_plaidml [cnn]

With `cnn` the network alone is recorded again (Python 3.11, real MNIST), and the operations stay as they are.
PlaidML and `helpers.tile` are timed interleaved, and nothing is stored unless PlaidML's results are NumPy's.
"""

from __future__ import annotations

import datetime
import importlib.util
import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import numpy as np

from helpers import tile
from helpers.commands import files, lesson_files
from helpers.compute import opencl, plaidml, processes
from helpers.compute.host import cpu_name
from helpers.lessons import lesson_06

ROUNDS, REPEATS = 3, 15


def main() -> None:
    """Run every operation and the CNN, and write data/results/plaidml.json."""
    here = {
        "date": datetime.date.today().isoformat(),
        "machine": f"{cpu_name()}, {os.cpu_count()} cores, {platform.system()}",
    }
    if sys.argv[1:] == ["cnn"]:
        known = json.loads(plaidml.RECORDED.read_text(encoding="utf-8")) | {"cnn": here | cnn()}
        files.write(plaidml.RECORDED, json.dumps(known, indent=1) + "\n")
        print(lesson_06.recorded_cnn())
        return
    known = here | {
        "versions": run(versions),
        "device": plaidml.DEVICE,
        "tile_device": opencl.name(opencl.pick_device()),
        "results": {name: result(name, operation) for name, operation in plaidml.OPERATIONS.items()},
        "cnn": here | cnn(),
    }
    files.write(plaidml.RECORDED, json.dumps(known, indent=1) + "\n")
    print(plaidml.recorded())


def run(function: object, **arguments: object) -> object:
    """Return what a function returns in PlaidML's environment."""
    return processes.run(function, python=plaidml.python(), variables=plaidml.VARIABLES, arguments=arguments).result


def cnn(batch: int = 128, steps: int = 4) -> dict[str, object]:
    """Return what is stored of article C's CNN: losses and seconds of each step, in PlaidML and in Keras 3.

    The function that trains is the one that lesson 06 shows.
    """
    from helpers.compute import data

    mnist = data.load_mnist()
    shapes = ((3, 3, 1, 32), (3, 3, 32, 64), (9216, 128), (128, 10))
    given = {
        "images": np.float32(mnist.x_train[: batch * steps, :, :, None]) / 255,
        "labels": np.eye(10, dtype=np.float32)[mnist.y_train[: batch * steps]],
        "weights": lesson_06.start_weights(*shapes),
        "batch": batch,
        "budget": float("inf"),
    }
    there = {"python": plaidml.python(), "variables": plaidml.KERAS, "seconds": 600}
    backend = lesson_06.some_backend()
    with tempfile.TemporaryDirectory() as folder:
        train = _shown("train_cnn", Path(folder))
        old = processes.run(train, arguments=given, **there).result
        new = processes.run(train, arguments=given, variables={"KERAS_BACKEND": backend}).result
    keras = f"Keras {metadata.version('keras')} ({backend})"
    return {"dataset": mnist.name, "batch": batch, "keras_version": keras, "plaidml": old, "keras": new}


def _shown(name: str, folder: Path) -> Callable[..., object]:
    """Return a function that lesson 06 defines in a cell of its own."""
    lesson = next(path for path in lesson_files.every() if path.name.startswith("06"))
    cells = [cell.source for cell in lesson_files.read(lesson).cells if cell.source.startswith(f"def {name}(")]
    (folder / "shown.py").write_text(cells[0], encoding="utf-8")
    spec = importlib.util.spec_from_file_location("shown", folder / "shown.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def versions() -> dict[str, str]:
    """Return the versions of Python, PlaidML and its NumPy; runs in PlaidML's environment."""
    import platform
    from importlib import metadata

    return {"python": platform.python_version(), **{name: metadata.version(name) for name in ("plaidml", "numpy")}}


def result(name: str, operation: plaidml.Operation) -> dict[str, object]:
    """Return what is stored of one operation: seconds as first quartile, median and third quartile."""
    arrays = operation.arrays()
    ours, expected = tile.Function(operation.source), operation.numpy(*arrays.values())
    first, seconds, tile_seconds = [], [], []
    for _ in range(ROUNDS):
        given = {"source": operation.source, "arrays": arrays, "output": operation.output, "repeats": 1 + REPEATS}
        output, times = run(plaidml.compute, **given)
        first.append(times[0])
        seconds += times[2:]  # the second still warms caches up
        tile_seconds += ours.measure(*arrays.values(), repeats=REPEATS).seconds
    np.testing.assert_allclose(output, expected, rtol=0, atol=1e-5 * max(1.0, np.abs(expected).max()), err_msg=name)
    return {
        "source": operation.source,
        "shapes": operation.shapes,
        "shape": output.shape,
        "sum": float(output.sum(dtype=np.float64)),
        "first": output.ravel()[:4].tolist(),
        "difference": float(np.abs(output - expected).max()),
        "first_seconds": float(np.median(first)),
        "seconds": np.percentile(seconds, [25, 50, 75]).tolist(),
        "tile_seconds": np.percentile(tile_seconds, [25, 50, 75]).tolist(),
        "runs": len(seconds),
    }


if __name__ == "__main__":
    main()
