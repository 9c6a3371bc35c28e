"""Finds what is wrong on Macs: a Python for the other processor, Apple's TensorFlow plug-in, and the unused GPU.

Not verified on hardware.
"""

from __future__ import annotations

import re

from helpers.devices.frameworks import FRAMEWORKS
from helpers.doctor.facts import Facts
from helpers.doctor.findings import Results, tell

# tensorflow-metal 1.2.0 fits TensorFlow 2.18 and 2.19; from 2.20 on `import tensorflow` itself fails
# (https://github.com/tensorflow/tensorflow/pull/126360, 2026-08-28). 1.1.0 breaks with 2.18 (issues 81987, 84167).
METAL, TENSORFLOWS = (1, 2), ((2, 18), (2, 19))
PLUGIN_WORDS = r"libmetal_plugin|_pywrap_tensorflow_internal|symbol not found"


def find_rosetta(facts: Facts) -> Results:
    """Find that Rosetta translates this Python."""
    is_intel_python = facts.host.system == "Darwin" and facts.host.machine == "x86_64"
    if is_intel_python and facts.read_stdout("sysctl").strip() == "1":
        yield tell("apple-rosetta", facts.host)


def find_broken_plugin(facts: Facts) -> Results:
    """Find that tensorflow-metal and TensorFlow do not fit each other, by what the import says."""
    answer = facts.answers.get("tensorflow")
    if not facts.find_package("tensorflow-metal") or answer is None or answer.state != "failed":
        return
    if re.search(PLUGIN_WORDS, answer.message, re.IGNORECASE):
        metal, tensorflow = facts.read_version("tensorflow-metal")[:2], facts.read_version("tensorflow")[:2]
        yield tell(
            "apple-metal-breaks-tensorflow",
            facts.host,
            words=["fitting"] if metal == METAL and tensorflow in TENSORFLOWS else [],
            about=["tensorflow"],
            metal=facts.packages["tensorflow-metal"],
            tensorflow=facts.packages.get(facts.find_package("tensorflow", "tensorflow-macos"), ""),
        )


def find_unused_gpu(facts: Facts) -> Results:
    """Find that Keras computes with a framework that does not reach Apple's GPU."""
    if (facts.host.system, facts.host.machine) != ("Darwin", "arm64"):
        return
    reasons = {"jax": "JAX is not supported on Apple's GPUs."}
    if not facts.find_package("tensorflow-metal"):
        reasons["tensorflow"] = "TensorFlow reaches it through the plug-in tensorflow-metal alone."
    backend = facts.backend
    if backend in reasons:
        words = ["installed"] if facts.torch else []
        yield tell(
            "apple-cpu-build", facts.host, words=words, framework=FRAMEWORKS[backend].title, reason=reasons[backend]
        )


JUDGES = (find_rosetta, find_broken_plugin, find_unused_gpu)
