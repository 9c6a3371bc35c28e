"""How much work a lesson does: `preview` (Binder, tests), `lab` (the default), `full` (a real GPU, only when asked)."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import TypeVar

from helpers.errors import WorkshopError

VARIABLE = "ANYGPU_PROFILE"


@dataclass(frozen=True)
class Profile:
    """The amounts that lessons ask for.

    Attributes:
        name: `preview`, `lab` or `full`.
        purpose: one line for people.
        repeats: how often a measurement is repeated.
        load_seconds: how long lesson 00 keeps the device busy, in seconds.
        largest_vector: the largest vector that lesson 01 adds, in elements.
        train_images: with how many images lessons 04 and 05 train, at most.
        mlp_epochs: how often lesson 04 shows them to its network.
        cnn_epochs: how often lesson 05 shows them to its network.
        seeds: with which seeds lesson 04 trains its network, one after another.
        trial_steps: training steps in one run of a measurement in lesson 05.
        matrix_size: rows of the square matrices that lesson 07 raises to a power.
        product_size: rows of the square matrices that lessons 02 and 03 multiply.
        copied_floats: how many numbers lesson 02 copies to measure the memory's bandwidth.
    """

    name: str
    purpose: str
    repeats: int
    load_seconds: float
    largest_vector: int
    train_images: int
    mlp_epochs: int
    cnn_epochs: int
    seeds: tuple[int, ...]
    trial_steps: int
    matrix_size: int
    product_size: int
    copied_floats: int

    def shortened(self, epochs: int, of: int, total: int = 60_000) -> str:
        """Say how far a training falls short of the whole one; empty if it does not.

        Args:
            epochs: how often this profile shows the images.
            of: how often the article showed them.
            total: how many images the dataset has for training.
        """
        images = min(self.train_images, total)
        if epochs >= of and images == total:
            return ""
        return (
            f"{self.name} profile, far from the whole training: {epochs} of {of} epochs, {images:,} of {total:,} images"
        )


PROFILES = {
    "preview": Profile(
        "preview", "little work, for Binder and the tests", 5, 1.5, 1_000_000, 3_200, 2, 1, (0, 1), 2, 800, 384, 2**24
    ),
    "lab": Profile(
        "lab",
        "the default: a laptop in a classroom",
        15,
        5.0,
        10_000_000,
        60_000,
        10,
        12,
        (0, 1, 2),
        16,
        1_200,
        1_152,
        2**26,
    ),
    "full": Profile(
        "full",
        "for a real GPU, only when asked",
        31,
        15.0,
        100_000_000,
        60_000,
        10,
        12,
        (0, 1, 2, 3, 4),
        64,
        4_000,
        4_096,
        2**28,
    ),
}


T = TypeVar("T")
WHOLE = "ANYGPU_WHOLE"  # 1: train every epoch, however long it takes


def pick(*, preview: T, lab: T, full: T) -> T:
    """Return the amount of work that belongs to the workload of this run, written where the lesson uses it.

    Args:
        preview: little, for Binder and the tests.
        lab: for a laptop in a classroom.
        full: for a real GPU.

    Raises:
        WorkshopError: ANYGPU_PROFILE names a workload that does not exist.
    """
    return {"preview": preview, "lab": lab, "full": full}[current().name]


def budget(*, preview: float, lab: float) -> float:
    """Return how many seconds a training may take, written where the lesson uses it.

    There is no limit under `full`, nor where ANYGPU_WHOLE is 1, as it is while outputs are stored.

    Args:
        preview: seconds, for Binder and the tests.
        lab: seconds, for a laptop in a classroom.

    Raises:
        WorkshopError: ANYGPU_PROFILE names a workload that does not exist.
    """
    if os.environ.get(WHOLE) == "1":
        return math.inf
    return pick(preview=preview, lab=lab, full=math.inf)


def named(name: str) -> Profile:
    """Return the profile called `name`.

    Raises:
        WorkshopError: there is no such profile.
    """
    if name not in PROFILES:
        raise WorkshopError(
            f"There is no profile called {name!r}.",
            f"The profiles are {', '.join(PROFILES)}; {VARIABLE} or --profile chooses one.",
            f"Set {VARIABLE}=lab, or leave it unset.",
        )
    return PROFILES[name]


def current() -> Profile:
    """Return the profile that the environment variable ANYGPU_PROFILE names, `lab` if it is unset or empty.

    Raises:
        WorkshopError: it names a profile that does not exist.
    """
    return named(os.environ.get(VARIABLE) or "lab")


def banner(device: str, dataset: str = "") -> None:
    """Show in a lesson what this run really uses, and leave it in the output's metadata for the run report.

    Args:
        device: the name of the device that this lesson computes on.
        dataset: the name of the dataset, empty where the lesson uses none.
    """
    from IPython.display import display

    profile = current()
    facts = {"device": device, "dataset": dataset, "profile": profile.name}
    lines = [f"Device:  {device}"]
    lines += [f"Dataset: {dataset}"] if dataset else []
    lines += [f"Profile: {profile.name} ({profile.purpose})"]
    display({"text/plain": "\n".join(lines)}, raw=True, metadata={"anygpu": facts})
