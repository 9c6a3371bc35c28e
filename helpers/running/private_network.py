"""A network of their own for the processes of one run, on Linux: no other account and no other machine can reach it.

TensorFlow's servers listen on all addresses, ask for no password, and read and write files for whoever calls
(lesson 09). No setting of TensorFlow changes that, and 127.0.0.1 alone would not be enough: every account of a computer
can reach it. In a network namespace of its own a process sees only the processes beside it.

    python helpers/running/private_network.py

tells by its exit status whether this system lets us make one. Many containers do not, nor does Ubuntu since 23.10.
"""

from __future__ import annotations

import ctypes
import functools
import os
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000  # CLONE_NEWUSER, CLONE_NEWNET of <sched.h>
_SET_DUMPABLE = 4  # PR_SET_DUMPABLE of <sys/prctl.h>
_READ_FLAGS, _WRITE_FLAGS = 0x8913, 0x8914  # SIOCGIFFLAGS, SIOCSIFFLAGS of <linux/sockios.h>
_UP = 1  # IFF_UP of <net/if.h>


@functools.cache
def available() -> bool:
    """Return whether a process of ours can make itself a private network; a short-lived one tries."""
    if sys.platform != "linux":
        return False
    return subprocess.run([sys.executable, "-P", __file__], capture_output=True, timeout=60).returncode == 0


def enter(folder: Path, number: int) -> None:
    """Let this process, number 0, make a private network, or another one join it. It must not have started a thread.

    Args:
        folder: which the processes share, and nobody else can write to.
        number: of this process.

    Raises:
        OSError: the system forbids it, or process 0 has not made it.
    """
    made = folder / "network"  # holds the number of the process that made it
    if number == 0:
        create()
        new = folder / "new-network"
        new.write_text(str(os.getpid()))
        new.replace(made)
        return
    end = time.monotonic() + 60
    while not made.exists():
        if time.monotonic() > end:
            raise TimeoutError("process 0 made no private network within 60 s")
        time.sleep(0.01)
    for kind in ("user", "net"):
        with Path("/proc", made.read_text(), "ns", kind).open() as namespace:
            _call("setns", namespace.fileno(), 0)


def create() -> None:
    """Give this process a network with nothing in it but its own 127.0.0.1 and ::1.

    Raises:
        OSError: the system forbids it.
    """
    import fcntl  # Windows has none

    user, group = os.geteuid(), os.getegid()
    _call("unshare", _NEW_USER | _NEW_NETWORK)
    Path("/proc/self/setgroups").write_text("deny")  # without it the system does not accept the next two lines
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as loopback:
        name = b"lo".ljust(16, b"\0")
        flags = struct.unpack("16xH", fcntl.ioctl(loopback, _READ_FLAGS, struct.pack("16sH", name, 0))[:18])[0]
        fcntl.ioctl(loopback, _WRITE_FLAGS, struct.pack("16sH14x", name, flags | _UP))
    _call("prctl", _SET_DUMPABLE, 1, 0, 0, 0)  # or /proc hides our namespaces from our own account's other processes


def _call(name: str, *arguments: int) -> None:
    """Call a function of C that Python has only since 3.12, or not at all."""
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments):
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    try:
        create()
    except (OSError, AttributeError) as problem:  # AttributeError: a C library without these functions
        sys.exit(str(problem))
