"""Serve lesson 06, Switch Keras backends: its first step by hand, in NumPy, with rounding and with faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from helpers.judge import checks
from helpers.measure.tables import Table

NAMES = [f"{part} {layer}" for layer in (1, 2, 3) for part in ("weights", "biases")]


def round_to_tf32(x: np.ndarray) -> np.ndarray:
    """Return float32 numbers rounded to TF32, which keeps 10 of 23 binary digits."""
    return (x.view(np.uint32) + 0x1000 & 0xFFFFE000).view(np.float32)


def compute_by_hand(
    weights: Sequence[np.ndarray],
    images: np.ndarray,
    labels: np.ndarray,
    change: Callable[[np.ndarray], np.ndarray] = np.asarray,
    on: np.ndarray | None = None,
    fault: str = "none",
) -> dict[str, Any]:
    """Return the first step of the lesson's training in NumPy, as lesson 04 computes it by hand.

    Args:
        weights: three kernels and biases in turn, float32.
        images: of shape (n, 784), bytes.
        labels: of shape (n,).
        change: rounds both factors of each product.
        on: which ReLUs are on, as packed bits; None lets the sums decide.
        fault: on the way back, one of PLACES.

    Returns:
        "before" (the predictions), "on" with one entry, and "gradients", as the lesson's `train` finds them.
    """

    def multiply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return change(np.ascontiguousarray(a)) @ change(np.ascontiguousarray(b))

    given = None if on is None else np.unpackbits(on).reshape(2, len(images), -1)
    inputs, masks, gradients = [images.astype(np.float32) / 255], [], list(weights)
    for layer in (0, 1):
        sums = multiply(inputs[-1], weights[2 * layer]) + weights[2 * layer + 1]
        masks.append(sums > 0 if given is None else given[layer].astype(bool))
        inputs.append(np.where(masks[-1], sums, np.float32(0)))
    e = np.exp(multiply(inputs[2], weights[4]) + weights[5])
    probabilities = e / e.sum(axis=1, keepdims=True)
    error = probabilities - np.eye(10, dtype=np.float32)[labels]
    error /= np.float32(1 if fault == "output" else len(images))  # without it, all gradients are too large
    add_up = np.mean if fault == "biases" else np.sum
    for layer in (2, 1, 0):
        gradients[2 * layer : 2 * layer + 2] = multiply(inputs[layer].T, error), add_up(error, axis=0)
        error = multiply(error, weights[2 * layer].T)
        if layer and fault != f"relu {layer}":
            error = np.where(masks[layer - 1], error, np.float32(0))
    packed = np.concatenate([np.packbits(mask) for mask in masks])
    return {"before": probabilities, "on": [packed], "gradients": dict(zip(NAMES, gradients, strict=True))}


def compare_first_steps(right: Mapping, others: Mapping[str, Mapping], find: Callable[..., list[str]]) -> Table:
    """Return a table of how the first steps of several runs differ from a right one.

    Args:
        right: its predictions ("before"), which ReLUs are "on", and its "gradients".
        others: the same for each run, by name.
        find: finds the names of the arrays that differ by more than rounding, such as `find_wrong`.
    """
    rows = []
    for name, run in others.items():
        switched = np.unpackbits(right["on"][0] ^ run["on"][0]).sum()
        wrong = find(right["gradients"], run["gradients"])
        shares = [abs(run["gradients"][k] - array).max() / abs(array).max() for k, array in right["gradients"].items()]
        parts = [f"{abs(run['before'] - right['before']).max():.0e}", switched, f"{max(shares):.1e}"]
        rows.append((name, *parts, ", ".join(wrong) or "none"))
    return Table(
        rows, ["beside NumPy", "predictions apart", "ReLUs that differ", "gradients apart", "find_wrong names"]
    )


PLACES = {  # of a fault on the way back, and what it makes wrong
    "output": "all gradients",
    "relu 2": "the gradients of layers 2 and 1",
    "relu 1": "the gradients of layer 1",
    "biases": "the gradients of all biases",
    "none": "none of the gradients",
}
_PROGRAMS = {"A": "biases", "B": "relu 2", "C": "none", "D": "output"}


def run_programs(weights: Sequence[np.ndarray], images: np.ndarray, labels: np.ndarray) -> dict[str, dict]:
    """Return by letter the gradients of exercise 3's programs, which `compute_by_hand` with a fault stands for."""
    rounding = {"none": round_to_tf32}
    return {
        letter: compute_by_hand(weights, images, labels, rounding.get(fault, np.asarray), fault=fault)["gradients"]
        for letter, fault in _PROGRAMS.items()
    }


@checks.print_verdict
def check_places(places: object) -> Iterator[str]:
    """Judge exercise 3 of lesson 06: where each program has its fault."""

    def judge(letter: str, fault: str, place: object) -> None:
        word = str(place).strip().lower()
        if word not in PLACES:
            raise checks.NotYet(f"{letter}: {place!r} is none of {', '.join(map(repr, PLACES))}.")
        if word != fault:
            raise checks.NotYet(
                f"{letter}: {word!r} would make {PLACES[word]} wrong. Which names are printed for {letter}?"
            )

    if isinstance(places, Mapping):
        places = {key: (place,) if isinstance(place, str) else place for key, place in places.items()}
    yield checks.judge_diagnosis(places, _PROGRAMS, ("place",), "programs", judge)
