"""Check the sizes of a recorded launch, and that each argument fits its parameter, before anything is launched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from helpers.devices import opencl
from helpers.errors import WorkshopError
from helpers.judge.opencl_header import SCALARS
from helpers.judge.opencl_reader import LOCAL, ParameterType

if TYPE_CHECKING:
    import pyopencl as cl

# NumPy's type for each of OpenCL's.
NUMPY = {
    "char": "int8",
    "uchar": "uint8",
    "short": "int16",
    "ushort": "uint16",
    "int": "int32",
    "uint": "uint32",
    "long": "int64",
    "ulong": "uint64",
    "half": "float16",
    "float": "float32",
    "double": "float64",
}


def is_local_memory(argument: object) -> bool:
    """Return whether an argument is a size of local memory."""
    import pyopencl as cl

    return isinstance(argument, cl.LocalMemory)


def count_elements(array: np.ndarray, kind: ParameterType) -> int:
    """Return how many whole elements of a parameter's type an array holds."""
    return array.nbytes // max(kind.element_bytes, 1)


def check_sizes(
    global_size: Sequence[int] | int, local_size: Sequence[int] | int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return both sizes as tuples of one length, once the first is a multiple of the second."""
    items, group = _as_tuple(global_size), _as_tuple(local_size)
    if len(items) == len(group) and all(g > 0 < w and g % w == 0 for g, w in zip(items, group, strict=True)):
        return items, group
    raise WorkshopError(
        f"A launch of {global_size} work-items in work-groups of {local_size} cannot be traced.",
        "In each dimension, the work-items must be a multiple of the work-group, and both must be positive.",
        "Round the number of work-items up to whole work-groups, for example (12,) in groups of (4,).",
    )


def _as_tuple(size: Sequence[int] | int | None) -> tuple[int, ...]:
    """Return a size as a tuple; empty for None, which a learner may know from PyOpenCL."""
    if size is None:
        return ()
    return tuple(size) if isinstance(size, Sequence | np.ndarray) else (int(size),)


def check_arguments(
    kernel: opencl.Kernel,
    parameters: Sequence[ParameterType],
    arguments: Sequence[np.ndarray | np.generic | cl.LocalMemory],
) -> None:
    """Raise WorkshopError unless there is an argument of the right type for each parameter."""
    if len(arguments) != len(parameters):
        raise WorkshopError(
            f"The kernel {kernel.name!r} takes {len(parameters)} arguments, {len(arguments)} were given.",
            f"Its parameters are: {', '.join(f'`{parameter.text}`' for parameter in parameters)}.",
            "Give one argument for each parameter, in their order.",
        )
    for parameter, argument in zip(parameters, arguments, strict=True):
        _check_kind(parameter, argument)
        if isinstance(argument, np.ndarray | np.generic):
            _check_type(parameter, argument)


def _check_kind(parameter: ParameterType, argument: object) -> None:
    """Raise unless an array is given for an array, local memory for local memory, and a number for a number."""
    is_array = bool(parameter.memory) and parameter.memory != LOCAL
    if (parameter.memory == LOCAL) != is_local_memory(argument):
        raise WorkshopError(
            f"The parameter `{parameter.text}` cannot take {_name(argument)}.",
            "A `__local` parameter takes a size in bytes, and each work-group gets its own piece."
            if parameter.memory == LOCAL
            else "Local memory is for a `__local` parameter.",
            f"Pass cl.LocalMemory(count * {parameter.element_bytes})." if parameter.memory == LOCAL else "",
        )
    if not is_local_memory(argument) and (
        isinstance(argument, np.ndarray) != is_array or not isinstance(argument, np.ndarray | np.generic)
    ):
        raise WorkshopError(
            f"The parameter `{parameter.text}` cannot take {_name(argument)}.",
            "An array parameter takes a NumPy array. A number needs NumPy's type, for OpenCL knows no Python int.",
            "Pass a NumPy array, or np.int32(10) for `int`, np.float32(1.5) for `float`.",
        )


def _name(argument: object) -> str:
    return f"{argument!r} of type {type(argument).__name__}"


def _check_type(parameter: ParameterType, argument: np.ndarray | np.generic) -> None:
    """Raise unless an array's elements, or a number, have the size and the kind that a parameter has."""
    given, is_array = argument.dtype, isinstance(argument, np.ndarray)
    # A structure, a vector that NumPy holds as one, a complex number for two floats.
    is_whole = given.kind in "Vc" and given.itemsize == parameter.element_bytes
    is_structure = not parameter.scalar
    if is_whole or (is_structure and (given.itemsize in (1, parameter.element_bytes) or not parameter.element_bytes)):
        return
    bytes_of_it = 2 if parameter.scalar == "half" else SCALARS.get(parameter.scalar, parameter.element_bytes)
    is_float = parameter.scalar in ("half", "float", "double")
    is_vector = bytes_of_it != parameter.element_bytes
    fits = given.itemsize == bytes_of_it and (given.kind == "f") == is_float and (is_array or not is_vector)
    if fits or (is_structure and is_array):
        return
    what = f"an array of {given}" if is_array else f"{argument!r}"
    known = NUMPY.get(parameter.scalar)
    fix = f"array.astype(np.{known})" if is_array else f"np.{known}({argument})"
    raise WorkshopError(
        f"The parameter `{parameter.text}` cannot take {what}.",
        f"{_count_bytes(bytes_of_it)} of `{parameter.scalar or parameter.element}` are expected for each number, "
        f"{_count_bytes(given.itemsize)} of `{given}` were given. Nobody converts them: the kernel reads their bits.",
        f"Pass {fix}." if known and not (is_vector and not is_array) else "",
    )


def _count_bytes(count: int) -> str:
    return "1 byte" if count == 1 else f"{count} bytes"
