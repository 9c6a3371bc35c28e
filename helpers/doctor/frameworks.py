"""Findings about frameworks: imports that fail, packages that overwrite each other, and what does not answer."""

from __future__ import annotations

from helpers.devices.frameworks import FRAMEWORKS
from helpers.devices.host import package_owners
from helpers.doctor.facts import FRAMEWORK_SECONDS, Facts, late
from helpers.doctor.findings import Results, comma_list, tell

FLAVOURS = (  # packages that own the same files: of each row one alone may be installed
    ("tensorflow", "tensorflow-cpu", "tensorflow-rocm", "tensorflow-gpu", "tensorflow-macos", "tf-nightly"),
    ("nvidia-cudnn-cu12", "nvidia-cudnn-cu13"),
    ("nvidia-nccl-cu12", "nvidia-nccl-cu13"),
    ("onnxruntime", "onnxruntime-gpu", "onnxruntime-directml"),
)


def flavours(facts: Facts) -> Results:
    """Are two packages installed that own the same files of code."""
    for row in FLAVOURS:
        here = tuple(name for name in row if facts.has(name))
        if len(here) > 1:
            shared = [file for file, names in package_owners(facts.site, here).items() if len(names) > 1]
            if shared:
                yield tell("packages-two-flavours", facts.host, packages=" and ".join(here), files=f"{len(shared):,}")


def imports(facts: Facts) -> Results:
    """Can each framework be imported."""
    for name in ("tensorflow", "jax", "torch", "onnxruntime"):  # OpenCL and WebGPU are told by their own families
        if facts.state(name) == "failed":
            says = facts.answers[name].message.rstrip(".")
            yield tell("packages-import-fails", facts.host, about=[name], framework=FRAMEWORKS[name].title, says=says)


def no_answer(facts: Facts) -> Results:
    """Did something not answer in time: on a busy machine several do not, and it is one note all the same."""
    names = [FRAMEWORKS[name].title for name in FRAMEWORKS if facts.state(name) == "timed out"]
    names += [str(device) for device in facts.tried_devices() if late(device)]
    names += ["nvidia-smi"] if "nvidia-smi" in facts.tools and facts.tools["nvidia-smi"].state == "timed out" else []
    if names:
        yield tell("devices-late", facts.host, names=comma_list(names, most=10), seconds=f"{FRAMEWORK_SECONDS:g}")


JUDGES = (flavours, imports, no_answer)
