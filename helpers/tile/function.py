"""Run a Tile function: all five stages, the kernels, and the copies to the device and back."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from helpers.devices import opencl
from helpers.devices.host import cpu_name
from helpers.measure import timing
from helpers.tile.blocks import Tiles, choose_tile
from helpers.tile.kernels import Code, emit
from helpers.tile.loops import Flat, flatten
from helpers.tile.ranges import Ranges, check_inputs, infer
from helpers.tile.syntax import Program, parse

if TYPE_CHECKING:
    import pyopencl as cl

Key = tuple[tuple[int, ...], ...]  # the shape of each input


@dataclass(frozen=True)
class Stages:
    """What each stage returned for one set of shapes."""

    program: Program
    ranges: Ranges
    flat: Flat
    tiles: Tiles
    code: Code

    def __str__(self) -> str:
        return "\n\n".join(str(stage) for stage in (self.program, self.ranges, self.flat, self.tiles, self.code))

    __repr__ = __str__


class Function:
    """A Tile function that can be called with arrays.

        matmul = tile.Function("function (A[M, L], B[L, N]) -> (C) { C[i, j: M, N] = +(A[i, k] * B[k, j]); }")
        c = matmul(a, b)

    It is compiled for each set of shapes when it is first called with them, as PlaidML did: every size is then a plain
    number in the kernel, and the device's compiler can unroll and cancel.

    Args:
        source: the Tile function.
        device: where to run; the lessons' device if None.
        tile: rows and columns of the block that a work-item keeps in registers; see `choose_tile`.

    Raises:
        TileError: the source is not a Tile function.
    """

    def __init__(self, source: str, device: cl.Device | None = None, tile: tuple[int, int] | None = None) -> None:
        self.program = parse(source)
        self.tile = tile
        self._device = device
        self._stages: dict[Key, Stages] = {}
        self._built: dict[Key, list[cl.Kernel]] = {}

    @property
    def device(self) -> cl.Device:
        """The device that runs it."""
        self._device = self._device or opencl.pick_device()
        return self._device

    @cached_property
    def _context(self) -> cl.Context:
        """What holds the device's memory; kept, for Intel's driver forgets one that only its queue holds."""
        import pyopencl as cl

        return cl.Context([self.device])

    @cached_property
    def _queue(self) -> cl.CommandQueue:
        """What hands the kernels to the device."""
        import pyopencl as cl

        return cl.CommandQueue(self._context)

    def __call__(self, *arrays: np.ndarray) -> np.ndarray | tuple[np.ndarray, ...]:
        """Run on arrays of float32, in the order of the inputs.

        Returns:
            The output, or a tuple of the outputs where there are several.

        Raises:
            TileError: the arrays do not fit the function.
        """
        import pyopencl as cl

        launch, buffers, code = self._prepare(arrays)
        launch()
        outputs = []
        for name in self.program.outputs:
            outputs.append(np.empty(code.arrays[name].shape, np.float32))
            cl.enqueue_copy(self._queue, outputs[-1], buffers[name])
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def stages(self, *shapes: Sequence[int] | np.ndarray) -> Stages:
        """Return what every stage made of these shapes (or of arrays of these shapes); nothing is run."""
        arrays = []
        for shape in shapes:
            is_array = isinstance(shape, np.ndarray | np.generic)
            arrays.append(np.asarray(shape) if is_array else np.broadcast_to(np.float32(), shape))
        return self._compile(self._key(arrays))

    def source(self, *shapes: Sequence[int] | np.ndarray) -> str:
        """Return the OpenCL C for inputs of these shapes."""
        return str(self.stages(*shapes).code)

    def measure(self, *arrays: np.ndarray, repeats: int = 15, label: str = "") -> timing.Measurement:
        """Time the kernels on these arrays, which are copied to the device once, before the clock starts."""
        label = label or "; ".join(statement.text.rstrip(";") for statement in self.program.statements)
        return measure_functions({label: self}, *arrays, repeats=repeats)[label]

    def _key(self, arrays: Sequence[np.ndarray]) -> Key:
        """The shape of each array, or a TileError that names what is missing or of another type."""
        check_inputs(self.program, len(arrays))
        for node, array in zip(self.program.inputs, arrays, strict=True):
            actual = str(getattr(array, "dtype", type(array).__name__))
            if actual != "float32":
                what = f"{node} takes an array of float32, came {actual}."
                raise self.program.error(node, what, "Convert it, for example by `.astype(np.float32)`.")
        return tuple(array.shape for array in arrays)

    def _compile(self, key: Key) -> Stages:
        """All five stages for these shapes."""
        if key not in self._stages:
            ranges = infer(self.program, key)
            flat = flatten(self.program, ranges)
            tiles = choose_tile(flat, self.device, self.tile)
            self._stages[key] = Stages(self.program, ranges, flat, tiles, emit(flat, tiles))
        return self._stages[key]

    def _prepare(self, arrays: Sequence[np.ndarray]) -> tuple[Callable[[], None], dict[str, cl.Buffer], Code]:
        """Build the kernels, copy the inputs, and return a function that launches."""
        import pyopencl as cl

        key = self._key(arrays)
        code = self._compile(key).code
        if key not in self._built:
            program = opencl.build(self._context, str(code))
            self._built[key] = [cl.Kernel(program, kernel.name) for kernel in code.kernels]
        flags = cl.mem_flags.READ_WRITE
        buffers = {name: cl.Buffer(self._context, flags, 4 * array.size) for name, array in code.arrays.items()}
        for node, array in zip(self.program.inputs, arrays, strict=True):
            cl.enqueue_copy(self._queue, buffers[node.text], np.asarray(array, order="C"))
        ready = list(zip(self._built[key], code.kernels, strict=True))

        def launch() -> None:
            for built, kernel in ready:
                built(self._queue, kernel.global_size, kernel.local_size, *(buffers[name] for name in kernel.arguments))

        return launch, buffers, code


def measure_functions(
    functions: Mapping[str, Function | Callable], *arrays: np.ndarray, repeats: int = 15, rest: float = 0.0
) -> dict[str, timing.Measurement]:
    """Time several functions on the same arrays as `timing.measure_interleaved` does.

    As in `Function.measure`, the arrays are copied to the device before the clock starts, for each function apart.

    Args:
        functions: for each label a function of one device, or one of NumPy, which runs on the CPU.
        arrays: the inputs, the same for all.
        repeats: rounds that count; two before them do not.
        rest: seconds before each run; timing.SETTLE where NumPy multiplies matrices.
    """
    ways: dict[str, Callable[[], object]] = {}
    names = {}
    for label, function in functions.items():
        if isinstance(function, Function):
            launch, *_ = function._prepare(arrays)
            ways[label] = lambda launch=launch, queue=function._queue: timing.synchronize(launch(), queue)
            names[label] = opencl.name(function.device)
        else:
            ways[label] = lambda function=function: function(*arrays)
            names[label] = cpu_name()
    time.sleep(timing.SETTLE)
    return timing.measure_interleaved(ways, names, repeats, warmup=2, rest=rest)
