"""Findings about Keras: the backend that it will take, and settings of memory that seem to be ignored."""

from __future__ import annotations

import os
from collections.abc import Iterator

from helpers.compute import backends, devices
from helpers.compute.host import Host, command, python_command, set_variable
from helpers.doctor import amd_gpus, nvidia
from helpers.doctor import host as computer
from helpers.doctor.facts import Facts, chosen_backend
from helpers.doctor.findings import Failure, Finding, Seen, choose, forget, reinstall_or_ask


def backend(host: Host) -> Seen:
    """Is the backend that Keras will take one that exists, is installed, and can train."""
    name, file = chosen_backend(os.environ)
    source = f"Keras' own settings, {file}," if file else f"The variable {backends.VARIABLE}"
    take = set_variable(host, backends.VARIABLE, "tensorflow")
    there = "in the terminal, then start the workshop from there again"
    advice = f"Take one that is installed: type this {there}:\n    {take}"
    if file:
        advice = f'Write {{"backend": "tensorflow"}} into that file, or overrule it: type this {there}:\n    {take}'
    what = f"{source} asks for the Keras backend {name!r}"
    if name not in backends.BACKENDS:
        what += f", and no lesson can train with that: {backends.OTHERS.get(name, 'it does not exist')}."
        yield Finding(
            "Keras",
            "limits",
            what,
            f"Lessons train with one of {', '.join(backends.BACKENDS)}.",
            advice,
            "keras-backend",
        )
    elif not devices.installed(name):
        if name == "torch" and host.installed_by == "venv":
            advice = f"Install it:\n    {command(host, 'lab')} --with torch\nOr: {advice}"
        what += ", and that package is not installed."
        yield Finding(
            "Keras", "limits", what, "Every import of Keras fails until this is mended.", advice, "keras-not-installed"
        )
    else:
        yield f"Keras backend: {name}"


# ------------------------------------------------------------------- memory of a GPU: settings that seem to be ignored

PREALLOCATE, FRACTIONS = "XLA_PYTHON_CLIENT_PREALLOCATE", ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")
NO, YES = ("false", "False", "0"), ("", "true", "True", "1")  # jaxlib 0.10.2, xla_client.py: all but NO means yes
JAXLIB = "jaxlib 0.10.2, xla_client.py: generate_pjrt_gpu_plugin_options; https://github.com/jax-ml/jax/issues/19213"


MISREAD = Failure(
    "keras-preallocate-misread", "JAX", "note",
    f"{PREALLOCATE} is {{value!r}}, and JAX reads that as yes: it takes 75 % of the GPU's memory at the start.",
    f"Only {', '.join(NO)} mean no. And it has to be set before JAX is imported: in the terminal, or in a lesson's "
    "first cell.",
    lambda host: choose(host, PREALLOCATE, "false"), JAXLIB, ("nvidia", "amd-linux"), {"value": "no"},
)  # fmt: skip
NOT_READ = Failure(
    "keras-preallocate-not-read", "Keras", "note",
    f"{PREALLOCATE} is set, and Keras computes with {{backend}}, which does not read it.",
    "It is a setting of JAX alone. TensorFlow takes nearly the whole memory of a GPU unless it is told to grow; "
    "PyTorch "
    "grows by itself.",
    lambda host: choose(host, "TF_FORCE_GPU_ALLOW_GROWTH", "true"),
    "https://www.tensorflow.org/guide/gpu, limiting GPU memory growth; " + JAXLIB,
    ("nvidia", "amd-linux"), {"backend": "TensorFlow"},
)  # fmt: skip
TWO_FRACTIONS = Failure(
    "keras-two-fractions", "JAX", "limits",
    f"{' and '.join(FRACTIONS)} are both set, and JAX then refuses the GPU.",
    "They mean the same; the second is the old name.",
    lambda host: forget(host, FRACTIONS[1]), JAXLIB, ("nvidia", "amd-linux"),
)  # fmt: skip
DOES_NOT_START = Failure(
    "keras-does-not-start", "Keras", "limits",
    "Keras does not start with {backend}: {says}.",
    "{backend} itself can be imported. The words are those of Keras' own import, which every training begins with.",
    reinstall_or_ask,
    "this course's own trials: it does what a lesson's first cell does", ("cpu",),
    {"backend": "TensorFlow", "says": "ModuleNotFoundError: No module named 'h5py'"},
)  # fmt: skip
HANGS = Failure(
    "keras-hangs", "Keras", "note",
    "Keras did not start with {backend} within {seconds} s.",
    "On a slow or busy machine it takes longer. If it never ends, the first operation on a GPU hangs.",
    lambda host: f"Start it yourself, and wait for a minute:\n    {python_command(host)} -c "
    "'import keras; print(keras.ops.ones(1) + 1)'",
    DOES_NOT_START.source, ("cpu",), {"backend": "TensorFlow", "seconds": "11"},
)  # fmt: skip
FAILURES = (DOES_NOT_START, HANGS, MISREAD, NOT_READ, TWO_FRACTIONS)


def memory(facts: Facts) -> Iterator[Finding]:
    """Is JAX's setting of memory misread, or meant for a framework that does not know it; on a GPU alone."""
    if not (nvidia.there(facts) or amd_gpus.there(facts)):
        return
    value, name = facts.variables.get(PREALLOCATE), facts.backend()
    if value is not None and value not in NO + YES:
        yield MISREAD.found(facts.host, value=value)
    elif value in NO and name == "tensorflow" and "TF_FORCE_GPU_ALLOW_GROWTH" not in facts.variables:
        yield NOT_READ.found(facts.host, backend=backends.BACKENDS[name])
    if all(facts.variables.get(fraction) for fraction in FRACTIONS):
        yield TWO_FRACTIONS.found(facts.host)


def starts(facts: Facts) -> Iterator[Finding]:
    """Does Keras start as in a lesson, where its backend alone does; a first operation that fails is told elsewhere."""
    backend = facts.backend()
    answer = facts.answers.get(backend)
    if not answer or answer.state != "ok" or any(computer.no_avx(facts)):
        return
    title = backends.BACKENDS[backend]
    if facts.keras.state == "timed out" and facts.sees_gpu(backend):  # on a processor it is merely slow
        yield HANGS.found(facts.host, backend=title, seconds=facts.keras.error)
    elif facts.keras.state == "failed" and facts.keras.text == "import":
        says = facts.keras.error.splitlines()[0].rstrip(".")
        yield DOES_NOT_START.found(facts.host, backend=title, says=says)


JUDGES = (starts, memory)
