"""Let work that starts and ends processes come to its end when a learner presses Ctrl-C."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from helpers.errors import show_one_line

Result = TypeVar("Result")


def finish_despite_interrupts(work: Callable[[threading.Event], Result]) -> Result:
    """Call `work` in a thread, which no Ctrl-C stops halfway through starting or ending the processes.

    Args:
        work: gets an event. At Ctrl-C the event is set, `work` has to return soon, and KeyboardInterrupt is raised.
    """
    from concurrent.futures import Future, ThreadPoolExecutor, wait

    stop = threading.Event()
    made: Future[Result] | None = None
    with ThreadPoolExecutor(1) as pool:
        try:
            made = pool.submit(work, stop)
            while not made.done():
                wait([made], 0.5)  # on Windows one without an end would not see Ctrl-C
            return made.result()
        except KeyboardInterrupt as error:
            # Pressed again, at whatever line, it still waits for the clean-up. The pool's own wait is no help: a join
            # that is interrupted takes its thread for dead, and Python ends beside it: cpython issue 90882.
            while True:
                try:
                    stop.set()
                    wait([made] if made else [])
                    break
                except KeyboardInterrupt:
                    continue
            show_one_line(
                error, "Interrupted: what this cell had started has ended, too. Run the cell again when you like."
            )
            raise
