"""Finds what is wrong with AMD GPUs: the kernel's driver, groups, what hides them, and frameworks.

Not verified on hardware.
"""

from __future__ import annotations

import re

from helpers.devices.frameworks import FRAMEWORKS, looks_integrated
from helpers.doctor import gpus
from helpers.doctor.facts import Facts
from helpers.doctor.findings import Results, join_some, tell
from helpers.doctor.gpu_findings import (
    is_hiding_all,
    tell_hidden,
    tell_hidden_from_jax,
    tell_processor_build,
    tell_unlisted,
)

DETECTION = "HSA_ENABLE_DXG_DETECTION"  # lets ROCm before 7.13 look for a GPU behind WSL
VARIABLES = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")


def is_working(facts: Facts) -> bool:
    """Return whether an AMD GPU can be expected to compute here: on Linux the kernel offers it."""
    return facts.host.system == "Linux" and facts.has_file("dev/kfd") and bool(gpus.list_amd_targets(facts))


def list_rocm_builds(facts: Facts) -> list[str]:
    """Return the frameworks that are installed for AMD GPUs."""
    builds = []
    if facts.find_package("tensorflow-rocm"):
        builds.append("tensorflow")
    if facts.find_package("jax-rocm7-plugin", "jax-rocm10-plugin"):
        builds.append("jax")
    if facts.torch.startswith("hip"):
        builds.append("torch")
    return builds


# --------------------------------------------------------------- the judges, the most fundamental first


def find_closed_files(facts: Facts) -> Results:
    """Find device files of GPUs that this user may not open.

    The GPU inside nearly every processor of AMD needs no note, unless something here was built for it.
    """
    builds = list_rocm_builds(facts)
    has_card = any(target not in gpus.AMD_INTEGRATED for target in gpus.list_amd_targets(facts))
    is_wanted = builds or has_card or facts.has_no_gpu("opencl")
    if facts.closed and facts.list_graphics_cards() and is_wanted:
        yield tell(
            "host-gpu-access",
            facts.host,
            "limits" if builds else "note",
            words=["joined"] if _has_joined_groups(facts) else [],
            about=["opencl", "webgpu", *builds],
            files=join_some(facts.closed),
        )


def _has_joined_groups(facts: Facts) -> bool:
    """Return whether /etc/group has this user in the groups render and video; a session of before does not know it."""
    user = facts.variables.get("LOGNAME") or facts.variables.get("USER") or ""
    rows = re.findall(r"^(render|video):[^:\n]*:\d*:(.*)$", facts.read_text("etc/group"), re.MULTILINE)
    joined = {group for group, members in rows if user and user in members.strip().split(",")}
    return {group for group, _ in rows} == joined and bool(joined)


def find_missing_kfd(facts: Facts) -> Results:
    """Find a card that the kernel does not offer; in WSL and in containers that is so by design."""
    is_outside = facts.host.wsl or facts.host.container or facts.host.system != "Linux"
    if gpus.AMD in facts.list_graphics_cards() and not facts.has_file("dev/kfd") and not is_outside:
        words = ["loaded"] if facts.has_file("sys/module/amdgpu") else []
        yield tell("amd-no-kfd", facts.host, "limits" if list_rocm_builds(facts) else "", words)


def find_hidden_gpus(facts: Facts) -> Results:
    """Find variables that hide every GPU, unless frameworks here would use NVIDIA's GPUs."""
    count = len(gpus.list_amd_targets(facts))
    values = {name: facts.variables[name] for name in VARIABLES if name in facts.variables}
    names = [name for name, value in values.items() if is_hiding_all(value, count)]
    if count and names and (list_rocm_builds(facts) or not gpus.is_nvidia_working(facts)):
        yield tell_hidden(facts, names, "every AMD GPU")
    elif count:
        yield from tell_hidden_from_jax(facts, list_rocm_builds(facts), "AMD")


def find_integrated_first(facts: Facts) -> Results:
    """Find that the first GPU of a framework is the one inside the processor, while there is a card to choose."""
    if any(facts.variables.get(name) for name in VARIABLES):
        return
    for framework in list_rocm_builds(facts):
        devices = facts.answers[framework].devices if framework in facts.answers else ()
        known = [device for device in devices if device.kind == "gpu"]
        inside = [device.integrated or looks_integrated(device.name) for device in known]
        if inside and inside[0] and not all(inside):
            number = inside.index(False)
            yield tell(
                "amd-integrated-first",
                facts.host,
                first=known[0].name,
                card=known[number].name,
                number=str(number),
            )
            return


def find_unlisted_gpus_in_wsl(facts: Facts) -> Results:
    """Find a framework that was built for AMD GPUs and lists none in WSL, where the kernel offers no /dev/kfd."""
    if not facts.host.wsl or facts.has_file("dev/kfd"):
        return
    for name in list_rocm_builds(facts):
        if facts.has_no_gpu(name):
            words = ["detected"] if facts.variables.get(DETECTION, "0") not in ("", "0") else []
            yield tell("amd-wsl-not-listed", facts.host, words=words, about=[name], framework=FRAMEWORKS[name].title)


def find_unlisted_gpus(facts: Facts) -> Results:
    """Find a framework that was built for AMD GPUs and lists none."""
    if is_working(facts):
        yield from tell_unlisted(facts, list_rocm_builds(facts), "AMD")


def find_processor_build(facts: Facts) -> Results:
    """Find that Keras computes with a framework built for processors, though an AMD GPU with packages works here."""
    if not is_working(facts) or gpus.is_nvidia_working(facts) or facts.host.wsl:
        return
    good = [target for target in gpus.list_amd_targets(facts) if target in gpus.AMD_WITH_PACKAGES]
    cards = [target for target in good if target not in gpus.AMD_INTEGRATED]
    if good:
        yield from tell_processor_build(facts, list_rocm_builds(facts), "AMD", (cards or good)[0])


JUDGES = (
    find_closed_files,
    find_missing_kfd,
    find_hidden_gpus,
    find_integrated_first,
    find_unlisted_gpus_in_wsl,
    find_unlisted_gpus,
    find_processor_build,
)
