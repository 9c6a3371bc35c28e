"""Findings about what a learner has set: the workload, the file of the dataset, the backend of Keras."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from helpers import ROOT
from helpers.compute import backends
from helpers.compute.host import Host, has_module
from helpers.doctor.findings import Results, found
from helpers.errors import WorkshopError
from helpers.measure import workload

DATASET = "ANYGPU_MNIST"


def profile(host: Host) -> Results:
    """Is ANYGPU_PROFILE one of the profiles."""
    try:
        workload.current()
    except WorkshopError as error:
        yield found("host-profile", host, what=error.what, why=error.why)


def dataset_file(host: Host) -> Results:
    """Without reading it: is the file that ANYGPU_MNIST names there."""
    name = os.environ.get(DATASET)
    if name and not any(place.is_file() for place in (Path(name).expanduser(), ROOT / name)):
        yield found("data-named-file", host, what=f"{DATASET} names {name}, and there is no such file.")


def chosen_backend(variables: Mapping[str, str]) -> tuple[str, Path | None]:
    """Return the backend that Keras will take, and the file that says so; None where the variable does.

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


def backend(host: Host) -> Results:
    """Is the backend that Keras will take one that exists, is installed, and can train."""
    name, file = chosen_backend(os.environ)
    words, source = [name], f"The variable {backends.VARIABLE} asks"
    if file and file.is_file():
        words, source = [name, "file"], f"Keras' own settings, {file}, ask"
    elif file:
        source = "Where nothing is set, Keras asks"
    installed = next(filter(has_module, backends.BACKENDS), "tensorflow")
    values = {"source": source, "name": name, "installed": installed}
    if name not in backends.BACKENDS:
        why = backends.OTHERS.get(name, "it does not exist")
        yield found("keras-backend", host, words=words, why=why, backends=", ".join(backends.BACKENDS), **values)
    elif not has_module(name):
        yield found("keras-not-installed", host, words=words, **values)
    else:
        yield f"Keras backend: {name}"


CHECKS = (profile, backend, dataset_file)
