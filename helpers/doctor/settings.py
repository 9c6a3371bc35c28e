"""Finds what is wrong with what a learner has set: the file of the dataset, the backend of Keras."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from helpers import ROOT
from helpers.devices.host import Host, has_module
from helpers.doctor.findings import Results, tell
from helpers.training import backends
from helpers.variables import MNIST

DATASET = MNIST


def check_dataset_file(host: Host) -> Results:
    """Find that the file that ANYGPU_MNIST names is not there; it is not read."""
    name = os.environ.get(DATASET)
    if name and not any(place.is_file() for place in (Path(name).expanduser(), ROOT / name)):
        yield tell("data-named-file", host, what=f"{DATASET} names {name}, and there is no such file.")


def find_backend(variables: Mapping[str, str]) -> tuple[str, Path | None]:
    """Return the backend that Keras will use, and the file that says so; None where the variable does.

    Args:
        variables: of the environment.
    """
    if named := variables.get(backends.VARIABLE, ""):
        return named, None
    home = os.environ.get("KERAS_HOME")
    file = (Path(home) if home else Path(os.path.expanduser("~"), ".keras")) / "keras.json"  # noqa: PTH111 (never raises)
    try:
        return str(json.loads(file.read_text(encoding="utf-8")).get("backend", "tensorflow")), file
    except (OSError, ValueError, AttributeError):
        return "tensorflow", file


def check_backend(host: Host) -> Results:
    """Find that the backend that Keras will use does not exist, is not installed, or cannot train."""
    name, file = find_backend(os.environ)
    if name in backends.BACKENDS and has_module(name):
        yield f"Keras backend: {name}"
        return
    source = f"The variable {backends.VARIABLE} asks"
    if file and file.is_file():
        source = f"Keras' own settings, {file}, ask"
    elif file:
        source = "Where nothing is set, Keras asks"
    why = "that package is not installed" if name in backends.BACKENDS else "it does not exist"
    yield tell(
        "keras-backend",
        host,
        words=[name],
        installed=next(filter(has_module, backends.BACKENDS), "tensorflow"),
        source=source,
        name=name,
        why=backends.OTHERS.get(name, why),
        backends=", ".join(backends.BACKENDS),
    )


CHECKS = (check_backend, check_dataset_file)
