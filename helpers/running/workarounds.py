"""What the workshop does about mistakes and limits of others: each with its reason and its link, to go one day."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import sys
from types import ModuleType
from typing import Any, cast

from helpers.errors import WorkshopError


def ask_for_large_pages() -> None:
    """Let processes started from here on take memory from Linux in pages of 2 MiB where it has them, not of 4 KiB.

    A network's temporary arrays come and go at every step, and in a virtual machine each page costs a fault that takes
    longer than filling it: JAX 0.10 trained lesson 05's network in 0.52 of the time with large pages (AMD EPYC, Zen 5).
    glibc reads the variable when a process starts; elsewhere it means nothing. To go when XLA keeps its arrays:
    https://sourceware.org/glibc/manual/latest/html_node/Memory-Allocation-Tunables.html
    """
    if sys.platform == "linux":
        os.environ.setdefault("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")


def keep_pocl_on_its_cores() -> None:
    """Let PoCL keep each of its threads on a core of its own, where this process may use all cores.

    Left to the system two threads may share a core while another one idles: on two cores up to a third of the matrix
    products in lesson 02 took twice as long, and none with this. PoCL reads the variable when it starts, other drivers
    do not know it. A process that was given some cores alone must not take others.
    https://portablecl.org/docs/html/env_variables.html
    """
    if sys.platform == "linux" and os.sched_getaffinity(0) == set(range(os.cpu_count() or 1)):
        os.environ.setdefault("POCL_AFFINITY", "1")


def quiet_vulkan() -> None:
    """Let Mesa's Vulkan start without lines on standard error where there is no screen.

    It looks for a Wayland server and writes "XDG_RUNTIME_DIR is invalid or not set in the environment" for each look;
    with a path it says nothing. This path is no folder: in /tmp another account could put a server of its own, and Mesa
    would connect to it. To go when Mesa looks without a word:
    wl_display_connect in https://gitlab.freedesktop.org/wayland/wayland/-/blob/main/src/wayland-client.c
    """
    if sys.platform == "linux":
        os.environ.setdefault("XDG_RUNTIME_DIR", os.devnull)


def refuse_imports(*names: str) -> None:
    """Let imports of these modules fail in this process, as if they were not installed."""
    modules = cast(dict[str, ModuleType | None], sys.modules)  # None means that a module must not be found
    modules.update(dict.fromkeys(names))


def leave_out_iri_grammar() -> None:
    """Let what reads notebooks start a second earlier, JupyterLab's server among it.

    nbformat imports jsonschema, which imports the grammar of international web addresses where it is installed, and
    building that takes 1.0 s of 1.15 s; only a schema with the format "iri" asks for it, and neither notebooks nor
    JupyterLab's settings and events have one. To go when jsonschema imports it at the first such question:
    https://github.com/python-jsonschema/jsonschema/blob/v4.25.1/jsonschema/_format.py
    """
    if "rfc3987_syntax" not in sys.modules:
        refuse_imports("rfc3987_syntax")


def give_signals_a_stack() -> None:
    """Let an interrupt do no harm to oneDNN, TensorFlow's library for processors.

    Its AVX-512 matrix product lets the stack pointer point into its own data, and an interrupt in the middle of one
    writes there: TensorFlow 2.21 was seen to end with the kernel. Python's handlers take a stack of their own where
    there is one, and faulthandler makes one. To go with the first TensorFlow whose oneDNN is newer than 3.11.1:
    https://github.com/uxlfoundation/oneDNN/issues/4845
    """
    if not faulthandler.is_enabled() and sys.__stderr__ is not None:
        faulthandler.enable(sys.__stderr__)


def switch_autotuning_off() -> None:
    """Let TensorFlow's input pipelines start without the thread that tunes them.

    Whenever a pipeline ends, TensorFlow 2.21 may wait until that thread wakes up, and it sleeps the longer the longer
    the pipeline has run, up to a minute: an epoch of 21 s was seen to take 20 s more. Keras makes its pipelines from
    arrays itself and takes the default options, so the default is the one place where the tuning can be switched off.
    kOptimizationPeriodMaxMs in https://github.com/tensorflow/tensorflow/blob/v2.21.0/tensorflow/core/framework/model.h
    """
    import tensorflow as tf

    begin = tf.data.Options.__init__
    if begin.__name__ == "without_autotuning":
        return

    def without_autotuning(self: Any) -> None:  # noqa: ANN401 (TensorFlow has no types)
        begin(self)
        self.autotune.enabled = False

    tf.data.Options.__init__ = without_autotuning


def return_freed_memory() -> None:
    """Give back to Linux what was freed, which glibc keeps in a pool for each thread.

    XLA's compiler and TensorFlow's threads leave hundreds of MiB there: without this each network of lesson 05 came on
    top of those before it. https://github.com/openxla/xla/issues/2265
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # musl has none
        if trim:
            trim(0)


def forget_trained_networks() -> None:
    """Let TensorFlow forget the networks of trainings that are over.

    Each training of Keras registers a gradient of its own by name, and TensorFlow keeps it, with the graph and every
    weight, until the process ends: lesson 05's network took 20 to 40 MiB for each training. Such a gradient is asked
    for by name only while the graph that it belongs to is differentiated. To go when ReplicaContext.all_reduce, which
    Keras' optimizers call, registers none:
    https://github.com/tensorflow/tensorflow/blob/v2.21.0/tensorflow/python/distribute/distribute_lib.py
    """
    if "tensorflow" not in sys.modules:
        return
    from tensorflow.python.framework import ops

    names = getattr(ops.gradient_registry, "_registry", {})
    for name in [name for name in names if name.startswith("CustomGradient-")]:
        del names[name]


def refuse_old_jax() -> None:
    """Refuse a JAX that has no setting for when a silent process counts as lost.

    Raises:
        WorkshopError: it has none, as the last version for Macs with an Intel processor.
    """
    import inspect

    import jax

    if "heartbeat_timeout_seconds" not in inspect.signature(jax.distributed.initialize).parameters:
        raise WorkshopError(
            f"JAX {jax.__version__} cannot join processes as this course does.",
            "A newer one can; for a Mac with an Intel processor there is none.",
            "Train in one process, or use another computer.",
        )
