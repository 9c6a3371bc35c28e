"""Findings about GPUs that several families share, whoever made the GPU."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from helpers.devices.frameworks import FRAMEWORKS
from helpers.doctor.facts import Facts
from helpers.doctor.findings import Finding, Results, join_names, tell

JAX_PLATFORMS = "JAX_PLATFORMS"
CHOOSING = {  # by vendor, the variables that choose which GPUs a framework may see
    "NVIDIA": ("CUDA_VISIBLE_DEVICES", JAX_PLATFORMS, "JAX_PLATFORM_NAME"),
    "AMD": ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", JAX_PLATFORMS, "JAX_PLATFORM_NAME"),
    "Intel": ("ONEAPI_DEVICE_SELECTOR", "ZE_AFFINITY_MASK"),
}
TRAINING = ("tensorflow", "jax", "torch")  # the frameworks that obey the variables of CUDA and ROCm
UNLISTED = {  # what a framework says of the driver
    "fabric": r"Error 802|system not yet initialized",
    "compat": r"Error 80[34]|forward compatibility|unsupported display driver",
    "unknown-error": r"CUDA unknown error|CUDA_ERROR_UNKNOWN|\(error 999\)",
}
LISTED = "It lists the GPUs that a program may see, from 0; a number that does not exist ends the list."


def is_hiding_all(value: str, count: int) -> bool:
    """Return whether a variable that lists GPUs hides all of them, by its first entry; UUIDs are not judged.

    Args:
        value: of the variable.
        count: of the GPUs; 0 if it is not known.

    >>> is_hiding_all("-1", 0), is_hiding_all("2,0", 2), is_hiding_all("1,0", 2), is_hiding_all("GPU-8f2a", 2)
    (True, True, False, False)
    """
    first = value.split(",")[0].strip()
    if first in ("", "-1"):
        return True
    return count > 0 and re.fullmatch(r"-?\d+", first) is not None and not 0 <= int(first) < count


def tell_hidden(
    facts: Facts,
    names: list[str],
    which: str,
    reason: str = LISTED,
    severity: str = "",
    about: Iterable[str] = TRAINING,
) -> Finding:
    """Return the finding that variables hide devices.

    Args:
        facts: of the machine.
        names: of the variables.
        which: devices they hide.
        reason: why these values hide them.
        severity: instead of the failure's own.
        about: the frameworks that obey the variables.
    """
    values = ", ".join(f"{name} is {facts.variables[name]!r}" for name in names)
    return tell(
        "devices-hidden",
        facts.host,
        severity,
        about=about,
        names=" ".join(names),
        which=which,
        values=values,
        reason=reason,
    )


def tell_hidden_from_jax(facts: Facts, builds: Collection[str], vendor: str) -> Results:
    """Tell that JAX_PLATFORMS lets JAX look at other platforms than the GPU for which it was built."""
    value = facts.variables.get(JAX_PLATFORMS, "")
    if value and "jax" in builds and not re.search(r"cuda|rocm|gpu", value) and facts.has_no_gpu("jax"):
        reason = "JAX looks at these platforms alone."
        yield tell_hidden(facts, [JAX_PLATFORMS], f"every {vendor} GPU from JAX", reason, about=["jax"])


def describe_choosing(facts: Facts, vendor: str) -> dict[str, str]:
    """Return what the texts of failures.toml name of the variables that choose a vendor's GPUs: names and values."""
    chosen = [name for name in CHOOSING[vendor] if name in facts.variables]
    values = ", ".join(f"{name} is {facts.variables[name]!r}" for name in chosen)
    return {"names": " ".join(chosen), "values": values}


def tell_processor_build(facts: Facts, builds: Collection[str], vendor: str, gpu: str) -> Results:
    """Tell that Keras computes with a framework for processors, and which others are for processors, too.

    Args:
        facts: of the machine.
        builds: the frameworks that were built for the vendor's GPUs.
        vendor: of the GPU.
        gpu: its name.
    """
    packages = {
        "tensorflow": facts.find_package("tensorflow", "tensorflow-cpu"),
        "jax": facts.find_package("jax"),
        "torch": facts.torch,
    }
    without = [FRAMEWORKS[name].title for name, package in packages.items() if package and name not in builds]
    backend = facts.backend
    if packages.get(backend) and backend not in builds and not facts.has_gpu(backend):
        yield tell(
            "devices-cpu-build",
            facts.host,
            words=[vendor, backend],
            about=[backend],
            vendor=vendor,
            gpu=gpu,
            frameworks=join_names(without),
        )


def tell_unlisted(facts: Facts, builds: Iterable[str], vendor: str) -> Results:
    """Tell of each framework that was built for a vendor's GPUs and lists none, with what it says."""
    for framework in builds:
        if facts.has_no_gpu(framework):
            message = facts.answers[framework].message
            words = [word for word, pattern in UNLISTED.items() if re.search(pattern, message, re.IGNORECASE)]
            if facts.variables.get("LD_LIBRARY_PATH"):
                words.append("path")
            choosing = describe_choosing(facts, vendor)
            if choosing["names"]:
                words.append("variables")
            yield tell(
                "devices-not-listed",
                facts.host,
                words=words,
                about=[framework],
                framework=FRAMEWORKS[framework].title,
                vendor=vendor,
                says=f"It says: {message}" if message else "It says nothing of that itself.",
                **choosing,
            )
