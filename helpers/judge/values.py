"""Compare what a learner's function returned with what was expected, and show values in messages."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, cast

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def short(value: object) -> str:
    """Return a value as a message shows it: NumPy's numbers as plain ones, functions by name, long texts cut.

    >>> short(short)
    'short'
    >>> short([np.float32(0.5), np.int64(3)])
    '[0.5, 3]'
    >>> short(np.arange(3))
    'np.array([0, 1, 2])'
    """
    if isinstance(value, np.ndarray):
        return f"np.array({short(value.tolist())})"
    if inspect.isfunction(value):
        return value.__name__  # without its address, which differs in each run
    if isinstance(value, np.generic):
        value = value.item()
    elif isinstance(value, list | tuple) and any(isinstance(element, np.generic) for element in value):
        plain = [element.item() if isinstance(element, np.generic) else element for element in value]
        value = tuple(plain) if isinstance(value, tuple) else plain
    arrays = isinstance(value, list) and any(isinstance(element, np.ndarray) for element in value)
    text = f"[{', '.join(short(element) for element in value)}]" if arrays else repr(value)
    most = 240 if isinstance(value, dict) else 80
    return text if len(text) <= most else text[: most - 3] + "..."


def is_same(first: object, second: object) -> bool:
    """Return whether two values are equal, arrays and sequences element by element."""
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        return np.array_equal(cast("ArrayLike", first), cast("ArrayLike", second))
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        return len(first) == len(second) and all(map(is_same, first, second))
    return bool(first == second)


def describe_mismatch(expected: object, actual: object) -> str:
    """Return what was expected and what came; empty if they match, fractions to 1e-5 of their size.

    >>> describe_mismatch(2, 3)
    'expected 2, came 3'
    """
    if type(expected) is int and isinstance(actual, float | np.floating) and actual == expected:
        return f"expected {expected}, a whole number; came {short(actual)}, a float. `int(...)` makes an int."
    try:
        other_size = _describe_other_size(expected, actual)
        if other_size or _is_right(expected, actual):
            return other_size
    except (TypeError, ValueError, OverflowError):  # the two cannot even be compared
        pass
    return f"expected {short(expected)}, came {short(actual)}{_describe_difference(expected, actual)}"


def _is_numeric(expected: object) -> bool:
    """Return whether a value is a number, or an array or a sequence without texts and None."""
    if isinstance(expected, list | tuple):
        return not any(isinstance(element, str | None) for element in expected)
    return isinstance(expected, int | float | np.number | np.ndarray) and not isinstance(expected, bool)


def _describe_other_size(expected: object, actual: object) -> str:
    """Name both sizes if they differ; empty if not, and for short lists, which a message shows whole."""
    is_shown_whole = isinstance(expected, list) and isinstance(actual, list) and len(expected) <= 8
    if not _is_numeric(expected) or is_shown_whole or np.shape(np.asarray(actual)) == np.shape(np.asarray(expected)):
        return ""
    return f"expected {_describe_size(expected)}, came {_describe_size(actual)}: {short(actual)}."


def _is_right(expected: object, actual: object) -> bool:
    """Return whether `actual` is `expected`, fractions to 1e-5 of their size."""
    if _is_numeric(expected):
        values, wanted = np.asarray(actual), np.asarray(expected)
        is_exact = np.issubdtype(wanted.dtype, np.integer) and np.issubdtype(values.dtype, np.integer)
        relative, absolute = (0, 0) if is_exact else (1e-5, 1e-9)
        return values.shape == wanted.shape and bool(np.allclose(values, wanted, relative, absolute))
    if isinstance(expected, list | tuple):
        return isinstance(actual, list | tuple | np.ndarray) and list(actual) == list(expected)
    if isinstance(expected, bool | np.bool_ | str):
        return isinstance(actual, bool | np.bool_ | str) and bool(actual == expected)
    return actual is None if expected is None else bool(actual == expected)


def _describe_difference(expected: object, actual: object) -> str:
    """Name the element that differs most; empty unless two arrays look the same in a message."""
    if (
        not isinstance(expected, np.ndarray)
        or short(expected) != short(actual)
        or np.shape(cast("ArrayLike", actual)) != expected.shape
    ):
        return ""
    actual = np.asarray(actual)
    apart = np.abs(actual.astype(float) - expected)  # the first that differs may do so by rounding alone
    place = tuple(int(index) for index in np.unravel_index(np.argmax(apart), apart.shape))
    return f"; at {list(place)} expected {short(expected[place])}, came {short(actual[place])}"


def _describe_size(value: object) -> str:
    """Return in words how many values there are, and in which shape."""
    values = np.asarray(value)
    if values.ndim == 0:
        return "a single value" if values.dtype != object else f"one {type(values.item()).__name__}"
    if values.ndim > 1:
        return f"an array of shape {values.shape}"
    return "a list, tuple or array of 1 value" if len(values) == 1 else f"{len(values)} values"
