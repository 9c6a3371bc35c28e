"""Execute lessons' cells where the course is not installed, for `record_gpu`: no JupyterLab, no MNIST, no network."""

from __future__ import annotations

import ast
import contextlib
import json
import linecache
import os
import sys
import traceback
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from helpers import ROOT, variables
from helpers.devices.host import has_module

if TYPE_CHECKING:
    from helpers.training.data import Dataset

NOT_EXECUTED = ", not executed: "  # in a part's log, between a cell and its statement


def execute_cells(lesson: str, only: Sequence[str] = ()) -> dict[str, Any]:
    """Execute a lesson's code cells in this process, statement by statement, and return its variables.

    Exercises and their checks are left out. A statement that fails, such as a figure where Matplotlib is missing, is
    printed with its reason, and the next one is executed.

    Args:
        lesson: its number.
        only: ids of the cells; all if empty.
    """
    _replace_missing_modules()
    (path,) = ROOT.glob(f"notebooks/{lesson}-*.ipynb")
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        is_skipped = {"exercise", "check", "raises-exception"} & set(cell["metadata"].get("tags", []))
        if cell["cell_type"] != "code" or is_skipped or (only and cell["id"] not in only):
            continue
        text, title = "".join(cell["source"]), f"lesson {lesson}, cell {cell['id']}"
        linecache.cache[title] = len(text), None, text.splitlines(True), title  # a fresh process gets functions as text
        for statement in ast.parse(text).body:
            try:
                exec(compile(ast.Module([statement], []), title, "exec"), names)
            except Exception:
                print(f"{title}{NOT_EXECUTED}{ast.unparse(statement)[:80]}")
                print(traceback.format_exc(limit=-1), flush=True)
    return names


def _replace_missing_modules() -> None:
    """Let lessons import what they only show results with, or what sets NumPy's threads, where it is not installed."""

    def ignore(*_: object, **__: object) -> None:
        """Show nothing."""

    def keep_threads(*_: object, **__: object) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    stand_ins: dict[str, dict[str, object]] = {
        "IPython": {"version_info": (9, 0), "get_ipython": ignore},
        "IPython.display": {"display": ignore, "Image": ignore, "Markdown": ignore, "HTML": ignore},
        "threadpoolctl": {"threadpool_limits": keep_threads},
    }
    for name, attributes in stand_ins.items():
        if name not in sys.modules and not has_module(name.partition(".")[0]):
            stand_in = types.ModuleType(name)
            vars(stand_in).update(attributes)
            sys.modules[name] = stand_in


def prove_devices() -> None:
    """Let each OpenCL device multiply in this process, as the lessons do in another one, for which psutil is needed."""
    from helpers.devices import frameworks, opencl, products

    proofs = {}
    for device in frameworks.opencl_devices().values():
        proofs[opencl.identify(device)] = products.prove(frameworks.describe_opencl(device))
    os.environ[variables.OPENCL_PROOFS] = json.dumps(proofs)


def find_images() -> Dataset:
    """Return MNIST from the file that ANYGPU_MNIST names, otherwise random images: a time needs no digits."""
    import numpy as np

    from helpers.training.data import Dataset

    if os.environ.get(variables.MNIST):
        return import_data().load_mnist()
    rng = np.random.default_rng(0)
    train, test = (rng.integers(0, 256, (count, 28, 28), np.uint8) for count in (60_000, 10_000))
    labels = rng.integers(0, 10, 70_000, np.uint8)
    return Dataset("random images", train, labels[:60_000], test, labels[60_000:], "NumPy's generator")


def import_data() -> types.ModuleType:
    """Return the module that loads MNIST, which needs packages that may be missing."""
    from helpers.training import data

    return data
