"""Findings about frameworks: imports that fail, packages that overwrite each other, Keras, and what does not answer."""

from __future__ import annotations

from helpers.compute import backends
from helpers.compute.frameworks import FRAMEWORKS
from helpers.doctor import amd, apple, host, nvidia, packages, windows
from helpers.doctor.facts import FRAMEWORK_SECONDS, Facts, late
from helpers.doctor.findings import Results, found, listed

FLAVOURS = (  # packages that own the same files: of each row one alone may be installed
    ("tensorflow", "tensorflow-cpu", "tensorflow-rocm", "tensorflow-gpu", "tensorflow-macos", "tf-nightly"),
    ("nvidia-cudnn-cu12", "nvidia-cudnn-cu13"),
    ("nvidia-nccl-cu12", "nvidia-nccl-cu13"),
    ("onnxruntime", "onnxruntime-gpu", "onnxruntime-directml"),
)
PREALLOCATE = "XLA_PYTHON_CLIENT_PREALLOCATE"
NO, YES = ("false", "False", "0"), ("", "true", "True", "1")  # jaxlib 0.10.2, xla_client.py: all but NO means yes


def flavours(facts: Facts) -> Results:
    """Are two packages installed that own the same files of code."""
    for row in FLAVOURS:
        here = tuple(name for name in row if facts.has(name))
        if len(here) > 1:
            shared = [file for file, names in packages.owners(facts.site, here).items() if len(names) > 1]
            if shared:
                yield found("packages-two-flavours", facts.host, packages=" and ".join(here), files=f"{len(shared):,}")


def imports(facts: Facts) -> Results:
    """Can each framework be imported; where another finding knows the cause, that one tells it."""
    explained = {
        "tensorflow": any(apple.metal_breaks(facts)) or any(windows.runtime(facts)),
        "jax": any(apple.jax_metal(facts)),
        "torch": any(windows.runtime(facts)),
    }
    if any(amd.libraries(facts)) or any(host.no_avx(facts)):
        return
    for name in ("tensorflow", "jax", "torch", "onnxruntime"):  # OpenCL and WebGPU are told by their own families
        answer = facts.answers.get(name)
        if answer and answer.state == "failed" and not explained.get(name):
            says = answer.message.rstrip(".")
            yield found("packages-import-fails", facts.host, framework=FRAMEWORKS[name].title, says=says)


def no_answer(facts: Facts) -> Results:
    """Did something not answer in time: on a busy machine several do not, and it is one note all the same."""
    names = [FRAMEWORKS[name].title for name in FRAMEWORKS if _state(facts, name) == "timed out"]
    names += [str(device) for device in facts.tried() if late(device)]
    names += ["nvidia-smi"] if "nvidia-smi" in facts.tools and facts.tools["nvidia-smi"].state == "timed out" else []
    backend = facts.backend()
    if facts.keras.state == "timed out" and facts.sees_gpu(backend):  # on a processor it is merely slow
        names.append(f"Keras with {backends.BACKENDS[backend]}")
    if names:
        yield found("devices-late", facts.host, names=listed(names, most=10), seconds=f"{FRAMEWORK_SECONDS:g}")


def _state(facts: Facts, framework: str) -> str:
    answer = facts.answers.get(framework)
    return answer.state if answer else ""


def keras_starts(facts: Facts) -> Results:
    """Does Keras start as in a lesson, where its backend alone does; a first operation that fails is told elsewhere."""
    backend = facts.backend()
    failed = facts.keras.state == "failed" and facts.keras.stage == "import"
    if failed and _state(facts, backend) == "ok" and not any(host.no_avx(facts)):
        says = facts.keras.error.splitlines()[0].rstrip(".")
        yield found("keras-does-not-start", facts.host, backend=backends.BACKENDS[backend], says=says)


def memory(facts: Facts) -> Results:
    """Is JAX's setting of memory misread; on a GPU alone."""
    value = facts.variables.get(PREALLOCATE)
    if value is not None and value not in NO + YES and (nvidia.works(facts) or amd.works(facts)):
        yield found("keras-preallocate-misread", facts.host, value=value)


JUDGES = (flavours, imports, no_answer, keras_starts, memory)
