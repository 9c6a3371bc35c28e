"""Tools that may hang, such as a driver's: asked within a time-out, and whatever happens is in the answer."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass

from helpers.running import processes

TOOL_SECONDS = 6.0  # for each tool; a driver that has slept takes one or two
# Where tools are that PATH may not lead to.
TOOL_FOLDERS = (
    "/opt/rocm/bin",
    "/opt/rocm/core/bin",
    "/usr/lib/wsl/lib",
    "/usr/sbin",
    "/sbin",
)


@dataclass(frozen=True)
class ToolOutput:
    """How a tool ended, and what it printed."""

    state: str  # ok, missing, failed or timed out
    stdout: str = ""
    stderr: str = ""  # or why it could not be started


def ask_tool(command: list[str], seconds: float | None = None) -> ToolOutput:
    """Run a tool; whatever happens is in the answer.

    Args:
        command: its name and its arguments.
        seconds: the time after which it is killed; TOOL_SECONDS if None.
    """
    program = shutil.which(command[0]) or shutil.which(command[0], path=os.pathsep.join(TOOL_FOLDERS))
    if not program:
        return ToolOutput("missing")
    try:
        english = {**os.environ, "LC_ALL": "C"}
        done = processes.run_command([program, *command[1:]], seconds or TOOL_SECONDS, env=english)
    except (OSError, ValueError) as error:  # such as a file that is no program
        return ToolOutput("failed", stderr=str(error))
    if done.status is None:
        return ToolOutput("timed out")
    return ToolOutput("ok" if done.status == 0 else "failed", done.stdout, done.stderr)
