"""Record what PlaidML makes of article C's operations, for machines where it cannot run (lesson 03).

    python3 workshop.py plaidml && .venv/bin/python -m helpers.maintain.record_plaidml

PlaidML and `helpers.tile` are timed interleaved, and nothing is stored unless PlaidML's results are NumPy's.
"""

from __future__ import annotations

import datetime
import json
import os
import platform

import numpy as np

from helpers import opencl, plaidml, processes, tile
from helpers.commands import files
from helpers.machine.host import cpu_name

ROUNDS, REPEATS = 3, 15


def main() -> None:
    """Run every operation, and write data/results/plaidml.json."""
    known = {
        "date": datetime.date.today().isoformat(),
        "machine": f"{cpu_name()}, {os.cpu_count()} cores, {platform.system()}",
        "versions": run(versions),
        "device": plaidml.DEVICE,
        "tile_device": opencl.name(opencl.pick_device()),
        "results": {name: result(name, operation) for name, operation in plaidml.OPERATIONS.items()},
    }
    files.write(plaidml.RECORDED, json.dumps(known, indent=1) + "\n")
    print(plaidml.recorded())


def run(function: object, **arguments: object) -> object:
    """Return what a function returns in PlaidML's environment."""
    return processes.run(function, python=plaidml.python(), variables=plaidml.VARIABLES, arguments=arguments).result


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
