"""Which lesson computes on a learner's GPU: one table for all pages under docs/; `format` writes it.

The lessons' own code says which way to a device each takes. "GPU" means: sources say so. None was verified on hardware.
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

from helpers.commands import lesson_files

WAYS = {  # to a device: a line of code that takes it
    "OpenCL": r"\bopencl\.pick_device\(",
    "WebGPU": r"\bwebgpu\.pick_adapter\(",
    "Keras": r"^device = training\.start\(\)",
    "TensorFlow": r"\btf = training\.import_tensorflow\(",
}
ANCHOR = "which-lesson-computes-on-your-gpu"
NOTE = """\
GPU, CPU: what a lesson computes on. No GPU was verified on hardware. Lesson 00 shows every device, 11
measures each framework on the device that it takes. 09 and 13 take the processor on purpose; so do PlaidML in 03 and
06, and what may hang in 12. tinygrad in 06 takes the OpenCL device (on Intel Macs there is no tinygrad). 08 splits a
training between two GPUs that TensorFlow sees (never on a Mac); with one or none it takes two simulated devices of the
processor.
"""
LINK = f"""\
GPU: sources say so; none was verified on hardware. Lessons 00, 09, 11 and 13: [the whole table](platforms.md#{ANCHOR}).
"""


class Row(NamedTuple):
    """What the lessons compute on, on one kind of computer."""

    page: str  # under docs/
    have: str  # the computer, and how the packages came to it
    opencl: str = "CPU"
    webgpu: str = "CPU"
    keras: str = "CPU"
    frameworks: str = "CPU"
    tensorflow: str = "CPU"
    onnx: str = "CPU"


UNTRIED = "not verified"
TORCH = "GPU (PyTorch)"
DRIVER = "GPU, with a driver for OpenCL"
CORE_ML = "Core ML: GPU or CPU, it chooses"
NOT_RTX_50 = "GPU; [RTX 50](nvidia.md#rtx-50): CPU"
OPENVINO = "CPU; GPU: [one word](intel.md#verify)"
ROWS = (
    Row("cpu", "no GPU: `lab`"),
    Row("nvidia", "NVIDIA, Linux: `lab --accel cuda`", "GPU", "GPU", "GPU (JAX)", "GPU", NOT_RTX_50),
    Row("nvidia", "NVIDIA, WSL2: `lab --accel cuda`", "CPU", UNTRIED, "GPU (JAX)", "GPU", NOT_RTX_50),
    Row("nvidia", "NVIDIA, Windows: `lab`", "GPU", "GPU"),
    Row("nvidia", "NVIDIA, Windows: `lab`, PyTorch by hand", "GPU", "GPU", TORCH, TORCH),
    Row("amd-linux", "AMD, Linux: PyTorch by hand", DRIVER, "GPU", TORCH, TORCH, "with AMD's TensorFlow: GPU"),
    Row("amd-linux", "AMD, Linux: `lab`", DRIVER, "GPU"),
    Row("amd-windows", "AMD, Windows: `lab`", "GPU", "GPU"),
    Row("amd-windows", "AMD, Windows: `lab`, PyTorch from AMD by hand", "GPU", "GPU", TORCH, TORCH),
    Row("amd-windows", "AMD, WSL2: `lab`", "CPU", UNTRIED),
    Row("apple", "Apple M1 or newer: `lab --accel metal --with torch`",
        "GPU", "GPU", TORCH, "GPU (PyTorch, TensorFlow)", "GPU", CORE_ML),
    Row("apple", "Mac with an Intel processor: `lab`", "GPU", "GPU", onnx=CORE_ML),
    Row("intel", "Intel GPU: `lab --with openvino`", "GPU", "GPU", onnx=OPENVINO),
    Row("intel", "Intel GPU: the same, PyTorch by hand", "GPU", "GPU", TORCH, TORCH, onnx=OPENVINO),
    Row("hosted", "Colab, Kaggle with a GPU: the first cell", "CPU", UNTRIED, "GPU", "GPU", "GPU"),
)  # fmt: skip
EVERY_ROW = "platforms"  # the page that has them all


def lessons() -> dict[str, list[str]]:
    """Return for each way to a device the numbers of the lessons whose code takes it."""
    codes: dict[str, str] = {}
    for path in lesson_files.every():
        cells = [cell.source for cell in lesson_files.read(path).cells if cell.cell_type == "code"]
        codes[path.name[:2]] = "\n".join(cells)
    found = {way: [n for n, code in codes.items() if re.search(line, code, re.MULTILINE)] for way, line in WAYS.items()}
    found["Keras"] = [number for number in found["Keras"] if number not in found["TensorFlow"]]
    return found


@functools.cache
def head() -> list[str]:
    """Return the head of the table; the columns without a way of their own name their lesson here."""
    columns = {way: f"{way}: {', '.join(numbers)}" for way, numbers in lessons().items()}
    opencl, webgpu, keras, tensorflow = columns.values()
    taster = f"{webgpu}, [taster](taster.html)"
    return ["you have, and typed", opencl, taster, keras, "every framework: 06", tensorflow, "ONNX Runtime: 10"]


def table(page: str) -> str:
    """Return the table of one page as Markdown: its own rows, or all of them."""
    rows = [row for row in ROWS if page in (EVERY_ROW, row.page)]
    lines = [head(), ["---"] * len(head()), *(row[1:] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) + f"\n{NOTE if page == EVERY_ROW else LINK}"
