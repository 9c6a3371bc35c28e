"""Findings about Macs: a Python for the other processor, Apple's TensorFlow plug-in, JAX, and the GPU that nobody uses.

Not verified on hardware.
"""

from __future__ import annotations

import re

from helpers.compute.frameworks import FRAMEWORKS
from helpers.doctor.facts import Facts
from helpers.doctor.findings import Results, found

# Which TensorFlow each tensorflow-metal fits. 1.2.0: 2.18 and 2.19; from 2.20 on `import tensorflow` itself fails
# (https://github.com/tensorflow/tensorflow/pull/126360, 2026-08-28). 1.1.0 breaks with 2.18 (issues 81987, 84167).
METAL_FITS = {(1, 2): ((2, 18), (2, 19)), (1, 1): ((2, 0), (2, 17))}
PLUGIN_WORDS = r"libmetal_plugin|_pywrap_tensorflow_internal|symbol not found"


def rosetta(facts: Facts) -> Results:
    """Does Rosetta translate this Python."""
    if facts.host.system == "Darwin" and facts.host.machine == "x86_64" and facts.stdout("sysctl").strip() == "1":
        yield found("apple-rosetta", facts.host)


def metal_breaks(facts: Facts) -> Results:
    """Do tensorflow-metal and TensorFlow fit each other: by the versions, or by what the import says."""
    if not facts.has("tensorflow-metal"):
        return
    name = facts.has("tensorflow", "tensorflow-macos")
    bounds = METAL_FITS.get(facts.version("tensorflow-metal")[:2])
    version = facts.version(name)[:2]
    answer = facts.answers.get("tensorflow")
    fails = answer is not None and answer.state == "failed" and re.search(PLUGIN_WORDS, answer.message, re.IGNORECASE)
    if fails or (bounds and version and not bounds[0] <= version <= bounds[1]):
        metal, tensorflow = facts.packages["tensorflow-metal"], facts.packages.get(name, "")
        yield found("apple-metal-breaks-tensorflow", facts.host, metal=metal, tensorflow=tensorflow)


def jax_metal(facts: Facts) -> Results:
    """Is the dead plug-in installed, with a JAX that it does not fit."""
    if facts.has("jax-metal") and facts.version("jax") != (0, 5, 0):
        yield found("apple-jax-metal", facts.host, jax=facts.packages.get("jax", "(none)"))


def not_used(facts: Facts) -> Results:
    """Does Keras compute with a framework that does not reach Apple's GPU."""
    if (facts.host.system, facts.host.machine) != ("Darwin", "arm64"):
        return
    backend = facts.backend()
    by_plugin = "TensorFlow reaches it through the plug-in tensorflow-metal alone."
    reasons = {
        "tensorflow": "" if facts.has("tensorflow-metal") else by_plugin,
        "jax": "JAX is not supported on Apple's GPUs.",
    }
    if reasons.get(backend):
        yield found("apple-cpu-build", facts.host, framework=FRAMEWORKS[backend].title, reason=reasons[backend])


JUDGES = (rosetta, metal_breaks, jax_metal, not_used)
