"""How much work a lesson does: `preview` (Binder, tests), `lab` (the default), `full` (a real GPU, only when asked)."""

from __future__ import annotations

import math
import os
from typing import TypeVar

from helpers import variables
from helpers.errors import WorkshopError

VARIABLE = variables.PROFILE
WORKLOADS = {
    "preview": "little work, for Binder and the tests",
    "lab": "the default: a laptop in a classroom",
    "full": "for a real GPU, only when asked",
}
T = TypeVar("T")
WHOLE_TRAINING = variables.WHOLE  # 1: train every epoch, however long it takes


def pick(*, preview: T, lab: T, full: T) -> T:
    """Return the amount of work that belongs to the workload of this run, written where the lesson uses it.

    Args:
        preview: little, for Binder and the tests.
        lab: for a laptop in a classroom.
        full: for a real GPU.

    Raises:
        WorkshopError: ANYGPU_PROFILE names a workload that does not exist.
    """
    return {"preview": preview, "lab": lab, "full": full}[current()]


def budget(*, preview: float, lab: float) -> float:
    """Return how many seconds a training may take, written where the lesson uses it.

    There is no limit under `full`, nor where ANYGPU_WHOLE is 1, as it is while outputs are stored.

    Args:
        preview: seconds, for Binder and the tests.
        lab: seconds, for a laptop in a classroom.

    Raises:
        WorkshopError: ANYGPU_PROFILE names a workload that does not exist.
    """
    if os.environ.get(WHOLE_TRAINING) == "1":
        return math.inf
    return pick(preview=preview, lab=lab, full=math.inf)


def validate(name: str) -> str:
    """Return `name` if there is a workload of that name.

    Raises:
        WorkshopError: there is none.
    """
    if name not in WORKLOADS:
        raise WorkshopError(
            f"There is no workload called {name!r}.",
            f"The workloads are {', '.join(WORKLOADS)}; {VARIABLE} or --profile chooses one.",
            f"Set {VARIABLE}=lab, or leave it unset.",
        )
    return name


def current() -> str:
    """Return the workload that the environment variable ANYGPU_PROFILE names, `lab` if it is unset or empty.

    Raises:
        WorkshopError: it names a workload that does not exist.
    """
    return validate(os.environ.get(VARIABLE) or "lab")


def banner(device: str, dataset: str = "") -> None:
    """Show in a lesson what this run really uses, and leave it in the output's metadata for the run report.

    Args:
        device: the name of the device that this lesson computes on.
        dataset: the name of the dataset, empty where the lesson uses none.
    """
    from IPython.display import display

    name = current()
    facts = {"device": device, "dataset": dataset, "profile": name}
    lines = [f"Device:   {device}"]
    lines += [f"Dataset:  {dataset}"] if dataset else []
    lines += [f"Workload: {name} ({WORKLOADS[name]})"]
    display({"text/plain": "\n".join(lines)}, raw=True, metadata={"anygpu": facts})
