"""PlaidML itself, which brought the Tile language: an environment of its own beside the lessons, for lesson 06b.

PlaidML 0.7.0 of January 2020 was its last release with Tile. It still runs, in an environment of its own that
`python3 workshop.py plaidml` builds: the packages of its time must not mix with those of the lessons. A lesson runs a
function there:

    processes.run(train_with_plaidml, python=plaidml.python(), variables=plaidml.KERAS, arguments=given)
"""

from __future__ import annotations

import collections.abc
import platform

from helpers import ROOT
from helpers.devices.host import Host, command
from helpers.errors import WorkshopError
from helpers.setup.tools import python_in

ENVIRONMENT = ROOT / ".plaidml"
LOCK = ROOT / "requirements" / "plaidml.txt"
RESULTS = ROOT / "data" / "results" / "plaidml.json"
# For Keras 2.2.4, which is beside it; and what plaidml-setup would store in the home folder: which devices to list,
# which one to take, no reports of usage.
KERAS = {
    "KERAS_BACKEND": "plaidml.keras.backend",
    "PLAIDML_EXPERIMENTAL": "1",
    "PLAIDML_DEVICE_IDS": "llvm_cpu.0",
    "PLAIDML_TELEMETRY": "0",
}


def ready() -> bool:
    """Say whether PlaidML's environment is there and whole: it then keeps a copy of the lock it was built from."""
    copy = ENVIRONMENT / LOCK.name
    return python_in(ENVIRONMENT).exists() and copy.exists() and copy.read_bytes() == LOCK.read_bytes()


def python() -> str:
    """Return the path of the Python that has PlaidML, for `processes.run(..., python=...)`.

    Raises:
        WorkshopError: it is not there, or cannot be on this machine.
    """
    if ready():
        return str(python_in(ENVIRONMENT))
    if reason := unfit():
        raise WorkshopError("PlaidML cannot run on this machine.", reason, "Look at what was recorded elsewhere.")
    raise WorkshopError(
        "PlaidML is not ready here.",
        "It lives in an environment of its own, which has not been built to its end, or from another list of packages.",
        f"Type in the workshop's folder: {command(Host.here(), 'plaidml')}",
    )


def unfit() -> str:
    """Return why PlaidML 0.7.0 cannot run on this machine; empty if nothing speaks against it."""
    if platform.machine().lower() in ("x86_64", "amd64"):
        return ""
    return f"Its packages of 2020 are for x86-64 processors alone, and this Python runs on {platform.machine()}."


def put_names_back() -> None:
    """Put back the names that Keras 2.2.4 uses and Python has dropped; to be called in PlaidML's own process."""
    import inspect

    for name in collections.abc.__all__:  # Python 3.10 dropped them
        setattr(collections, name, getattr(collections.abc, name))
    vars(inspect)["getargspec"] = lambda function: inspect.getfullargspec(function)[:4]  # Python 3.11 did
