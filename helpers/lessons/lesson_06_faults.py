"""Serve lesson 06, Switch Keras backends: its first step by hand, in NumPy, with rounding, and its exercise 3."""

from __future__ import annotations

import copy
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
) -> dict[str, Any]:
    """Return the first step of the lesson's training in NumPy, as lesson 04 computes it by hand.

    Args:
        weights: three kernels and biases in turn, float32.
        images: of shape (n, 784), bytes.
        labels: of shape (n,).
        change: rounds both factors of each product.
        on: which ReLUs are on, as packed bits; None lets the sums decide.

    Returns:
        "before" (the predictions), "on" with one entry, and "gradients", as the lesson's `train` finds them; "forward",
        the arguments of `go_back`.
    """

    def multiply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return change(np.ascontiguousarray(a)) @ change(np.ascontiguousarray(b))

    given = None if on is None else np.unpackbits(on).reshape(2, len(images), -1)
    inputs, is_on = {1: images.astype(np.float32) / 255}, {}
    for layer in (1, 2):
        sums = multiply(inputs[layer], weights[2 * layer - 2]) + weights[2 * layer - 1]
        is_on[layer] = sums > 0 if given is None else given[layer - 1].astype(bool)
        inputs[layer + 1] = np.where(is_on[layer], sums, np.float32(0))
    e = np.exp(multiply(inputs[3], weights[4]) + weights[5])
    probabilities = e / e.sum(axis=1, keepdims=True)
    error = (probabilities - np.eye(10, dtype=np.float32)[labels]) / np.float32(len(images))
    forward = error, inputs, dict(zip((1, 2, 3), weights[::2], strict=True)), is_on
    found = go_back(*forward, multiply=multiply)
    packed = np.concatenate([np.packbits(mask) for mask in is_on.values()])
    gradients = {name: found[name] for name in NAMES}
    return {"before": probabilities, "on": [packed], "gradients": gradients, "forward": forward}


def go_back(
    error: np.ndarray,
    inputs: Mapping[int, np.ndarray],
    weights: Mapping[int, np.ndarray],
    is_on: Mapping[int, np.ndarray],
    multiply: Callable[[np.ndarray, np.ndarray], np.ndarray] = np.matmul,
) -> dict[str, np.ndarray]:
    """Return by name the gradients of three layers, as exercise 3 of lesson 06 repairs it.

    `error` is the output's, of shape (n, 10). The others hold an array for each layer, from 1 on.
    """
    gradients = {}
    for layer in (3, 2, 1):
        gradients[f"weights {layer}"] = multiply(inputs[layer].T, error)
        gradients[f"biases {layer}"] = error.sum(axis=0)
        error = multiply(error, weights[layer].T)
        if layer > 1:
            error = error * is_on[layer - 1]
    return gradients


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


_BOTH_FAULTS = ["weights 1", "biases 1", "biases 2", "biases 3"]  # what is wrong as long as neither is repaired


@checks.print_verdict
def check_go_back(
    learner: Callable[..., dict], step: Mapping[str, Any], find: Callable[..., list[str]]
) -> Iterator[str]:
    """Judge exercise 3 of lesson 06, a repaired way back: on the lesson's step, then on networks of other sizes.

    Args:
        learner: gets what `go_back` gets.
        step: the lesson's, as `compute_by_hand` returns it.
        find: finds the names of the arrays that differ by more than rounding, such as `find_wrong`.
    """
    rng, (n, *sizes) = np.random.default_rng(), (5, 7, 6, 4, 3)
    inputs = {layer: rng.normal(size=(n, sizes[layer - 1])) for layer in (1, 2, 3)}
    weights = {layer: rng.normal(size=sizes[layer - 1 : layer + 1]) for layer in (1, 2, 3)}
    is_on = {layer: rng.integers(0, 2, (n, sizes[layer])) > 0 for layer in (1, 2)}
    other = rng.normal(size=(n, sizes[3])), inputs, weights, is_on
    for words, given in (("this step", step["forward"]), (f"{n} images and layers of {sizes}", other)):
        right = go_back(*given)
        came = checks.answer(learner, *copy.deepcopy(given), who=f"for {words}, go_back")
        if not isinstance(came, Mapping) or set(came) != set(right):
            raise checks.NotYet(f"for {words}, go_back returned {checks.short(came)}; expected gradients of {NAMES}.")
        for name, array in right.items():
            if (shape := np.shape(came[name])) != array.shape:
                raise checks.NotYet(f"for {words}, {name} have shape {shape}; expected {array.shape}.")
        named = find({name: right[name] for name in NAMES}, came)
        if named == _BOTH_FAULTS and given is step["forward"]:
            raise checks.NotDone(f"both faults are still there; wrong: {', '.join(named)}.")
        if named:
            raise checks.NotYet(f"for {words}, these gradients are wrong: {', '.join(named)}.")
    yield "this step, and a network of other sizes"
