"""A checkpoint of a training in Keras: one file that is whole whenever its process dies. Lesson 09 explains it."""

from __future__ import annotations

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
    with np.load(file, allow_pickle=False) as kept:
        for number, variable in enumerate(state(model)):
            variable.assign(kept[f"arr_{number}"])
        return kept["losses"].tolist()
