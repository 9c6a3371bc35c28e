"""A work: one task on one device, ready to be timed, with the check that comes before the clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from helpers.ranking import tasks


@dataclass(frozen=True)
class Work:
    """One task on one device, ready to be timed."""

    what: str  # sizes and types, for people
    amount: float  # bytes, operations or images of one call
    call: Callable[[int], object]  # does it so often, and returns when the device has finished
    check: Callable[[], str]  # compares with NumPy after a call; returns what was compared, raises Refused


Prepare = Callable[[], Work]


def product(size: int, call: Callable[[int], object], result: Callable[[], np.ndarray], dtype: str = "float32") -> Work:
    """Return the work of a matrix product.

    Args:
        size: rows and columns of `tasks.matrices`.
        call: multiplies so often.
        result: returns the last product as float32.
        dtype: in which the device multiplies; one of 16 bits rounds the product to 8 bits, or 11.
    """
    tolerance = 1e-3 if dtype == "float32" else 0.01
    return Work(
        f"{size:,} x {size:,}, {dtype}", 2.0 * size**3, call, lambda: tasks.check_product(result(), size, tolerance)
    )


def vector(
    what: str, moved: float, call: Callable[[int], object], result: Callable[[], np.ndarray], expected: np.ndarray
) -> Work:
    """Return the work of a kernel that memory limits.

    Args:
        what: for people.
        moved: bytes that one call must read and write.
        call: does it so often.
        result: returns what the last call wrote.
        expected: what it should be, to the last bit.
    """
    return Work(what, moved, call, lambda: tasks.check_vector(result(), expected))


def repeat(once: Callable[[], object], finish: Callable[[object], object]) -> Callable[[int], None]:
    """Return a call that does something so often, and waits for the device once at the end.

    Args:
        once: does it, or queues it.
        finish: waits; takes what the last `once` returned.
    """

    def call(loops: int) -> None:
        last: object = None
        for _ in range(loops):
            last = once()
        finish(last)

    return call
