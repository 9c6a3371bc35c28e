"""Finds what is wrong with what a learner has set: the file of the dataset, the backend of Keras."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from helpers import ROOT
from helpers.devices.host import Host, has_module
from helpers.doctor.findings import Results, tell
from helpers.training import backends
from helpers.variables import MNIST

DATASET = MNIST
LESSONS_NEED = {
    "image_data_format": "channels_last",
    "floatx": "float32",
}  # what Keras has where no file says otherwise


def _is_on(value: str) -> bool:
    """Return whether JAX reads a variable's value as true."""
    return value.lower() in ("y", "yes", "t", "true", "on", "1")


CHANGING: dict[str, tuple[Callable[[str], bool], str]] = {  # is a value another than the lessons', and what it does
    "MPLBACKEND": (  # tried: with Agg a cell that draws shows nothing
        lambda value: bool(value) and not any(word in value for word in ("inline", "ipympl", "widget")),
        "Notebooks show no figures.",
    ),
    "KERAS_MAX_EPOCHS": (bool, "Keras ends every training after so many epochs."),
    "KERAS_MAX_STEPS_PER_EPOCH": (bool, "Keras ends every epoch after so many steps."),
    "JAX_ENABLE_X64": (_is_on, "JAX computes with float64 where the lessons mean float32."),
    "JAX_DISABLE_JIT": (_is_on, "JAX compiles nothing: each operation runs alone."),
    "JAX_DEBUG_NANS": (_is_on, "JAX stops with an error where a result is nan."),
    "PYOPENCL_BUILD_OPTIONS": (bool, "PyOpenCL compiles every kernel with these options."),
    "CUDA_LAUNCH_BLOCKING": (
        lambda value: value not in ("", "0"),
        "On an NVIDIA GPU each launch waits for the end of its kernel.",
    ),
    "PYTHONOPTIMIZE": (bool, "Python runs no `assert`, with which cells check their results."),
}


def check_dataset_file(host: Host) -> Results:
    """Find that the file that ANYGPU_MNIST names is not there; it is not read."""
    name = os.environ.get(DATASET)
    if name and not any(place.is_file() for place in (Path(name).expanduser(), ROOT / name)):
        yield tell("data-named-file", host, what=f"{DATASET} names {name}, and there is no such file.")


def _find_keras_file() -> Path:
    """Return where Keras looks for a learner's own settings."""
    home = os.environ.get("KERAS_HOME")
    return (Path(home) if home else Path(os.path.expanduser("~"), ".keras")) / "keras.json"  # noqa: PTH111 (never raises)


def _read_keras_file(file: Path) -> dict[str, object]:
    """Return a learner's own settings of Keras; none where the file is missing, or holds something else."""
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return settings if isinstance(settings, dict) else {}


def find_backend(variables: Mapping[str, str]) -> tuple[str, Path | None]:
    """Return the backend that Keras will use, and the file that says so; None where the variable does.

    Args:
        variables: of the environment.
    """
    if named := variables.get(backends.VARIABLE, ""):
        return named, None
    file = _find_keras_file()
    return str(_read_keras_file(file).get("backend", "tensorflow")), file


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
    installed = next(filter(has_module, backends.BACKENDS), "")
    why = "that package is not installed" if name in backends.BACKENDS else "it does not exist"
    yield tell(
        "keras-backend",
        host,
        words=[name] if installed else ["no-framework"],
        installed=installed,
        source=source,
        name=name,
        why=backends.OTHERS.get(name, why),
        backends=", ".join(backends.BACKENDS),
    )


def check_keras_file(host: Host) -> Results:
    """Find that a learner's own settings of Keras give images another shape, or numbers another type."""
    file = _find_keras_file()
    settings = _read_keras_file(file)
    other = [f"{name} to {settings[name]}" for name, ours in LESSONS_NEED.items() if settings.get(name, ours) != ours]
    if other:
        needed = " and ".join(LESSONS_NEED.values())
        yield tell("keras-settings", host, file=file, settings=" and ".join(other), needed=needed)


def check_variables(host: Host) -> Results:
    """Find variables that change what lessons show, for every program that is started from the same terminal."""
    names = [name for name, (is_other, _) in CHANGING.items() if is_other(os.environ.get(name, ""))]
    if names:
        values = ", ".join(f"{name} is {os.environ[name]!r}" for name in names)
        effects = " ".join(CHANGING[name][1] for name in names)
        yield tell("settings-variables", host, names=" ".join(names), values=values, effects=effects)


CHECKS = (check_backend, check_keras_file, check_variables, check_dataset_file)
