"""The backends of Keras with which a lesson can train: the one judgment of KERAS_BACKEND."""

from __future__ import annotations

import os

from helpers.errors import WorkshopError

VARIABLE = "KERAS_BACKEND"
BACKENDS = {"tensorflow": "TensorFlow", "jax": "JAX", "torch": "PyTorch"}
# What else Keras 3 takes, and why no lesson can use it.
OTHERS = {"numpy": "it cannot train", "openvino": "it can run models, but not train them"}


def validate(name: str | None = None) -> None:
    """Refuse a backend that no lesson can train with.

    Args:
        name: of the backend; what KERAS_BACKEND says if None. Empty means that Keras chooses.

    Raises:
        WorkshopError: there is no such backend, or it cannot train.
    """
    name = os.environ.get(VARIABLE, "") if name is None else name
    if name and name not in BACKENDS:
        why = OTHERS.get(name, "there is no backend of that name")
        raise WorkshopError(
            f"{VARIABLE} is {name!r}, and no lesson can train with that: {why}.",
            f"The lessons train with one of {', '.join(BACKENDS)}.",
            f"Unset {VARIABLE}, or set it to one of these.",
        )
