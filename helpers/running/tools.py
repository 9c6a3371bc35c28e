"""Tools that may hang, such as a driver's: asked within a time-out, and whatever happens is in the answer."""

from __future__ import annotations

import os
from dataclasses import dataclass

from helpers.running import processes
from helpers.setup import programs

TOOL_SECONDS = 6.0  # for each tool; a driver that has slept takes one or two


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
    program = programs.find_program(command[0])
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
