"""CLBlast's matrix product, if the library is installed: `apt install libclblast1`, or `clblast` from conda-forge.

The calls are those of CLBlast's C interface, clblast_c.h, version 1.5.3.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from helpers.errors import WorkshopError

if TYPE_CHECKING:
    import pyopencl as cl

IN_ROWS, NOT_TRANSPOSED = 101, 111
POINTER, SIZE = ctypes.c_void_p, ctypes.c_size_t
# Of the environment that runs, such as conda's; the system's own are found by name.
PLACES = ("lib/libclblast.so.1", "lib/libclblast.so", "lib/libclblast.dylib", "Library/bin/clblast.dll")


@functools.cache
def load_library() -> ctypes.CDLL | None:
    """Return the library; None if it is not installed, or if what it needs is missing."""
    found = [Path(sys.prefix) / place for place in PLACES]
    names = [str(path) for path in found if path.exists()] + [ctypes.util.find_library("clblast")]
    for name in filter(None, names):
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        matrix = [POINTER, SIZE, SIZE]  # buffer, first element, elements from one row to the next
        sizes, factors = [ctypes.c_int] * 3 + [SIZE] * 3, [ctypes.c_float, *matrix, *matrix, ctypes.c_float, *matrix]
        library.CLBlastSgemm.argtypes = [*sizes, *factors, ctypes.POINTER(POINTER), ctypes.POINTER(POINTER)]
        library.CLBlastSgemm.restype = ctypes.c_int
        return library
    return None


def multiply(queue: cl.CommandQueue, a: cl.Buffer, b: cl.Buffer, c: cl.Buffer, m: int, n: int, k: int) -> None:
    """Queue C = A B. Wait for the queue afterward: CLBlast's event would cover the last of its kernels alone.

    Args:
        queue: of the device.
        a: float32 of shape (m, k), in rows.
        b: float32 of shape (k, n), in rows.
        c: float32 of shape (m, n), in rows; it is overwritten.
        m: rows of A.
        n: columns of B.
        k: columns of A.

    Raises:
        WorkshopError: the library is not installed, or it refuses.
    """
    library = load_library()
    if library is None:
        raise WorkshopError(
            "CLBlast is not installed.", "No library of this name was found.", "apt install libclblast1"
        )
    matrices = (a.int_ptr, 0, k), (b.int_ptr, 0, n), (c.int_ptr, 0, n)
    used = POINTER(queue.int_ptr)
    status = library.CLBlastSgemm(
        *(IN_ROWS, NOT_TRANSPOSED, NOT_TRANSPOSED, m, n, k, 1.0, *matrices[0], *matrices[1], 0.0, *matrices[2]),
        ctypes.byref(used),
        None,
    )
    if status:
        raise WorkshopError(
            "CLBlast did not multiply.",
            f"CLBlastSgemm returned {status}.",
            "clblast_c.h lists what the numbers mean.",
        )
