"""How long two cores need to hand a number in memory to each other and back; on Linux, where processes can be pinned.

Works with many small steps on several cores depend on it. A virtual machine's host may move its cores at any time
between places that share a cache and places that do not: then one turn takes two to three times as long, and nothing
in the machine says so.

A script of the standard library alone, run in a process of its own: it forks, and both halves do nothing but wait for
each other. It prints the seconds for a turn there and back, a number for each repeat, Python's own time included.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import time

TURNS = 2000  # in one repeat: about half a millisecond
REPEATS = 15
LIMIT = 5  # seconds, after which the system ends each half: the other one may have been killed


def main() -> None:
    """Measure between the first two cores that this process may use."""
    first, second = sorted(os.sched_getaffinity(0))[:2]
    os.sched_setaffinity(0, {first})  # before the fork: where it is forbidden, nobody waits for anybody
    number = mmap.mmap(-1, 1)
    partner = os.fork()
    signal.alarm(LIMIT)
    if partner == 0:
        os.sched_setaffinity(0, {second})
        for _ in range(TURNS * (1 + REPEATS)):
            while number[0] != 1:
                pass
            number[0] = 0
        os._exit(0)
    seconds = []
    for _ in range(1 + REPEATS):
        begin = time.perf_counter()
        for _ in range(TURNS):
            number[0] = 1
            while number[0] != 0:
                pass
        seconds.append((time.perf_counter() - begin) / TURNS)
    os.waitpid(partner, 0)
    print(json.dumps(seconds[1:]))  # the first warms up


if __name__ == "__main__":
    main()
