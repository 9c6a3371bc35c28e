"""Findings about Macs: a Python for the other processor, Apple's TensorFlow plug-in, and the GPU that nobody uses.

Not verified on hardware.
"""

from __future__ import annotations

import re

from helpers.devices.frameworks import FRAMEWORKS
from helpers.doctor.facts import Facts
from helpers.doctor.findings import Results, tell

# tensorflow-metal 1.2.0 fits TensorFlow 2.18 and 2.19; from 2.20 on `import tensorflow` itself fails
# (https://github.com/tensorflow/tensorflow/pull/126360, 2026-08-28). 1.1.0 breaks with 2.18 (issues 81987, 84167).
PLUGIN_WORDS = r"libmetal_plugin|_pywrap_tensorflow_internal|symbol not found"


def rosetta(facts: Facts) -> Results:
    """Does Rosetta translate this Python."""
    if facts.host.system == "Darwin" and facts.host.machine == "x86_64" and facts.stdout("sysctl").strip() == "1":
        yield tell("apple-rosetta", facts.host)


def metal_breaks(facts: Facts) -> Results:
    """Do tensorflow-metal and TensorFlow fit each other: by what the import says."""
    answer = facts.answers.get("tensorflow")
    if not facts.has("tensorflow-metal") or answer is None or answer.state != "failed":
        return
    if re.search(PLUGIN_WORDS, answer.message, re.IGNORECASE):
        tensorflow = facts.packages.get(facts.has("tensorflow", "tensorflow-macos"), "")
        metal = facts.packages["tensorflow-metal"]
        yield tell(
            "apple-metal-breaks-tensorflow", facts.host, about=["tensorflow"], metal=metal, tensorflow=tensorflow
        )


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
        yield tell("apple-cpu-build", facts.host, framework=FRAMEWORKS[backend].title, reason=reasons[backend])


JUDGES = (rosetta, metal_breaks, not_used)
