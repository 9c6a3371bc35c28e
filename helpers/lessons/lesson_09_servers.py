"""Lesson 09's servers of TensorFlow in a network of their own: no other account and no other machine reaches them.

TensorFlow's servers listen on all addresses, ask for no password, and read and write files for anybody who calls. No
setting of TensorFlow changes that, and 127.0.0.1 alone would not be enough: every account of a computer reaches it.
util-linux's `unshare` gives a process a network in which there is nothing else. Many containers forbid that, and Ubuntu
since 23.10. This module is started inside such a network:

    unshare --user --map-root-user --net python -m helpers.lessons.lesson_09_servers FILE FUNCTION PROCESSES
"""

from __future__ import annotations

import functools
import inspect
import json
import runpy
import socket
import struct
import sys
import tempfile
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path

from helpers.errors import WorkshopError

UNSHARE = ("unshare", "--user", "--map-root-user", "--net")
READ_FLAGS, WRITE_FLAGS = 0x8913, 0x8914  # SIOCGIFFLAGS, SIOCSIFFLAGS of <linux/sockios.h>
UP = 1  # IFF_UP of <net/if.h>
STARTUP = 60  # seconds for the process around those of the run


@functools.cache
def is_own_network_allowed() -> bool:
    """Return whether this system lets us make a network; a short-lived process tries."""
    from helpers.running import processes

    try:
        return processes.run_command([*UNSHARE, "true"], STARTUP).status == 0
    except OSError:  # no unshare: not Linux, or a very small system
        return False


def run_in_own_network(
    function: Callable[..., object], count: int, seconds: float, variables: Mapping[str, str] | None = None
) -> list[str]:
    """Call a function in `count` processes that share a network with nobody else, and return what each printed.

    Args:
        function: as `helpers.running.processes.run` takes it.
        count: of processes.
        seconds: for all of it.
        variables: further environment variables of the processes.

    Raises:
        WorkshopError: a process failed, or the time is over.
        KeyboardInterrupt: as pressed; the processes are killed then.
    """
    from helpers.running import processes

    with tempfile.TemporaryDirectory(prefix="anygpu-", ignore_cleanup_errors=True) as folder:
        file = Path(folder, "servers.py")
        file.write_text(textwrap.dedent(inspect.getsource(function)), encoding="utf-8")
        name = getattr(function, "__name__", "")
        inside = (sys.executable, "-P", "-m", __name__, str(file), name, str(count), str(seconds))
        done = processes.run_command([*UNSHARE, *inside], seconds + STARTUP, processes.environment(variables))
    lines = done.stdout.splitlines()
    if done.status or not lines:
        raise WorkshopError(
            "TensorFlow's servers could not be run.", done.stderr.strip()[-1000:], "Run the cell again."
        )
    answer = json.loads(lines[-1])
    if "error" in answer:
        raise WorkshopError(*answer["error"])
    return answer["printed"]


def bring_loopback_up() -> None:
    """Bring up 127.0.0.1 and ::1, which a new network has and leaves down; iproute2 need not be installed."""
    import fcntl  # Windows has none

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as loopback:
        name = b"lo".ljust(16, b"\0")
        flags = struct.unpack("16xH", fcntl.ioctl(loopback, READ_FLAGS, struct.pack("16sH", name, 0))[:18])[0]
        fcntl.ioctl(loopback, WRITE_FLAGS, struct.pack("16sH14x", name, flags | UP))


def main(file: str, name: str, count: str, seconds: str) -> None:
    """Run the function `name` of a file in processes of this network, and print one line of JSON."""
    from helpers.running import processes

    bring_loopback_up()
    try:
        answer = {"printed": processes.run(runpy.run_path(file)[name], int(count), float(seconds)).stdout}
    except WorkshopError as error:
        answer = {"error": [error.what, error.why, error.next]}
    print(json.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
