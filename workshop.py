"""Set the workshop up and hand over: `python3 workshop.py lab` opens the lessons, `... test` runs the tests.

This file needs only Python 3.8 or newer. helpers/setup installs uv into `.uv` and lets it install into
`.venv` what pyproject.toml asks for, in the versions of requirements/lock.txt; then `python -m helpers COMMAND` runs
there. While nothing has changed, nothing is installed.
"""

import argparse
import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
from typing import BinaryIO, Generator, List, Optional, Sequence

ROOT = os.path.dirname(os.path.realpath(__file__))
LOCK = os.path.join(ROOT, ".venv.lock")
WINDOWS = os.name == "nt"
if WINDOWS:
    import msvcrt
else:
    import fcntl
if sys.version_info >= (3, 8):
    try:
        if ROOT not in sys.path:
            sys.path.insert(0, ROOT)  # a Python that is told to be safe leaves this folder out
        from helpers import commands
        from helpers.errors import WorkshopError
        from helpers.setup import environment, families, tools
    except ImportError as problem:
        print(
            f"The workshop is incomplete: {problem}.\nNext: Get the whole folder, not only this file.", file=sys.stderr
        )
        sys.exit(2)
CALL = "py workshop.py" if WINDOWS else "python3 workshop.py"
EXTRAS = {
    "torch": "PyTorch",
    "openvino": "Intel's runtime for trained networks, about 60 MB",
    "tinygrad": "a framework that writes its OpenCL itself, 3 MB",
    "intel-opencl": "Intel's OpenCL for CPUs, 0.3 GB, Intel's license; added by default on Linux and Windows",
}
NEED_TOOLS = ("test", "store", "lint", "book")  # the commands for those who change the course


def main(arguments: Sequence[str]) -> int:
    """Set up what the command needs, run it, and return its exit status."""
    if sys.version_info < (3, 8):
        print("The setup needs Python 3.8 or later; this is Python {}.{}.".format(*sys.version_info), file=sys.stderr)
        print("Why:  The lessons need Python 3.11 to 3.13.\nNext: Install Python 3.12.", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that no tool is left running alone
    try:
        options, rest = own_options().parse_known_args(list(arguments))
        asks_help = bool(rest) and rest[-1] in ("-h", "--help")
        if not rest or rest[0] in ("help", "-h", "--help") or (asks_help and not environment.read()):
            print(own_options(commands.overview()).format_help(), end="")
            return 0 if rest else 2
        commands.check(rest[0], CALL)
        if not asks_help:
            set_up(options, rest[0])
        return hand_over(rest)
    except WorkshopError as problem:
        print(problem, file=sys.stderr)
        return 2
    except OSError as error:
        step = "Stop programs that use this folder, such as JupyterLab, type `deactivate` where .venv is active, free"
        step += " some disk space, or copy the folder elsewhere. Then repeat the command."
        print(WorkshopError("The setup cannot work in this folder.", str(error), step), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nInterrupted. Run the same command to continue.", file=sys.stderr)
        return 130


def own_options(above: Optional[str] = None) -> argparse.ArgumentParser:
    """Return the parser of what this file understands itself, before or after the command; `above` heads its help."""
    raw = argparse.RawDescriptionHelpFormatter
    usage = f"{CALL} COMMAND [...]"
    parser = argparse.ArgumentParser(CALL, usage, above, formatter_class=raw, add_help=False, allow_abbrev=False)
    shown = f"{{{','.join(families.FAMILIES)}}}"  # without rocm, which only answers with the page that helps
    choices = [*families.FAMILIES, "rocm"]
    parser.add_argument("--accel", metavar=shown, choices=choices, help="packages for this accelerator")
    extras = "add " + ", or ".join(f"{name} ({what})" for name, what in EXTRAS.items())
    parser.add_argument("--with", dest="extras", choices=list(EXTRAS), action="append", default=[], help=extras)
    less = "leave out a package that is added by default; OpenCL then comes from PoCL (Linux) or a driver that you have"
    parser.add_argument("--without", choices=[families.INTEL_OPENCL], action="append", default=[], help=less)
    return parser


def set_up(options: argparse.Namespace, command: str) -> None:
    """Bring .venv to what this call needs, if it is not there already."""
    if not was_killed() and environment.is_built(desired_state(options, command)):
        return
    with only_one():
        environment.repair()
        stood, wanted = environment.read(), desired_state(options, command)
        if environment.is_built(wanted):  # another call has built it while this one waited
            return
        began = time.monotonic()
        size = families.describe_download(wanted.family, wanted.extras)
        first = f"Setting up. This takes some minutes, only once, and downloads about {size}."
        print("Setting up." if stood else first, flush=True)
        if families.INTEL_OPENCL in wanted.extras and not (stood and families.INTEL_OPENCL in stood.extras):
            print("This includes Intel's OpenCL. By installing it, you accept Intel's license,", flush=True)
            print(f"{families.INTEL_LICENSE}\n(to leave it out, use --without {families.INTEL_OPENCL}).", flush=True)
        tools.bring_uv()
        # What was there before must not be lost where something new cannot be had.
        held = tuple(name for name in wanted.extras if name in (stood.extras if stood else (families.INTEL_OPENCL,)))
        try:
            environment.build(wanted._replace(extras=held))
            environment.build(wanted)
        except WorkshopError as problem:
            environment.repair()
            standing = environment.read()
            if standing and environment.is_built(standing):
                raise WorkshopError(f"{problem}\n      The lessons also open without it: {CALL} lab") from None
            raise
        print(f"Setup finished after {time.monotonic() - began:.0f} s.", flush=True)
    suggestion = families.suggest_gpu(wanted.family)
    if suggestion and not options.accel:
        print(suggestion, flush=True)


def desired_state(options: argparse.Namespace, command: str) -> "environment.State":
    """Return the state that .venv should have: what is asked for now, or was before."""
    stands = environment.read()
    family = options.accel or (stands.family if stands else "cpu")
    families.check(family)
    if families.INTEL_OPENCL in options.extras:
        families.check_intel_opencl()
    extras = set(options.extras)
    if stands:
        extras.update(stands.extras)
    elif families.has_intel_opencl():
        extras.add(families.INTEL_OPENCL)
    extras.difference_update(options.without)
    if command in NEED_TOOLS:
        extras.update(environment.GROUPS)
    return environment.State(family, tuple(sorted(extras)))


@contextlib.contextmanager
def only_one() -> Generator[None, None, None]:
    """Hold the right to install into this folder; the operating system gives it back if this process dies."""
    with open(LOCK, "a+b") as file:
        os.set_inheritable(file.fileno(), True)  # and not before the tool that it started has ended
        for attempt in itertools.count():
            if take(file):
                break
            if not attempt:
                print("Another command is installing in this folder; waiting for it.", flush=True)
            time.sleep(0.2)
        yield


def was_killed() -> bool:
    """Say whether a call was killed while it installed: it left its mark, and nobody is installing."""
    if not (environment.VENV / environment.UNFINISHED).exists():
        return False
    with open(LOCK, "a+b") as file:
        return take(file)


def take(file: BinaryIO) -> bool:
    """Lock a file, until it is closed; return whether nobody else held it."""
    try:
        if WINDOWS:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def hand_over(arguments: List[str]) -> int:
    """Run `python -m helpers` in .venv: in place of this process, or on Windows below it."""
    command = [str(tools.python_in(tools.VENV)), "-m", "helpers", *arguments]
    os.chdir(ROOT)
    sys.stdout.flush()
    if not WINDOWS:
        os.execve(command[0], command, tools.clean_environment())
    signal.signal(signal.SIGINT, lambda *_: None)  # the terminal sends Ctrl-C to the command too
    return subprocess.run(command, env=tools.clean_environment(), check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
