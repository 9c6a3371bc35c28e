"""The finding about Keras: the backend that it will take."""

from __future__ import annotations

import json
import os
from pathlib import Path

from helpers import backends, devices
from helpers.machine.doctor.findings import Finding, Seen
from helpers.machine.host import Host, command, set_variable


def backend(host: Host) -> Seen:
    """Is the backend that Keras will take one that exists, is installed, and can train."""
    chosen, source = os.environ.get(backends.VARIABLE, ""), f"The variable {backends.VARIABLE}"
    take = set_variable(host, backends.VARIABLE, "tensorflow")
    there = "in the terminal, then start the workshop from there again"
    advice = f"Take one that is installed: type this {there}:\n    {take}"
    if not chosen:
        chosen, file = _configured()
        source = f"Keras' own settings, {file},"
        advice = f'Write {{"backend": "tensorflow"}} into that file, or overrule it: type this {there}:\n    {take}'
    what = f"{source} asks for the Keras backend {chosen!r}"
    if chosen not in backends.BACKENDS:
        what += f", and no lesson can train with that: {backends.OTHERS.get(chosen, 'it does not exist')}."
        yield Finding("Keras", "limits", what, f"Lessons train with one of {', '.join(backends.BACKENDS)}.", advice)
    elif not devices.installed(chosen):
        if chosen == "torch" and host.installed_by == "venv":
            advice = f"Install it:\n    {command(host, 'lab')} --with torch\nOr: {advice}"
        what += ", and that package is not installed."
        yield Finding("Keras", "limits", what, "Every import of Keras fails until this is mended.", advice)
    else:
        yield f"Keras backend: {chosen}"


def _configured() -> tuple[str, Path]:
    """Return the backend that keras.json names, tensorflow by default, and that file; as Keras reads it."""
    home = os.environ.get("KERAS_HOME")
    file = (Path(home) if home else Path(os.path.expanduser("~"), ".keras")) / "keras.json"  # noqa: PTH111 (never raises)
    try:
        return str(json.loads(file.read_text(encoding="utf-8")).get("backend", "tensorflow")), file
    except (OSError, ValueError, AttributeError):
        return "tensorflow", file
