"""Run a Tile function: all five stages, the kernels, and the copies to the device and back."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from helpers.compute import opencl
from helpers.measure import timing
from helpers.tile.blocks import Tiles, choose_tile
from helpers.tile.kernels import Code, emit
from helpers.tile.loops import Flat, flatten
from helpers.tile.ranges import Ranges, check_inputs, infer
from helpers.tile.syntax import Program, listing, parse

if TYPE_CHECKING:
    import pyopencl as cl

DTYPES = {"float32": "float", "int32": "int"}

Key = tuple[tuple[tuple[int, ...], str], ...]  # the shape and the type of each input


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
        self._queue: cl.CommandQueue | None = None
        self._stages: dict[Key, Stages] = {}
        self._built: dict[Key, list[cl.Kernel]] = {}

    @property
    def device(self) -> cl.Device:
        """The device that runs it."""
        self._device = self._device or opencl.pick_device()
        return self._device

    def __call__(self, *arrays: np.ndarray, **named: np.ndarray) -> np.ndarray | tuple[np.ndarray, ...]:
        """Run on arrays of float32 or int32, in the order of the inputs or by their names.

        Returns:
            The output, or a tuple of the outputs where there are several.

        Raises:
            TileError: the arrays do not fit the function, or need more memory than the device has.
        """
        import pyopencl as cl

        launch, buffers, code = self._prepare(arrays, named)
        launch()
        outputs = []
        for name in self.program.outputs:
            array = code.arrays[name]
            outputs.append(np.empty(array.shape, array.dtype + "32"))
            cl.enqueue_copy(self._queue, outputs[-1], buffers[name])
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def stages(self, *shapes: Sequence[int] | np.ndarray) -> Stages:
        """Return what every stage made of these shapes (or of the shapes and types of arrays); nothing is run."""
        check_inputs(self.program, self.program.inputs[len(shapes) :], len(shapes))
        return self._compile(
            self._key([s if hasattr(s, "dtype") else np.broadcast_to(np.float32(), s) for s in shapes])
        )

    def source(self, *shapes: Sequence[int] | np.ndarray) -> str:
        """Return the OpenCL C for inputs of these shapes."""
        return str(self.stages(*shapes).code)

    def measure(
        self, *arrays: np.ndarray, repeats: int = 15, label: str = "", **named: np.ndarray
    ) -> timing.Measurement:
        """Time the kernels on these arrays, which are copied to the device once, before the clock starts."""
        launch, _, _ = self._prepare(arrays, named)
        label = label or "; ".join(statement.text.rstrip(";") for statement in self.program.statements)
        where = {"device": opencl.name(self.device), "on": self._queue}
        return timing.measure(launch, label=label, repeats=repeats, settle=timing.SETTLE, **where)

    def launcher(self, *arrays: np.ndarray) -> tuple[Callable[[], None], cl.CommandQueue]:
        """Return a function that starts the kernels on these arrays, which are on the device then, and its queue."""
        launch, _, _ = self._prepare(arrays, {})
        return launch, self._queue

    def _inputs(self, arrays: Sequence[np.ndarray], named: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """The arrays in the order of the inputs, or a TileError that names the input that is wrong."""
        program, names = self.program, [one.text for one in self.program.inputs]
        given = dict(zip(names, arrays, strict=False))
        for name in named:
            if name in given or name not in names:
                what = f"the input {name} is given twice." if name in given else f"the function has no input {name}."
                raise program.error(None, what, listing("Its inputs", names))
        given |= named
        missing = [one for one in program.inputs if one.text not in given]
        check_inputs(program, missing, len(arrays) + len(named))
        return [given[name] for name in names]

    def _key(self, arrays: Sequence[np.ndarray]) -> Key:
        """The shape and the type of each array."""
        for one, array in zip(self.program.inputs, arrays, strict=False):
            actual = str(getattr(array, "dtype", type(array).__name__))
            if actual not in DTYPES:
                raise self.program.error(one, f"{one} takes an array of float32 or int32, came {actual}.",
                                         "Convert it, for example by `.astype(np.float32)`.")  # fmt: skip
        return tuple((array.shape, DTYPES[str(array.dtype)]) for array in arrays)

    def _compile(self, key: Key) -> Stages:
        """All five stages for these shapes and types."""
        if key not in self._stages:
            ranges = infer(self.program, [shape for shape, _ in key], [dtype for _, dtype in key])
            flat = flatten(self.program, ranges)
            tiles = choose_tile(flat, self.device, self.tile)
            self._stages[key] = Stages(self.program, ranges, flat, tiles, emit(flat, tiles))
        return self._stages[key]

    def _prepare(
        self, arrays: Sequence[np.ndarray], named: Mapping[str, np.ndarray]
    ) -> tuple[Callable[[], None], dict[str, cl.Buffer], Code]:
        """Build the kernels, copy the inputs, and return a function that launches."""
        import pyopencl as cl

        given = self._inputs(arrays, named)
        key = self._key(given)
        code = self._compile(key).code
        self._check_memory(code)
        if self._queue is None:
            self._context = cl.Context([self.device])  # kept: Intel's driver forgets one that only its queue holds
            self._queue = cl.CommandQueue(self._context)
        if key not in self._built:
            program = opencl.build(self._context, str(code))
            self._built[key] = [cl.Kernel(program, kernel.name) for kernel in code.kernels]
        flags = cl.mem_flags.READ_WRITE
        buffers = {name: cl.Buffer(self._context, flags, 4 * array.size) for name, array in code.arrays.items()}
        for one, array in zip(self.program.inputs, given, strict=True):
            cl.enqueue_copy(self._queue, buffers[one.text], np.asarray(array, order="C"))
        ready = list(zip(self._built[key], code.kernels, strict=True))

        def launch() -> None:
            for built, kernel in ready:
                built(self._queue, kernel.global_size, kernel.local_size, *(buffers[name] for name in kernel.arguments))

        return launch, buffers, code

    def _check_memory(self, code: Code) -> None:
        """Refuse what the device has no memory for, before anything is allocated."""
        needed, most = sum(4 * array.size for array in code.arrays.values()), self.device.global_mem_size
        largest = max(code.arrays, key=lambda name: code.arrays[name].size)
        what = "all tensors together need"
        if 4 * code.arrays[largest].size > self.device.max_mem_alloc_size:
            needed, most = 4 * code.arrays[largest].size, self.device.max_mem_alloc_size
            what = f"{largest} needs"
        if needed > most:
            made = [*self.program.inputs, *(statement.output for statement in self.program.statements)]
            node = next((node for node in made if node.text == largest), made[0])
            what += f" {needed / 2**30:.1f} GiB, {opencl.name(self.device)} has {most / 2**30:.1f} GiB for it."
            raise self.program.error(node, what, "Work on smaller arrays, or on parts of them.")


def measure_interleaved(
    functions: Mapping[str, Function], *arrays: np.ndarray, repeats: int = 15
) -> dict[str, timing.Measurement]:
    """Time several functions on the same arrays as `timing.measure_interleaved` does.

    As in `Function.measure`, the arrays are copied to the device before the clock starts, for each function apart.

    Args:
        functions: for each label a function of one device.
        arrays: the inputs, the same for all.
        repeats: rounds that count; two before them do not.
    """
    ready = {label: function.launcher(*arrays) for label, function in functions.items()}
    ways = {
        label: lambda launch=launch, queue=queue: timing.synchronise(launch(), queue)
        for label, (launch, queue) in ready.items()
    }
    names = {label: opencl.name(function.device) for label, function in functions.items()}
    time.sleep(timing.SETTLE)
    return timing.measure_interleaved(ways, names, repeats, warmup=2)
