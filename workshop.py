#!/usr/bin/env python3
"""Set the workshop up and hand over: `python3 workshop.py lab` opens the lessons, `... test` runs every test.

This file needs Python 3.6 or newer and nothing else. It builds `.venv` from the lock files in requirements/, installs
the project itself into it, and calls `python -m helpers COMMAND` there. While nothing has changed it installs nothing.
"""

import argparse
import ast
import contextlib
import difflib
import hashlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

ROOT = os.path.dirname(os.path.realpath(__file__))
VENV = os.path.join(ROOT, ".venv")
OLD = VENV + ".old"  # what .venv was, while another is built in its place
PLACE = os.fsencode(ROOT).decode("utf-8", "surrogateescape")  # the same in every locale
STAMP = os.path.join(VENV, "workshop.json")  # what .venv holds; says "installing" until all of it is there
FETCHED = os.path.join(ROOT, ".uv")  # a Python that uv fetched, and the uv that fetched it
WINDOWS = os.name == "nt"
CALL = "py workshop.py" if WINDOWS else "python3 workshop.py"
EXTRAS = {"torch": "PyTorch", "intel-opencl": "Intel's OpenCL for any x86-64 processor, about 300 MB"}
NEED_TEST_TOOLS = ("test", "screenshots", "lint", "format")


class Family(NamedTuple):
    """One kind of accelerator: the newest Python that its packages run on, Keras' backend there, what it downloads."""

    newest: Tuple[int, int]
    backend: str
    download: str


OLDEST = (3, 11)
FAMILIES = {
    "cpu": Family((3, 13), "tensorflow", "0.6 GB"),
    "cuda": Family((3, 13), "jax", "4.2 GB"),  # the sum of the wheels in requirements/cuda.txt
    "metal": Family((3, 12), "torch", "0.6 GB"),
    "intel-mac": Family((3, 12), "tensorflow", "0.6 GB"),
}

ROCM = """\
AMD's packages come from AMD's own index, for Linux and Python 3.12, so there is no lock for them. These commands follow
AMD's documentation for ROCm 10.1 and were not verified on hardware. Put your GPU's name where gfx1201 stands
(`amd-smi static --asic` shows it), and be a member of the groups render and video.

  python3.12 -m venv .venv-rocm
  . .venv-rocm/bin/activate
  pip install -e .
  pip install --index-url https://stable.repo.amd.com/rocm/whl-next/ "torch[device-gfx1201]==2.14.0+rocm10.1.0"
  KERAS_BACKEND=torch python -m helpers lab

TensorFlow for Radeon RX 7000 and 9000 and Instinct MI300 and newer, if you want it too:

  pip install --index-url https://stable.repo.amd.com/rocm/whl-next/ "rocm[libraries,device-gfx1201]==10.1.0"
  pip install --extra-index-url https://rocm.frameworks.amd.com/whl-multi-arch/ "tensorflow-rocm==2.21.0+rocm10.1.0"
  sdk="$VIRTUAL_ENV/lib/python3.12/site-packages"
  export LD_LIBRARY_PATH="$sdk/_rocm_sdk_core/lib:$sdk/_rocm_sdk_core/lib/rocm_sysdeps/lib:$sdk/_rocm_sdk_libraries/lib"
"""


class Stop(Exception):
    """Say what is wrong, why, and what to do next; ends the program with status 2."""

    def __init__(self, what: str, why: str = "", next: str = "") -> None:
        lines = [what, why and "Why:  " + why, next and "Next: " + next]
        super().__init__("\n".join(line for line in lines if line))


def main(arguments: Sequence[str]) -> int:
    """Set up what the command needs, run it, and return its exit status."""
    options, rest = own_options().parse_known_args(list(arguments))
    names = commands()
    if not rest or rest[0] in ("-h", "--help") or (rest[-1] in ("-h", "--help") and not os.path.exists(STAMP)):
        print(overview(names))
        return 0 if rest else 2
    try:
        if rest[0] not in names:
            near = difflib.get_close_matches(rest[0], names, 1)
            guess = f"Did you mean {near[0]}? " if near else ""
            raise Stop(
                f"There is no command called {rest[0]!r}.",
                f"The commands are {', '.join(names)}.",
                f"{guess}`{CALL} --help` says what each of them does.",
            )
        if options.accel == "rocm":
            print(ROCM)
            return 2  # the command itself was not run
        stamp = set_up(options, rest[0])
        return hand_over(rest, stamp)
    except Stop as problem:
        print(problem, file=sys.stderr)
        return 2
    except OSError as error:
        print(Stop("The set-up cannot work in this folder.", str(error), "Mend that, then repeat."), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nInterrupted. The same command goes on from here.", file=sys.stderr)
        return 130


def own_options() -> argparse.ArgumentParser:
    """Return the parser of what this file understands itself; it may stand before or after the command."""
    parser = argparse.ArgumentParser(prog=CALL, add_help=False, allow_abbrev=False, usage=f"{CALL} COMMAND [...]")
    parser.add_argument("--accel", choices=["cpu", "cuda", "metal", "rocm"], help="packages for this accelerator")
    extras = "add " + " or ".join(f"{name} ({what})" for name, what in EXTRAS.items())
    parser.add_argument("--with", dest="extras", choices=list(EXTRAS), action="append", default=[], help=extras)
    parser.add_argument("--python", metavar="PATH", help="build .venv with this Python")
    parser.add_argument("--yes", action="store_true", help="agree to let uv fetch a Python, if none here fits")
    return parser


def commands() -> Dict[str, str]:
    """Return the commands and their one-line help, read from helpers/commands without importing it."""
    folder = os.path.join(ROOT, "helpers", "commands")
    try:
        return ast.literal_eval(assigned("COMMANDS", os.path.join(folder, "__init__.py")))
    except (OSError, AttributeError) as error:
        print(Stop("The workshop is not complete here.", str(error), "Get the whole folder, not only workshop.py."))
        raise SystemExit(2) from None


def assigned(name: str, path: str) -> str:
    """Return the source of the literal that the file assigns to `name`: on one line, or in brackets."""
    with open(path, encoding="utf-8") as file:
        return re.search(r"^" + name + r"(?:: \w+)? = (\{[^}]*\}|.+)$", file.read(), re.MULTILINE).group(1)


def overview(names: Dict[str, str]) -> str:
    """Return the help: the commands and this file's own options."""
    lines = [f"  {name:<12} {text}" for name, text in names.items()]
    return own_options().format_help() + "\ncommands (COMMAND --help says more about one):\n" + "\n".join(lines)


# ---------------------------------------------------------------------------------------------------------------------
# The set-up


def set_up(options: argparse.Namespace, command: str) -> Dict[str, Any]:
    """Bring .venv to what this call needs, if it is not there already, and return its stamp."""
    stamp = read_stamp()
    wanted = wish(options, command, stamp)
    if compare(stamp, wanted) is None:
        return stamp
    with only_one() as lock:
        stamp = read_stamp()  # another call may have done it while this one waited
        wanted = wish(options, command, stamp)
        todo = compare(stamp, wanted)
        if todo is None:
            return stamp
        rebuild, why = todo
        print(f"Setting up: {why}.", flush=True)
        build(wanted, stamp, rebuild, options, lock)
    offer(wanted["family"], bool(options.accel), command)
    return read_stamp()


def read_stamp() -> Dict[str, Any]:
    """Return what .venv says that it holds; empty if it says nothing."""
    try:
        with open(STAMP, encoding="utf-8") as file:
            stamp = json.load(file)
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def write_stamp(stamp: Dict[str, Any]) -> None:
    """Replace the stamp in one step."""
    with open(STAMP + ".new", "w", encoding="utf-8") as file:
        json.dump(stamp, file, indent=1)
    os.replace(STAMP + ".new", STAMP)


def wish(options: argparse.Namespace, command: str, stamp: Dict[str, Any]) -> Dict[str, Any]:
    """Return the stamp that .venv should have: what was asked for now or before."""
    family = family_for(options.accel or stamp.get("family") or "cpu")
    tools = command in NEED_TEST_TOOLS or bool(stamp.get("tools"))
    extras = {name: name in options.extras or bool(stamp.get(name)) for name in EXTRAS}
    if extras["intel-opencl"]:
        check_intel_opencl()
    locks = ["uv.txt", family + ".txt"] + (["test.txt"] if tools else [])
    locks += ["intel-opencl.txt"] if extras["intel-opencl"] else []
    return {
        "state": "ready",
        "place": PLACE,
        "family": family,
        "tools": tools,
        **extras,
        "python": full_path(options.python) if options.python else stamp.get("python"),
        "locks": {name: digest(os.path.join(ROOT, "requirements", name)) for name in locks},
    }


def check_intel_opencl() -> None:
    """Refuse where Intel's OpenCL is known not to work.

    Raises:
        Stop: this is no Linux on x86-64, or the folder's path has a space.
    """
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise Stop("Intel's OpenCL comes by pip for Linux on x86-64 alone.", next=f"{CALL} doctor")
    if " " in ROOT:
        raise Stop(
            "Intel's OpenCL does not work in a folder whose path has a space.",
            f"This one is {ROOT}: the driver then says DEVICE_NOT_AVAILABLE.",
            "Move the workshop to a folder without spaces and repeat, or: sudo apt install pocl-opencl-icd",
        )


def full_path(python: str) -> str:
    """Return the file behind the name or path of a Python."""
    return os.path.realpath(shutil.which(python) or python)


def family_for(asked: str) -> str:
    """Return the family whose lock fits this machine.

    Raises:
        Stop: the family that was asked for has no packages for it.
    """
    system, machine = platform.system(), platform.machine().lower()
    if asked == "cuda" and system != "Linux":
        raise Stop(
            "The cuda family is for Linux.",
            f"TensorFlow and JAX have no GPU packages for {system}.",
            "On Windows use WSL2 and call it there, or " + f"{CALL} lab --accel cpu",
        )
    if asked == "metal" and (system, machine) != ("Darwin", "arm64"):
        raise Stop("The metal family is for Macs with Apple silicon.", next=f"{CALL} lab --accel cpu")
    return "intel-mac" if asked == "cpu" and (system, machine) == ("Darwin", "x86_64") else asked


def digest(path: str) -> str:
    """Return the SHA-256 of a file."""
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError as error:
        raise Stop("A lock file is missing.", str(error), "Get the whole workshop again.") from None


def compare(stamp: Dict[str, Any], wanted: Dict[str, Any]) -> Optional[Tuple[bool, str]]:
    """Return None if .venv is as wanted, else whether it must be built anew, and why."""
    if not os.path.isdir(VENV):
        return True, "this takes some minutes once, and downloads about " + FAMILIES[wanted["family"]].download
    if not stamp:
        return True, "the folder .venv is not one that this program finished, so it is built anew"
    if stamp.get("place") != PLACE:
        return True, "the folder was moved or copied, so .venv is built anew"
    if stamp.get("state") != "ready":
        return True, "the last set-up was interrupted, so .venv is built anew"
    here = probe(venv_python())
    if here is None:
        return True, "the Python in .venv no longer starts, so .venv is built anew"
    if unfit(here, wanted["family"]) or stamp.get("family") != wanted["family"]:
        return True, f".venv does not suit the {wanted['family']} family, so it is built anew"
    if stamp.get("python") != wanted["python"]:
        return True, "another Python was asked for, so .venv is built anew"
    gone = sorted(set(stamp.get("packages", [])) - installed())
    if gone:
        return False, f"{', '.join(gone[:3])} {'is' if len(gone) == 1 else 'are'} missing from .venv"
    if any(stamp["locks"].get(name, value) != value for name, value in wanted["locks"].items()):
        return False, "the lock has changed"
    if stamp.get("tools") != wanted["tools"]:
        return False, "adding the test tools"
    added = [what for name, what in EXTRAS.items() if bool(stamp.get(name)) != wanted[name]]
    return (False, "adding " + " and ".join(added)) if added else None


def build(wanted: Dict[str, Any], stamp: Dict[str, Any], rebuild: bool, options: argparse.Namespace, lock: int) -> None:
    """Install what is wanted into .venv; the stamp says "installing" from the first change to the last."""
    tool = Tool(lock)
    if rebuild:
        python = find_python(options, wanted["family"], tool)
        with old_venv_kept():
            os.mkdir(VENV)
            write_stamp({**wanted, "state": "installing"})
            tool.run("Making .venv", [python, "-m", "venv", VENV])
            wanted["python"] = wanted["python"] if options.python else full_path(python)
            fill(wanted, tool)
    else:
        before = fingerprint()
        try:
            fill(wanted, tool)
        except Stop:
            if fingerprint() == before:
                write_stamp(stamp)  # a download failed before anything was changed: what was there is still whole
            raise
    shutil.rmtree(OLD, ignore_errors=True)
    print(f"Set-up finished after {tool.seconds():.0f} s.", flush=True)


def fill(wanted: Dict[str, Any], tool: "Tool") -> None:
    """Install what is wanted into the .venv that is there."""
    write_stamp({**wanted, "state": "installing"})
    install(wanted, tool)
    write_stamp({**wanted, "packages": sorted(installed())})


def install(wanted: Dict[str, Any], tool: "Tool") -> None:
    """Install uv by pip, then the locked packages, PyTorch and the project itself by uv."""
    python = venv_python()
    first, *others = [os.path.join("requirements", name) for name in wanted["locks"]]
    quiet = ["--quiet", "--no-input", "--disable-pip-version-check"]
    tool.run("Installing uv", [python, "-m", "pip", "install", *quiet, "--require-hashes", "-r", first])
    uv = [os.path.join(os.path.dirname(python), "uv"), "pip", "install", "--python", python]
    files = [word for name in others for word in ("-r", name)]
    tool.run(f"Installing the packages ({wanted['family']})", [*uv, "--require-hashes", *files])
    if wanted["torch"]:
        tool.run("Installing PyTorch", [*uv, *torch_arguments(wanted["family"], others)])
    if wanted["intel-opencl"]:
        register_intel_opencl()
    tool.run("Installing the workshop itself", [*uv, "--no-deps", "--editable", "."])
    make_path_relative()


def make_path_relative() -> None:
    """Name the project's folder in site-packages as seen from there.

    uv writes the whole path in UTF-8, but Python's `site` reads the file in the locale's encoding, and in the locale C
    no Python would start in a folder called Jörg. `site` resolves a relative path against the file's own folder.
    """
    folder = site_packages()
    for name in os.listdir(folder):
        if re.match(r"(__editable__.*)?any[_-]gpu[_-]workshop.*\.pth$", name):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(os.path.relpath(ROOT, folder) + "\n")


def register_intel_opencl() -> None:
    """Tell the OpenCL loader in PyOpenCL's wheel where Intel's driver is: the wheel's own .icd names another place."""
    with open(os.path.join(site_packages(), "pyopencl", ".libs", "intel.icd"), "w", encoding="utf-8") as file:
        file.write(os.path.join(VENV, "lib", "libintelocl.so") + "\n")


def torch_arguments(family: str, locks: Sequence[str]) -> List[str]:
    """Return what tells uv to add PyTorch: the pin of pyproject.toml, and the build that suits the family.

    Elsewhere than on CUDA the lock constrains it; there PyTorch names its own CUDA libraries, of the same generation.
    """
    backend = {"cpu": "cpu", "cuda": "cu126"}.get(family)
    arguments = ["-r", "pyproject.toml", "--extra", "torch"]
    if family != "cuda":
        arguments += [word for name in locks for word in ("-c", name)]
    return arguments + (["--torch-backend", backend] if backend else [])


@contextlib.contextmanager
def old_venv_kept() -> Iterator[None]:
    """Put .venv aside while another is built in its place, and put it back if that fails."""
    put_aside()
    try:
        yield
    except BaseException:
        if os.path.isdir(OLD):
            with contextlib.suppress(OSError):  # if it cannot be put back now, it stays aside for the next call
                remove(VENV)
                os.rename(OLD, VENV)
                print("  The .venv that was here before is back.", flush=True)
        raise


def put_aside() -> None:
    """Rename .venv to .venv.old, or delete it if it is only a beginning, which nobody can use.

    Raises:
        Stop: it is no virtual environment of this folder, or something that runs keeps it.
    """
    if os.path.islink(VENV) or (os.path.isdir(VENV) and not looks_like_venv()):
        raise Stop(
            "There is something called .venv here that is no virtual environment of this folder.",
            "The set-up would have to delete it, and does not do that unasked.",
            "Move it away, then repeat the command.",
        )
    state = read_stamp().get("state")
    try:
        if state == "installing" or (state != "ready" and os.path.isdir(OLD)):
            remove(VENV)  # a .venv.old that a killed set-up left is worth more
        elif os.path.isdir(VENV):
            remove(OLD)
            os.rename(VENV, OLD)
    except OSError as error:
        raise Stop(
            "The old .venv cannot be put aside.", str(error), "Stop what runs from it (JupyterLab?), then repeat."
        ) from None


def remove(folder: str) -> None:
    """Delete a folder, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder)


def looks_like_venv() -> bool:
    """Say whether the folder .venv is empty, or was begun by this program or by venv."""
    names = os.listdir(VENV)
    return not names or "pyvenv.cfg" in names or any(name.startswith("workshop.json") for name in names)


def venv_python() -> str:
    """Return the path of the Python in .venv."""
    return os.path.join(VENV, "Scripts", "python.exe") if WINDOWS else os.path.join(VENV, "bin", "python")


def site_packages() -> str:
    """Return the folder of the packages in .venv; it may not exist."""
    if WINDOWS:
        return os.path.join(VENV, "Lib", "site-packages")
    folder = os.path.join(VENV, "lib")
    found = [name for name in os.listdir(folder) if name.startswith("python3.")] if os.path.isdir(folder) else []
    return os.path.join(folder, found[0] if found else "none", "site-packages")


def installed() -> Set[str]:
    """Return the names of the packages in .venv, without their versions."""
    folder = site_packages()
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return {name.split("-")[0].lower() for name in names if name.endswith(".dist-info")}


def fingerprint() -> List[Tuple[str, int]]:
    """Return what changes in .venv as soon as a package is added or removed."""
    folder = site_packages()
    if not os.path.isdir(folder):
        return []
    with os.scandir(folder) as entries:
        return sorted((entry.name, entry.stat().st_mtime_ns) for entry in entries)


@contextlib.contextmanager
def only_one() -> Iterator[int]:
    """Hold the right to install into this folder; the operating system gives it back if this process dies."""
    with open(os.path.join(ROOT, ".venv.lock"), "a+b") as file:
        waiting = False
        while not try_lock(file.fileno()):
            if not waiting:
                print("Another call is installing here; waiting for it.", flush=True)
            waiting = True
            time.sleep(0.2)
        yield file.fileno()


def try_lock(number: int) -> bool:
    """Lock an open file for this process, and say whether that succeeded."""
    try:
        if WINDOWS:
            import msvcrt

            os.lseek(number, 0, os.SEEK_SET)
            msvcrt.locking(number, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


class Tool:
    """Runs the tools of one set-up, shows that they are alive, and keeps what they said for the case of a failure."""

    def __init__(self, lock: int) -> None:
        self.lock, self.began = lock, time.monotonic()

    def seconds(self) -> float:
        """Return the seconds since the set-up began."""
        return time.monotonic() - self.began

    def run(self, title: str, command: Sequence[str]) -> str:
        """Run one tool to its end and return what it said.

        Raises:
            Stop: it failed; the message holds the last lines that it said.
        """
        began, said = time.monotonic(), []
        # The tool holds the lock too: if this process is killed, the next one waits until the tool has ended.
        # In a group of its own it can be stopped with all that it started.
        keep = {} if WINDOWS else {"pass_fds": (self.lock,), "start_new_session": True}
        try:
            process = subprocess.Popen(
                list(command), cwd=ROOT, env=clean_environment(), stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **keep,
            )  # fmt: skip
        except OSError as error:
            raise Stop(f"{title} failed.", str(error), failed_next("")) from None
        reader = threading.Thread(target=self.read, args=(process.stdout, said), daemon=True)
        reader.start()
        try:
            with terminate_raises():
                shown = 0.0
                while reader.is_alive():
                    reader.join(0.2)
                    shown = self.show(title, began, said, shown)
                status = process.wait()
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                process.terminate() if WINDOWS else os.killpg(process.pid, signal.SIGTERM)
            process.wait()
            raise
        self.end(title, began)
        text = "\n".join(said)
        if status:
            raise Stop(f"{title} failed.", tail(said) or f"exit status {status}", failed_next(text))
        return text

    @staticmethod
    def read(stream: Iterable[bytes], said: List[str]) -> None:
        """Collect the lines of a tool as they come."""
        for line in stream:
            said.append(line.decode("utf-8", "replace").rstrip())

    @staticmethod
    def show(title: str, began: float, said: List[str], shown: float) -> float:
        """Show how long the tool has run: in place on a terminal, every 20 s elsewhere. Returns when it last did."""
        now = time.monotonic()
        news = [line.strip() for line in said[-40:] if re.match(r"\s*(Downloading|Building|Downloaded|Prepared)", line)]
        line = f"  {title} ... {now - began:.0f} s" + (f"   {news[-1]}" if news else "")
        if sys.stdout.isatty():
            width = shutil.get_terminal_size().columns - 1
            print("\r" + line[:width].ljust(width), end="", flush=True)
        elif now - max(shown, began) > 20:
            print(line, flush=True)
            return now
        return shown

    @staticmethod
    def end(title: str, began: float) -> None:
        """Replace the moving line by a last one."""
        line = f"  {title}: {time.monotonic() - began:.0f} s"
        width = shutil.get_terminal_size().columns - 1
        print("\r" + line.ljust(width) if sys.stdout.isatty() else line, flush=True)


@contextlib.contextmanager
def terminate_raises() -> Iterator[None]:
    """Turn SIGTERM into Ctrl-C, so that a tool is not left running alone."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def tail(said: Sequence[str]) -> str:
    """Return three lines that say something, each of at most 160 characters, without Python's objects.

    They are the last ones; but uv names the address in its first `error:` and then only causes, so that one is kept.
    """
    plain = (re.sub(r"'?<[^<>]* object at 0x[0-9A-Fa-f]+>(: |'|)", "", line).strip() for line in said)
    lines = list(dict.fromkeys(line for line in plain if line))
    first = [line for line in lines[:-2] if re.match(r"(\W )?error\b", line, re.IGNORECASE)][:1]
    lines = (first or lines[-3:-2]) + lines[-2:]
    return "\n      ".join(line if len(line) <= 160 else line[:157] + "..." for line in lines)


def failed_next(said: str) -> str:
    """Return what to do after a failed step, judged by what the tool said."""
    again = "then repeat the same command; what was downloaded is kept."
    if re.search(r"no space left|disk quota|not enough space", said, re.IGNORECASE):
        return "Make room on the disk, " + again
    if re.search(r"hash|checksum", said, re.IGNORECASE) and "mismatch" in said.lower():
        return "A download differs from the lock: look for a proxy that changes files, " + again
    if re.search(
        r"no matching distribution|connect|network|resolv|timed? ?out|fetch|ssl|certificate|offline|proxy",
        said,
        re.IGNORECASE,
    ):
        return "Check the network (behind a proxy set HTTPS_PROXY), " + again
    return "Mend what it says, " + again


def clean_environment() -> Dict[str, str]:
    """Return the environment without what would lead a Python to the wrong packages, or pip and uv away from the lock.

    What a teacher may set for a room without a network stays: PIP_NO_INDEX, PIP_FIND_LINKS, UV_OFFLINE and their like.
    """
    dropped = {"PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "__PYVENV_LAUNCHER__"}
    dropped |= {"PIP_" + name for name in ("USER", "TARGET", "PREFIX", "ROOT", "PYTHON", "DRY_RUN", "NO_BINARY")}
    dropped |= {"UV_" + name for name in ("TARGET", "PREFIX", "PYTHON", "SYSTEM_PYTHON", "NO_BINARY", "EXCLUDE_NEWER")}
    environment = {name: value for name, value in os.environ.items() if name not in dropped}
    scripts = os.path.dirname(venv_python())
    environment["VIRTUAL_ENV"] = VENV
    environment["PATH"] = scripts + os.pathsep + environment.get("PATH", os.defpath)
    if WINDOWS:
        environment.setdefault("PYTHONUTF8", "1")
    return environment


def offer(family: str, asked: bool, command: str) -> None:
    """Name a GPU that was seen and not asked for; nothing is installed for it unasked."""
    seen = gpu_seen()
    if asked or family == "intel-mac" or seen is None:
        return
    name, accel = seen
    if accel == family:
        return
    size = f"would download about {FAMILIES[accel].download}" if accel in FAMILIES else "shows the commands for it"
    extra = " --with torch" if accel == "metal" else ""
    print(f"{name} was seen: `{CALL} {command} --accel {accel}{extra}` {size}.", flush=True)


def gpu_seen() -> Optional[Tuple[str, str]]:
    """Return the name and the family of a GPU that this machine seems to have, or None."""
    system = platform.system()
    if system == "Linux" and (os.path.exists("/proc/driver/nvidia/version") or shutil.which("nvidia-smi")):
        return "An NVIDIA GPU", "cuda"
    if system == "Linux" and os.path.exists("/dev/kfd"):
        return "An AMD GPU", "rocm"
    if (system, platform.machine()) == ("Darwin", "arm64"):
        return "An Apple GPU", "metal"
    return None


# ---------------------------------------------------------------------------------------------------------------------
# A Python that fits

PROBE_SECONDS = 60  # a virus scanner or a network drive can make the first start of a Python slow
PROBE = """
import json, struct, sys
try:
    import venv, ensurepip
    whole = True
except ImportError:
    whole = False
base = getattr(sys, "_base_executable", None) or sys.executable
free = "free-threading" in sys.version
fast = struct.calcsize("P") == 8 and sys.implementation.name == "cpython" and not free
print(json.dumps({"version": list(sys.version_info[:2]), "base": base, "whole": whole, "usual": fast}))
"""


def probe(python: str) -> Optional[Dict[str, Any]]:
    """Ask a Python what it is; None if it does not start.

    Raises:
        Stop: it did not answer in time, which does not mean that it is broken.
    """
    try:
        done = subprocess.run(
            [python, "-I", "-c", PROBE], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL, env=clean_environment(), timeout=PROBE_SECONDS, check=True,
        )  # fmt: skip
        return json.loads(done.stdout.decode("utf-8"))
    except subprocess.TimeoutExpired:
        raise Stop(
            f"{python} did not answer within {PROBE_SECONDS} s.",
            "The machine may be busy, or a virus scanner or a network drive slow. Nothing was changed.",
            "Repeat the command. If that does not help, restart the machine.",
        ) from None
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def unfit(answer: Dict[str, Any], family: str) -> str:
    """Return why a Python does not suit a family, or nothing if it does."""
    version = tuple(answer["version"])
    if not OLDEST <= version <= FAMILIES[family].newest:
        return "it is Python {}.{}".format(*version)
    return "" if answer["usual"] else "it is not an ordinary 64-bit Python"


def find_python(options: argparse.Namespace, family: str, tool: Tool) -> str:
    """Return the path of a Python that fits the family and can make a virtual environment.

    Raises:
        Stop: there is none, with what to install.
    """
    newest = "{}.{}".format(*FAMILIES[family].newest)
    needs = f"The {family} lessons need Python 3.11 to {newest}."
    lacking = None
    candidates = [options.python] if options.python else candidate_pythons()
    for candidate in candidates:
        try:
            answer = probe(candidate)
        except Stop:
            if options.python:
                raise
            continue  # another one may answer
        if answer and not unfit(answer, family):
            if answer["whole"]:
                return answer["base"]
            lacking = lacking or tuple(answer["version"])
        elif options.python:
            raise Stop(
                f"{candidate} does not fit.", f"{needs} " + (unfit(answer, family) if answer else "It does not start.")
            )
    if lacking:
        package = "python{}.{}-venv".format(*lacking)
        sudo = "" if hasattr(os, "geteuid") and os.geteuid() == 0 else "sudo "
        raise Stop(
            "Your Python cannot make virtual environments.",
            "Debian and Ubuntu put the modules venv and ensurepip into a package of their own.",
            f"{sudo}apt install {package}   then repeat the command.",
        )
    return fetch_python(options, needs, tool)


def candidate_pythons() -> Iterator[str]:
    """Yield Pythons that may fit, the likeliest first."""
    yield sys.executable
    for minor in (12, 13, 11):
        found = shutil.which(f"python3.{minor}")
        if found:
            yield found
        if WINDOWS and shutil.which("py"):
            asked = [shutil.which("py"), f"-3.{minor}", "-c", "import sys; print(sys.executable)"]
            done = subprocess.run(asked, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
            if done.returncode == 0:
                yield done.stdout.decode("utf-8", "replace").strip()


def fetch_python(options: argparse.Namespace, needs: str, tool: Tool) -> str:
    """Let uv fetch Python 3.12 into this folder, if the learner agrees.

    Raises:
        Stop: the learner did not agree, or it failed.
    """
    if not (options.yes or agreed(f"{needs} None was found. Fetch Python 3.12 with uv into this folder (30 MB)?")):
        raise Stop(
            f"No fitting Python was found; this one is {platform.python_version()}.",
            needs,
            f"{how_to_install()}\n      Or let uv fetch one into this folder: {CALL} lab --yes",
        )
    uv = shutil.which("uv") or own_uv(tool)
    place = ["--install-dir", os.path.join(FETCHED, "python")]
    tool.run("Fetching Python 3.12", [uv, "python", "install", *place, "--no-bin", "3.12"])
    for folder, _, files in os.walk(os.path.join(FETCHED, "python")):
        for name in files:
            path = os.path.join(folder, name)
            if name in ("python3.12", "python.exe") and probe(path):
                return path
    raise Stop("uv fetched a Python, but it does not start here.", next=how_to_install())


def own_uv(tool: Tool) -> str:
    """Install uv beside the Python that it shall fetch, with the Python that runs this, and return its path."""
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        raise Stop("uv cannot be installed with this Python.", "It has no venv.", how_to_install()) from None
    folder = os.path.join(FETCHED, "bootstrap")
    shutil.rmtree(folder, ignore_errors=True)
    tool.run("Making room for uv", [sys.executable, "-m", "venv", folder])
    scripts = os.path.join(folder, "Scripts" if WINDOWS else "bin")
    lock = os.path.join("requirements", "uv.txt")
    python = os.path.join(scripts, "python.exe" if WINDOWS else "python")
    tool.run("Installing uv", [python, "-m", "pip", "install", "--quiet", "--require-hashes", "-r", lock])
    return os.path.join(scripts, "uv")


def agreed(question: str) -> bool:
    """Ask, if there is someone to answer; silence is no."""
    if not (sys.stdin and sys.stdin.isatty()):
        return False
    try:
        return input(question + " [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def how_to_install() -> str:
    """Return how one gets a fitting Python on this system."""
    return {
        "Windows": "Install Python 3.12: winget install Python.Python.3.12   then: py -3.12 workshop.py lab",
        "Darwin": "Install Python 3.12: brew install python@3.12   (or from python.org), then repeat the command.",
    }.get(
        platform.system(),
        "Install Python 3.12: sudo apt install python3.12 python3.12-venv   (Fedora: sudo dnf install python3.12)",
    )


# ---------------------------------------------------------------------------------------------------------------------
# The command itself


def hand_over(arguments: Sequence[str], stamp: Dict[str, Any]) -> int:
    """Run `python -m helpers` in .venv, pass signals on, and return its exit status."""
    environment = clean_environment()
    if "KERAS_BACKEND" not in os.environ:
        environment["KERAS_BACKEND"] = keras_backend(stamp)
    process: List[subprocess.Popen] = []

    def pass_on(number: int, _: object) -> None:
        # A terminal's Ctrl-C reaches the command without us; a second one would cut its tidying up short.
        if process and not (number == signal.SIGINT and terminal_is_ours()):
            process[0].send_signal(signal.SIGTERM if number == getattr(signal, "SIGHUP", None) else number)

    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), pass_on)
    process.append(subprocess.Popen([venv_python(), "-m", "helpers", *arguments], cwd=ROOT, env=environment))
    status = process[0].wait()
    return status if status >= 0 else 128 - status


def terminal_is_ours() -> bool:
    """Say whether this process and what it started get Ctrl-C from a terminal."""
    if WINDOWS:
        return True
    try:
        with open("/dev/tty", "rb") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


def keras_backend(stamp: Dict[str, Any]) -> str:
    """Return Keras' default backend for what is installed."""
    backend = FAMILIES[stamp["family"]].backend
    if backend == "torch" and not stamp.get("torch"):
        print(f"Keras would use this GPU through PyTorch, which is not installed: {CALL} lab --with torch")
        return "tensorflow"
    return backend


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
