"""Execute a notebook in a kernel of this very Python: watch its memory, its time and its death, leave no process."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from helpers.commands import lesson_files
from helpers.measure import workload
from helpers.variables import GRADE

if TYPE_CHECKING:
    import psutil
    from nbformat import NotebookNode

SAMPLE_SECONDS = 0.1
# Against hanging: lesson 05 trains ten minutes on JAX.
CELL_SECONDS = {"preview": 300, "lab": 1800, "full": 3600}
OUTPUT_LIMIT = 10_000_000  # characters: the most that is kept of what one cell prints
WIDGET = "application/vnd.jupyter.widget-view+json"
COLORS = re.compile(r"\x1b\[[0-9;]*m")


class Failure(NamedTuple):
    """Why a notebook stopped."""

    kind: str  # error, timed out, kernel died
    cell: int | None  # its position, from 0; None if the kernel did not start
    message: str  # for people, one or more lines


class Outcome(NamedTuple):
    """What came of executing a notebook."""

    seconds: float  # from the start of the kernel to its end
    peak_bytes: int  # the largest memory of the kernel and its children, as sampled; what they share counts for each
    failure: Failure | None


class Watch(threading.Thread):
    """Samples the memory of a process and its children, and remembers the children so that none is left behind."""

    def __init__(self, process: psutil.Process) -> None:
        super().__init__(daemon=True)
        self.process, self.peak, self.family, self._over = process, 0, {process}, threading.Event()

    def sample(self) -> None:
        """Look once."""
        import psutil

        total = 0
        with contextlib.suppress(psutil.Error):
            self.family |= set(self.process.children(recursive=True))
        for process in list(self.family):
            with contextlib.suppress(psutil.Error):
                total += process.memory_info().rss
        self.peak = max(self.peak, total)

    def run(self) -> None:
        """Look until `close` is called."""
        while not self._over.wait(SAMPLE_SECONDS):
            self.sample()

    def close(self) -> None:
        """End the sampling, and every process that was seen and still runs."""
        import psutil

        self._over.set()
        self.join()
        for process in self.family:
            with contextlib.suppress(psutil.Error):  # psutil refuses to kill a newer process with the same number
                process.kill()
        psutil.wait_procs(list(self.family), timeout=3)


def manager(**options: str) -> Any:  # noqa: ANN401
    """Return a kernel manager that starts this very Python, whatever kernels are installed for the user.

    Its kernels are encrypted: their ports are open to every account of the machine, which could read what they print.

    Args:
        options: further traits of jupyter_client's AsyncKernelManager, such as another transport than ports.
    """
    from ipykernel.kernelspec import RESOURCES, get_kernel_dict
    from jupyter_client import AsyncKernelManager
    from jupyter_client.kernelspec import KernelSpec, KernelSpecManager

    class ThisPython(KernelSpecManager):
        def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
            return KernelSpec(resource_dir=RESOURCES, **get_kernel_dict())

    return AsyncKernelManager(kernel_spec_manager=ThisPython(), transport_encryption="auto", **options)


def _make_client(notebook: NotebookNode, timeout: int) -> Any:  # noqa: ANN401
    """Return nbclient's client for `notebook`; it keeps OUTPUT_LIMIT characters of a cell that prints without end."""
    from collections import Counter

    from nbclient import NotebookClient

    printed: Counter[int] = Counter()

    class Client(NotebookClient):
        def output(self, outs: list, msg: dict, display_id: str | None, cell_index: int) -> NotebookNode | None:
            before = printed[cell_index]
            printed[cell_index] += len(str(msg["content"]))
            if printed[cell_index] > OUTPUT_LIMIT and msg["msg_type"] != "error":
                if before > OUTPUT_LIMIT:
                    return None
                msg["msg_type"], msg["content"] = "stream", {"name": "stdout", "text": "\n[The rest was not kept.]\n"}
            return super().output(outs, msg, display_id, cell_index)

    client = Client(
        notebook, km=manager(), timeout=timeout, coalesce_streams=True, record_timing=False, store_widget_state=False
    )
    client.log.setLevel("CRITICAL")  # we report every failure, once
    return client


@contextlib.contextmanager
def _start_kernel(
    notebook: NotebookNode, folder: Path, environment: dict[str, str], timeout: int
) -> Generator[tuple[Any, Watch]]:
    """Start a kernel in `folder`, hand over (nbclient's client, watch), and end it with all its children."""
    import asyncio

    import psutil
    from jupyter_core.utils import ensure_event_loop

    client = _make_client(notebook, timeout)
    watch = None
    try:
        # What a cell prints comes as a message. What it writes past that, such as escape codes, reaches no terminal.
        client.start_new_kernel(cwd=str(folder), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        watch = Watch(psutil.Process(client.km.provisioner.pid))
        watch.start()
        client.start_new_kernel_client()
        yield client, watch
    except BaseException:
        client.shutdown_kernel = "immediate"  # a kernel that hangs or died has nothing to tidy up
        raise
    finally:
        loop = ensure_event_loop()
        left = asyncio.all_tasks(loop)  # an interrupted cell leaves its tasks behind
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        if watch:
            watch.sample()
        if client.km:
            client._cleanup_kernel()
        if watch:
            watch.close()


def execute(
    notebook: NotebookNode,
    folder: Path = lesson_files.FOLDER,
    profile: str = "",
    grade: bool = False,
    cell_seconds: int | None = None,
    allow_errors: bool = False,
    progress: Callable[[int], None] = lambda index: None,
    variables: Mapping[str, str] | None = None,
) -> Outcome:
    """Execute every code cell of `notebook`, in place, and stop at the first that fails and is no exercise's.

    Args:
        notebook: its outputs are replaced.
        folder: where the kernel works.
        profile: the profile of the run; the current one if empty.
        grade: whether the checks raise (ANYGPU_GRADE=1).
        cell_seconds: how long one cell may take; by default as long as CELL_SECONDS says for the profile.
        allow_errors: go on after a cell that raised; its error is then among its outputs.
        progress: called after each cell with its position.
        variables: further environment variables of the kernel.

    Raises:
        KeyboardInterrupt: as pressed; the kernel has ended by then.
        WorkshopError: there is no such profile.
    """
    profile = workload.validate(profile) if profile else workload.current()
    environment = {k: v for k, v in os.environ.items() if k not in (GRADE, "MPLBACKEND")}
    environment |= {workload.VARIABLE: profile} | ({GRADE: "1"} if grade else {}) | dict(variables or {})
    lesson_files.clear(notebook)
    began, watch, failure = time.perf_counter(), None, None
    try:
        with _start_kernel(notebook, folder, environment, cell_seconds or CELL_SECONDS[profile]) as (client, watch):
            client.allow_errors = allow_errors
            failure = _execute_cells(client, notebook, progress)
            _leave_widgets_out(notebook)
            if failure:
                client.shutdown_kernel = "immediate"
    except (RuntimeError, OSError) as error:
        failure = Failure("kernel died", None, f"The kernel did not start: {error}. Run `doctor` to find the reason.")
    return Outcome(time.perf_counter() - began, watch.peak if watch else 0, failure)


def _execute_cells(client: Any, notebook: NotebookNode, progress: Callable[[int], None]) -> Failure | None:  # noqa: ANN401
    """Execute the cells up to the first failure; a wrong exercise is one, too, but does not stop the cells after it."""
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    wrong: list[tuple[int, Failure]] = []
    for index, cell in enumerate(notebook.cells):
        failure = None
        try:
            client.execute_cell(cell, index)
        except CellExecutionError as error:
            failure = Failure("error", index, f"{error.ename}: {error.evalue}".strip())
        except CellTimeoutError:
            failure = Failure("timed out", index, f"The cell ran longer than {client.timeout} seconds.")
        except DeadKernelError:
            failure = Failure("kernel died", index, "The kernel crashed, was killed, or ran out of memory.")
        if failure:
            wrong.append((index, failure))
        if failure and not (failure.kind == "error" and {"exercise", "check"} & set(lesson_files.tags(cell))):
            break
        progress(index)
    if not wrong:
        return None
    first = wrong[0][1]
    more = [f"{lesson_files.label(notebook, index)}: {failure.message}" for index, failure in wrong[1:]]
    return first._replace(message="\n".join([first.message, *more]))


def _leave_widgets_out(notebook: NotebookNode) -> None:
    """Take widgets out of outputs, which no page would fill; the text or figure beside them stays."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            output.get("data", {}).pop(WIDGET, None)


def errors(cell: NotebookNode) -> list[NotebookNode]:
    """Return the error outputs of a cell."""
    return [output for output in cell.get("outputs", []) if output.output_type == "error"]


def text(cell: NotebookNode, stream: str = "stdout") -> str:
    """Return what a cell wrote to a stream, without colors."""
    written = [out.text for out in cell.get("outputs", []) if out.output_type == "stream" and out.name == stream]
    return COLORS.sub("", "".join(written))


def loud(notebook: NotebookNode) -> list[int]:
    """Return the positions of the cells that wrote to standard error."""
    return [index for index, cell in enumerate(notebook.cells) if text(cell, "stderr")]
