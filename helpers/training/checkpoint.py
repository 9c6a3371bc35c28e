"""A checkpoint of a training in Keras: one file that is whole whenever its process dies. Lesson 09 explains it."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import keras


def state(model: keras.Model) -> list[keras.Variable]:
    """Return all that a training changes: the weights, and what the optimizer keeps."""
    model.optimizer.build(model.trainable_variables)
    return [*model.variables, *model.optimizer.variables]


def save(file, model, losses):  # noqa: ANN001, ANN201, D103  (the lesson shows it)
    new = file.with_name("new.npz")
    np.savez(new, *[variable.numpy() for variable in state(model)], losses=losses)  # takes a while
    new.replace(file)  # takes no time: there is always a whole file of this name


def load(file: Path, model: keras.Model) -> list[float]:
    """Give a model what `save` wrote, and return the losses until then; none if there is no such file."""
    if not file.exists():
        return []
    losses, values = read(file, model)
    for variable, value in zip(state(model), values, strict=True):
        variable.assign(value)
    return losses.tolist()


def read(file: Path, model: keras.Model) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the losses and the values that `save` wrote, and change nothing.

    Raises:
        ValueError: the file is damaged, or another network's.
    """
    try:
        with np.load(file, allow_pickle=False) as kept:
            values = [kept[f"arr_{number}"] for number in range(len(kept.files) - 1)]
            losses = kept["losses"]
    except (zipfile.BadZipFile, EOFError, KeyError, RuntimeError, TypeError) as error:
        raise ValueError(f"{file} is damaged.") from error
    if [value.shape for value in values] != [tuple(variable.shape) for variable in state(model)]:
        raise ValueError(f"{file} was made by another network.")
    return losses, values
