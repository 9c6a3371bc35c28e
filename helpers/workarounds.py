"""What the workshop does about mistakes and limits of others: each with its reason and its link, to go one day."""

from __future__ import annotations

import os
import sys


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
