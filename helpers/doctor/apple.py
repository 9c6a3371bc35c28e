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


def find_missing_mps(facts: Facts) -> Results:
    """Find that PyTorch lists no GPU on an Apple processor, as on an old macOS and in a virtual machine."""
    is_apple = (facts.host.system, facts.host.machine) == ("Darwin", "arm64")
    if is_apple and facts.backend == "torch" and facts.has_no_gpu("torch"):
        yield tell("apple-no-mps", facts.host, about=["torch"])


def find_dead_plugin(facts: Facts) -> Results:
    """Find jax-metal, which fits one old JAX alone, where JAX does not compute."""
    if not facts.find_package("jax-metal") or "jax" not in facts.answers:
        return
    answer = facts.answers["jax"]
    if answer.state == "failed" or any(device.state == "failed" for device in answer.devices):
        yield tell("apple-jax-metal", facts.host, about=["jax"], version=facts.packages.get("jax", ""))


JUDGES = (find_rosetta, find_broken_plugin, find_dead_plugin, find_missing_mps, find_unused_gpu)
