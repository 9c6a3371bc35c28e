"""Findings about Macs: a Python for the other processor, Apple's TensorFlow plug-in, JAX, and the GPU that nobody uses.

Not verified on hardware.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from helpers.compute.frameworks import FRAMEWORKS
from helpers.compute.host import Host, command, python_command, set_variable
from helpers.doctor.facts import Facts
from helpers.doctor.findings import Failure, Finding

# Which TensorFlow each tensorflow-metal fits. 1.2.0: 2.18 and 2.19; from 2.20 on `import tensorflow` itself fails
# (https://github.com/tensorflow/tensorflow/pull/126360, 2026-08-28). 1.1.0 breaks with 2.18 (issues 81987, 84167).
METAL_FITS = {(1, 2): ((2, 18), (2, 19)), (1, 1): ((2, 0), (2, 17))}
PAIR = '"tensorflow==2.19.*" "tensorflow-metal==1.2.0"'
PLUGIN_WORDS = r"libmetal_plugin|_pywrap_tensorflow_internal|symbol not found"


def _metal(host: Host) -> str:
    if host.installed_by == "venv":
        lab = command(host, "lab --accel metal --with torch")
        return f"Build the environment anew with the pair that fits:\n    {lab}"
    pip = f"    {python_command(host)} -m pip"
    pair = f"Take the pair that fits, on Python 3.12 or older:\n{pip} install {PAIR}"
    return f"{pair}\nOr go without it:\n{pip} uninstall tensorflow-metal"


def _torch(host: Host) -> str:
    if host.installed_by == "venv":
        get = f"    {command(host, 'lab --accel metal --with torch')}"
    else:
        get = f"    {python_command(host)} -m pip install torch"
    keras = set_variable(host, "KERAS_BACKEND", "torch")
    return f"Let Keras compute with PyTorch, whose device mps is Apple's GPU:\n{get}\n    {keras}"


def _native_python(host: Host) -> str:
    remove = "    rm -r .venv\n" if host.installed_by == "venv" else ""
    call = "python3 workshop.py lab" if host.installed_by == "venv" else "python3 -m venv .venv"
    return (
        "Install a Python for Apple's processors: from https://www.python.org/downloads/macos (universal2), or with "
        "the "
        "Homebrew of /opt/homebrew. Open a terminal without Rosetta (Finder: Get Info, Open using Rosetta). Then:\n"
        f"    /opt/homebrew/bin/brew install python@3.12\n{remove}    {call}"
    )


ROSETTA = Failure(
    "apple-rosetta", "Python", "limits",
    "This Python was made for Intel's processors, and Rosetta translates it on this Apple processor.",
    "Packages for Intel Macs know no Apple GPU, and TensorFlow's ended with 2.16.2. Not every macOS translates the AVX "
    "instructions that they use.",
    _native_python,
    "https://developer.apple.com/documentation/apple-silicon/about-the-rosetta-translation-environment "
    "(sysctl.proc_translated); PyPI (2026-11-20)",
    ("apple",),
)  # fmt: skip
METAL_BREAKS = Failure(
    "apple-metal-breaks-tensorflow", "TensorFlow", "limits",
    "tensorflow-metal {metal} does not fit TensorFlow {tensorflow}: `import tensorflow` fails.",
    "TensorFlow loads the plug-in when it is imported, and the plug-in's symbols are those of another version (Library "
    "not loaded: _pywrap_tensorflow_internal.so; Symbol not found).",
    _metal,
    "https://github.com/tensorflow/tensorflow/pull/126360, /issues/81987, /issues/84167; PyPI: 1.2.0 of 2025-01-31 is "
    "the last",
    ("apple",), {"metal": "1.2.0", "tensorflow": "2.20.0"},
)  # fmt: skip
JAX_METAL = Failure(
    "apple-jax-metal", "JAX", "limits",
    "jax-metal is installed, and JAX {jax} does not work with it.",
    "The project is dead, says JAX's maintainer (2026-01-20), though Apple's page still offers it. It fits JAX 0.5.0 "
    "alone.",
    lambda host: f"Remove it; JAX then computes on the processor:\n    {python_command(host)} -m pip uninstall "
    f"jax-metal\n{_torch(host)}",
    "https://github.com/jax-ml/jax/issues/26968, /27062; JAX's documentation (2026-08): not supported on Mac GPUs",
    ("apple",), {"jax": "0.11.2"},
)  # fmt: skip
NOT_USED = Failure(
    "apple-cpu-build", "Apple GPU", "note",
    "Keras computes with {framework} here, which does not use Apple's GPU.",
    "{reason}",
    _torch,
    "https://www.tensorflow.org/install/pip (2026-03-11); JAX's documentation (2026-08); keras 3.15.1: torch takes mps",
    ("apple",),
    {"framework": "TensorFlow", "reason": "TensorFlow reaches it through the plug-in tensorflow-metal alone."},
)  # fmt: skip
FAILURES = (ROSETTA, METAL_BREAKS, JAX_METAL, NOT_USED)


def rosetta(facts: Facts) -> Iterator[Finding]:
    """Does Rosetta translate this Python."""
    if facts.host.system == "Darwin" and facts.host.machine == "x86_64" and facts.said("sysctl").strip() == "1":
        yield ROSETTA.found(facts.host)


def metal_breaks(facts: Facts) -> Iterator[Finding]:
    """Do tensorflow-metal and TensorFlow fit each other: by the versions, or by what the import says."""
    if not facts.has("tensorflow-metal"):
        return
    name = facts.has("tensorflow", "tensorflow-macos")
    bounds = METAL_FITS.get(facts.version("tensorflow-metal")[:2])
    has = facts.version(name)[:2]
    answer = facts.answers.get("tensorflow")
    says = answer is not None and answer.state == "failed" and re.search(PLUGIN_WORDS, answer.message, re.IGNORECASE)
    if says or (bounds and has and not bounds[0] <= has <= bounds[1]):
        metal, tensorflow = facts.packages["tensorflow-metal"], facts.packages.get(name, "")
        yield METAL_BREAKS.found(facts.host, metal=metal, tensorflow=tensorflow)


def jax_metal(facts: Facts) -> Iterator[Finding]:
    """Is the dead plug-in installed, with a JAX that it does not fit."""
    if facts.has("jax-metal") and facts.version("jax") != (0, 5, 0):
        yield JAX_METAL.found(facts.host, jax=facts.packages.get("jax", "(none)"))


def not_used(facts: Facts) -> Iterator[Finding]:
    """Does Keras compute with a framework that does not reach Apple's GPU."""
    if (facts.host.system, facts.host.machine) != ("Darwin", "arm64"):
        return
    backend = facts.backend()
    reasons = {
        "tensorflow": "" if facts.has("tensorflow-metal") else NOT_USED.example["reason"],
        "jax": "JAX is not supported on Apple's GPUs.",
    }
    if reasons.get(backend):
        yield NOT_USED.found(facts.host, framework=FRAMEWORKS[backend].title, reason=reasons[backend])


JUDGES = (rosetta, metal_breaks, jax_metal, not_used)
