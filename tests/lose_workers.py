"""Lesson 09's experiments with a killed worker, repeated: `python tests/lose_workers.py 10` prints what each cost."""

import re
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]  # as a script

from helpers.commands import lesson_files  # noqa: E402
from helpers.compute import data, worker  # noqa: E402
from helpers.lessons import lesson_09 as lesson  # noqa: E402


def shown_functions():
    """Return the functions for processes that the notebook shows, by name."""
    notebook = lesson_files.read(lesson_files.FOLDER / "09-train-on-several-machines.ipynb")
    functions = {}
    for cell in notebook.cells:
        found = re.match(r"def (\w+)\(process, addresses", cell.source)
        if cell.cell_type == "code" and found:
            functions[found[1]] = worker.Script(found[1], cell.source).define()
    return functions


def main(repeats):
    mnist, rng = data.load_mnist(), np.random.default_rng(0)
    shapes = [(784, 512), (512,), (512, 512), (512,), (512, 10), (10,)]
    arguments = {"initial": [rng.normal(0, 0.05, shape).astype("float32") for shape in shapes]}
    arguments["images"] = np.resize(mnist.x_train.reshape(-1, 784), (2048, 784))
    arguments["labels"] = np.resize(mnist.y_train, 2048)
    shown = shown_functions()
    print(lesson.lose_workers(shown["parameter_server"], shown["synchronous"], arguments, 48, 4, repeats))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
