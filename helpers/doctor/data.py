"""Findings about the dataset: is MNIST here, whole, or can a mirror be reached."""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path

from helpers import ROOT
from helpers.compute.host import Host, set_variable, unset_variable
from helpers.doctor.findings import Finding, Seen
from helpers.errors import WorkshopError

VARIABLE = "ANYGPU_MNIST"


def named_file(host: Host) -> Seen:
    """Without reading it: is the file that ANYGPU_MNIST names there."""
    name = os.environ.get(VARIABLE)
    if name and not any(place.is_file() for place in (Path(name).expanduser(), ROOT / name)):
        yield _not_mnist(host, f"{VARIABLE} names {name}, and there is no such file.")


def dataset(host: Host) -> Seen:
    """Is MNIST here, whole, or can a mirror be reached; for a subprocess, since it reads arrays and asks mirrors."""
    from helpers.compute import data

    remarks = io.StringIO()
    try:
        with contextlib.redirect_stdout(remarks):
            where = data.available()
    except WorkshopError as error:
        yield _not_mnist(host, error.what)
        return
    if where:
        yield f"MNIST: from {where}"
        return
    what = "MNIST is not on this machine, and none of its mirrors can be reached."
    why = "Lessons then use the stand-in, 1,797 smaller digits, and accuracies on it are not MNIST's."
    advice = "Connect to a network. Or download this file on another machine, copy it to this one, and name it:"
    advice += f"\n    {data.MIRRORS[0]}\n    {set_variable(host, VARIABLE, example_path(host))}"
    yield Finding("dataset", "limits", what, " ".join([why, *remarks.getvalue().splitlines()]), advice, "data-no-mnist")


def _not_mnist(host: Host, what: str) -> Finding:
    why = "While it is set, lessons that need MNIST stop: they never take another source behind your back."
    give = f"Name a whole mnist.npz:\n    {set_variable(host, VARIABLE, example_path(host))}"
    look = f"Or let the workshop look:\n    {unset_variable(host, VARIABLE)}"
    return Finding("dataset", "limits", what, why, f"{give}\n{look}", "data-named-file")


def example_path(host: Host) -> str:
    """Return how a full path looks on this system."""
    return r"C:\full\path\to\mnist.npz" if host.system == "Windows" else "/full/path/to/mnist.npz"
