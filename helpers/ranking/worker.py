"""One framework on one device in a fresh process: prepare every work, check it, then time them in turn.

    python -m helpers.ranking.worker FRAMEWORK IDENTIFIER KIND SECONDS

`helpers.ranking.measuring` starts it. Every line on standard output is JSON, written as soon as it is known, so that a
process that crashes or hangs costs what comes after, and nothing before:

    {"version": "2.21.0"}
    {"task": "memory copy", "what": "...", "amount": 268435456.0, "first": 0.1, "loops": 1, "checked": "..."}
    {"task": "16-bit product", "why_not": "..."}
    {"task": "memory copy", "seconds": 0.012}
    {"used": 12.3}

The last one is the processor time of the process.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import time
from collections.abc import Callable, Mapping

import numpy as np

from helpers import products
from helpers.ranking import works
from helpers.ranking.tasks import TASKS
from helpers.ranking.work import Prepare

LEAST_SECONDS = 0.005  # of one value: a shorter work is done several times in a row
LEAST_VALUES = 3  # of each work, even where the time is up: fewer have no spread
LATEST = 0.6  # of the time is for all works alike; the rest for those whose values lie farther apart
STEADY = 0.02  # a middle half within this share of the median needs no more time than the others
MOST_VALUES = 100  # of each work: more change nothing

Call = Callable[[int], object]
Tell = Callable[[dict[str, object]], None]


def ready(task: str, prepare: Prepare, tell: Tell) -> tuple[Call, int] | None:
    """Prepare one work, call it for the first time, check its result, and find out how often one value calls it.

    Returns:
        What to call and how often; None if it failed, which was told then. What the check alone needed is freed.
    """
    began = time.perf_counter()
    try:
        work = prepare()
        work.call(1)
        first = time.perf_counter() - began
        checked = work.check()
        begin = time.perf_counter()
        work.call(1)  # warm; the check may have cooled the caches
        begin, loops = time.perf_counter(), 1
        work.call(1)
        once = max(time.perf_counter() - begin, 1e-7)
        loops = max(1, min(1000, round(LEAST_SECONDS / once + 0.5))) if once < LEAST_SECONDS else 1
    except products.Refused as error:
        tell({"task": task, "why_not": str(error)})
        return None
    except Exception as error:
        tell({"task": task, "why_not": f"{type(error).__name__}: {products.in_one_line(error)}"[:300]})
        return None
    tell({"task": task, "what": work.what, "amount": work.amount, "first": first, "loops": loops, "checked": checked})
    return work.call, loops


def take_turns(
    there: Mapping[str, tuple[Call, int]],
    end: float,
    tell: Tell,
    clock: Callable[[], float] = time.perf_counter,
) -> None:
    """Time all works once a round until the time is up: a slow minute must not hit one of them alone.

    At first every work has its turn; later those alone whose values lie far apart.

    Args:
        there: for each task what to call, and how often for one value.
        end: when the last round begins, by the clock.
        tell: takes each value.
        clock: in seconds.
    """
    seconds: dict[str, list[float]] = {task: [] for task in there}
    began = clock()
    while True:
        rounds = min((len(values) for values in seconds.values()), default=MOST_VALUES)
        enough = rounds >= LEAST_VALUES
        if enough and (clock() >= end or rounds >= MOST_VALUES):
            return
        later = enough and clock() > began + LATEST * (end - began)
        turn = [task for task, values in seconds.items() if not later or _spread(values) > STEADY]
        turn = [task for task in turn if len(seconds[task]) < MOST_VALUES]
        if not turn:
            return
        for task in turn:
            call, loops = there[task]
            begin = clock()
            call(loops)
            seconds[task].append((clock() - begin) / loops)
            tell({"task": task, "seconds": seconds[task][-1]})
            if enough and clock() >= end:
                return


def _spread(values: list[float]) -> float:
    low, middle, high = np.percentile(values, [25, 50, 75])
    return float((high - low) / middle)


def main(framework: str, identifier: str, kind: str, seconds: float) -> None:
    """Time everything that one framework can do on one device, and end."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    began = time.perf_counter()
    faulthandler.enable()

    def tell(line: dict[str, object]) -> None:
        print(json.dumps(line), file=channel, flush=True)

    wanted = works.by_name(framework, identifier, kind)
    tell({"version": works.version(framework)})
    there = {}
    for task in TASKS:
        if task in wanted and (found := ready(task, wanted[task], tell)):
            there[task] = found
    take_turns(there, began + seconds, tell)
    tell({"used": time.process_time()})
    channel.flush()
    os._exit(0)  # all is told: skip the frameworks' own tidying up, which is slow and may crash


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]))
