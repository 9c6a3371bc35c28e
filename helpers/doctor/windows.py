"""Findings about Windows: frameworks without a GPU, missing libraries. Not verified on such machines."""

from __future__ import annotations

import re

from helpers.devices.frameworks import FRAMEWORKS
from helpers.doctor import amd, nvidia
from helpers.doctor.facts import Facts
from helpers.doctor.findings import Results, advise, comma_list, tell

LAST_WITH_GPU = (2, 10)  # of TensorFlow on Windows itself: https://www.tensorflow.org/install/pip
# TensorFlow's own build_info names them as msvcp_dll_names; tensorflow/python/platform/self_check.py asks for them.
LIBRARIES = ("msvcp140.dll", "msvcp140_1.dll", "vcruntime140_1.dll")
MAKERS = {"nvidia": "NVIDIA", "amd": "AMD|Radeon", "intel": "Intel"}


def runtime(facts: Facts) -> Results:
    """Are the libraries of Visual C++ there."""
    if facts.host.system != "Windows" or not facts.exists("Windows/System32"):
        return
    missing = [name for name in LIBRARIES if not facts.exists(f"Windows/System32/{name}")]
    if missing:
        yield tell("windows-runtime", facts.host, about=["tensorflow", "torch"], files=", ".join(missing))


def cards(facts: Facts) -> list[str]:
    """Return the names of the GPUs that Windows lists; those of basic drivers and simple ones are left out."""
    lines = [line.strip() for line in facts.stdout("powershell").splitlines()]
    names = [line for line in lines if re.search(r"NVIDIA|AMD|Radeon|Intel.*Arc", line)]
    return names or [gpu.name for gpu in nvidia.gpus(facts)]


def no_gpu(facts: Facts) -> Results:
    """Does Keras compute with a framework that has no GPU on Windows, or with PyTorch for processors."""
    backend, here = facts.backend(), cards(facts)
    old_tensorflow = backend == "tensorflow" and () < facts.version("tensorflow")[:2] <= LAST_WITH_GPU
    torch_for_gpus = backend == "torch" and facts.torch != "cpu"
    if facts.host.system != "Windows" or not here or old_tensorflow or torch_for_gpus or backend not in FRAMEWORKS:
        return
    target = next(filter(None, map(amd.target_of, here)), amd.UNKNOWN)
    makers = [maker for maker, words in MAKERS.items() if any(re.search(words, name) for name in here)]
    ways = "\n".join(advise(f"torch-for-{maker}", facts.host, target=target) for maker in makers)
    yield tell("windows-tensorflow", facts.host, gpu=comma_list(here), ways=ways, framework=FRAMEWORKS[backend].title)


JUDGES = (runtime, no_gpu)
