"""Set the workshop up and hand over: `python3 workshop.py lab` opens the lessons, `... test` runs every test.

This file needs Python 3.8 or newer and nothing else. It brings uv into `.uv`, lets it build `.venv` from the lock files
in requirements/, and calls `python -m helpers COMMAND` there. While nothing has changed it installs nothing.
"""

import argparse
import contextlib
import errno
import filecmp
import glob
import importlib.util
import itertools
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
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

ROOT = os.path.dirname(os.path.realpath(__file__))
VENV = os.path.join(ROOT, ".venv")
NEW, OLD = VENV + ".new", VENV + ".old"  # a new .venv is built beside the old one, and takes its place when it is whole
STAMP = "workshop.json"  # in .venv: the family and the extras that it was built for
MACHINE = f"{platform.system()}-{platform.machine()}"  # a folder may be copied from one to another
FETCHED = os.path.join(ROOT, ".uv", MACHINE)  # uv, and a Python that it fetched
UV = os.path.join(FETCHED, "bin", "uv")
UV_LOCK, UV_HERE = os.path.join(ROOT, "requirements", "uv.txt"), os.path.join(FETCHED, "uv.txt")  # wanted, installed
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
        from helpers.commands import wheels
        from helpers.errors import WorkshopError
    except ImportError as problem:
        print(
            f"The workshop is incomplete: {problem}.\nNext: Get the whole folder, not this file alone.", file=sys.stderr
        )
        sys.exit(2)
CALL = "py workshop.py" if WINDOWS else "python3 workshop.py"
EXTRAS = {
    "torch": "PyTorch",
    "openvino": "Intel's runtime for trained networks, about 60 MB",
    "tinygrad": "a framework that writes its OpenCL itself, 3 MB",
    "intel-opencl": "Intel's OpenCL for any x86-64 processor, about 300 MB",
}
TOOLS = ("test", "book")  # pytest, ruff, Sphinx: extras that nobody asks for by name
NEED_TOOLS = ("test", "store", "lint", "book")  # of those who change the course


class Family(NamedTuple):
    """One kind of accelerator, and what its lock is made for."""

    pythons: Tuple[str, ...]  # the one to choose first comes first
    download: str
    torch: Optional[str] = None  # the build of PyTorch, as uv names it


FAMILIES = {
    "cpu": Family(("3.13", "3.12", "3.11"), "0.6 GB", "cpu"),
    "cuda": Family(("3.13", "3.12", "3.11"), "4.2 GB", "cu126"),  # the sum of the wheels in requirements/cuda.txt
    "metal": Family(("3.12", "3.11"), "0.6 GB"),
    "intel-mac": Family(("3.12", "3.11"), "0.6 GB"),
}

NETWORK = "Check the network (behind a proxy set HTTPS_PROXY)"
CHANGED = "A download differs from the lock: look for a proxy that changes files"
MEND = "Mend what it says"
STEPS = (  # what to do if a tool says this
    ("no space left|disk quota|not enough space", "Make room on the disk"),
    ("hash mismatch|not match the hashes", CHANGED),
    ("access is denied|used by another process|not empty|already exists", "Stop what runs from .venv (JupyterLab?)"),
    ("no wheels|platform tag", "These packages are not made for this computer (docs/platforms.md): take another one"),
    ("unknownissuer|invalid peer certificate", "A proxy or virus scanner reads along: set UV_SYSTEM_CERTS=true"),
    ("no matching distribution|connect|network|resolve host|timed out|fetch|ssl|certificate|offline|proxy", NETWORK),
    ("", MEND),
)


def main(arguments: Sequence[str]) -> int:
    """Set up what the command needs, run it, and return its exit status."""
    if sys.version_info < (3, 8):
        print(f"The set-up needs Python 3.8 or newer; this one is {platform.python_version()}.", file=sys.stderr)
        print(f"Why:  The lessons need Python 3.11 to 3.13.\nNext: {how_to_install()}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that no tool is left running alone
    try:
        options, rest = own_options().parse_known_args(list(arguments))
        asks_help = bool(rest) and rest[-1] in ("-h", "--help")
        if not rest or rest[0] in ("help", "-h", "--help") or (asks_help and not read_stamp()):
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
        step = "Stop what runs here (JupyterLab?; where .venv is activated type: deactivate), make room on the disk,"
        step += " or copy the folder elsewhere; then repeat."
        print(WorkshopError("The set-up cannot work in this folder.", str(error), step), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nInterrupted. The same command goes on from here.", file=sys.stderr)
        return 130


def own_options(above: Optional[str] = None) -> argparse.ArgumentParser:
    """Return the parser of what this file understands itself; it may stand before or after the command.

    Args:
        above: what its help says first.
    """
    raw = argparse.RawDescriptionHelpFormatter
    usage = f"{CALL} COMMAND [...]"
    parser = argparse.ArgumentParser(CALL, usage, above, formatter_class=raw, add_help=False, allow_abbrev=False)
    parser.add_argument("--accel", choices=["cpu", "cuda", "metal", "rocm"], help="packages for this accelerator")
    extras = "add " + ", or ".join(f"{name} ({what})" for name, what in EXTRAS.items())
    parser.add_argument("--with", dest="extras", choices=list(EXTRAS), action="append", default=[], help=extras)
    return parser


def set_up(options: argparse.Namespace, command: str) -> None:
    """Bring .venv to what this call needs, if it is not there already."""
    if is_there(desired_state(options, command)):
        return
    with only_one():
        bring_back()  # a call was killed between two renames
        stood, wanted = read_stamp(), desired_state(options, command)
        if is_there(wanted):  # another call has done it while this one waited
            return
        began = time.monotonic()
        wheels.check()
        size = f"downloads about {FAMILIES[wanted['family']].download}"
        source = "asks no network: the folder wheels has the packages" if wheels.made_for() else size
        first = f"Setting up: this takes some minutes once, and {source}."
        print("Setting up." if stood else first, flush=True)
        bring_uv()
        held = [name for name in wanted["extras"] if name in stood.get("extras", [])]
        try:
            build({**wanted, "extras": held})
            build(wanted)
        except WorkshopError as problem:
            standing = read_stamp()
            if standing and is_there(standing):
                raise WorkshopError(f"{problem}\n      The lessons open without it, too: {CALL} lab") from None
            raise
        print(f"Set-up finished after {time.monotonic() - began:.0f} s.", flush=True)
    suggest_gpu(wanted["family"], bool(options.accel), command)


def read_stamp() -> Dict[str, Any]:
    """Return what .venv was built for; empty if there is none, or nothing says it. What failed is not remembered."""
    with contextlib.suppress(OSError, ValueError), open(os.path.join(VENV, STAMP), encoding="utf-8") as file:
        return json.load(file)
    return {}


def desired_state(options: argparse.Namespace, command: str) -> Dict[str, Any]:
    """Return the stamp that .venv should have: what is asked for now, or was before."""
    stamp = read_stamp()
    extras = sorted({*options.extras, *stamp.get("extras", []), *(TOOLS if command in NEED_TOOLS else ())})
    if "intel-opencl" in extras:
        check_intel_opencl()
    return {"family": family_for(options.accel or stamp.get("family", "cpu")), "extras": extras}


def is_there(wanted: Dict[str, Any]) -> bool:
    """Say whether .venv holds all that is wanted; changes nothing, needs no network and no folder to write to."""
    if not (wanted.items() <= read_stamp().items() and uv_is_there()):
        return False
    for _, arguments in installs(wanted, VENV):
        if b"Would make no changes" not in ask([*arguments, "--dry-run", "--offline", "--no-cache"]).stderr:
            return False
    return True


def ask(command: Sequence[str]) -> "subprocess.CompletedProcess[bytes]":
    """Return what a question to uv gave; refuse if it had no room for the answer, which says nothing of .venv."""
    done = subprocess.run(command, cwd=ROOT, env=clean_environment(), capture_output=True, check=False)
    pattern, step = STEPS[0]
    message = done.stderr.decode("utf-8", "replace")
    if done.returncode and re.search(pattern, message, re.IGNORECASE):
        raise WorkshopError("The disk is full.", reason(message.splitlines()), f"{step}, then repeat the command.")
    return done


def uv_is_there() -> bool:
    """Say whether .uv holds the uv of the lock; virus scanners were seen to remove it."""
    there = os.path.exists(UV + ".exe" if WINDOWS else UV) and os.path.exists(UV_HERE)
    return there and filecmp.cmp(UV_LOCK, UV_HERE, shallow=False)


def bring_uv() -> None:
    """Let pip install uv into .uv, for uv does everything else; refuse a Python that has no pip and makes none."""
    if uv_is_there():
        return
    pip = [sys.executable, "-m", "pip"]
    if not importlib.util.find_spec("pip") and wheels.pip():
        pip = [sys.executable, wheels.pip()]
    elif not importlib.util.find_spec("pip"):
        if not importlib.util.find_spec("ensurepip"):
            sudo = "" if hasattr(os, "geteuid") and os.geteuid() == 0 else "sudo "
            package = "python{}.{}-venv".format(*sys.version_info)
            raise WorkshopError(
                "Your Python cannot make virtual environments.",
                "Debian and Ubuntu put pip, venv and ensurepip into packages of their own.",
                f"{sudo}apt install {package}   then repeat the command.",
            )
        folder = os.path.join(FETCHED, "venv")
        run("Making room for pip", [sys.executable, "-m", "venv", "--clear", folder])
        pip[0] = python_in(folder)
    pip += ["install", "--quiet", "--no-input", "--disable-pip-version-check", *wheels.options()]
    lock = ["--require-hashes", "--only-binary", ":all:", "-r", UV_LOCK]
    run("Installing uv", [*pip, "--upgrade", "--target", FETCHED, *lock])
    shutil.copy(UV_LOCK, UV_HERE)


def build(wanted: Dict[str, Any]) -> None:
    """Build a .venv with what is wanted beside the one that stands, which it then replaces.

    So .venv is whole at every moment: whatever interrupts or fails leaves what stood.
    """
    if is_there(wanted):
        return
    if os.path.isdir(VENV) and os.listdir(VENV) and not os.path.exists(os.path.join(VENV, "pyvenv.cfg")):
        raise WorkshopError(
            f"{VENV} is no virtual environment.",
            "The set-up would have to delete what is in it.",
            "Move .venv away, then repeat the command.",
        )
    clear_new()
    try:
        if read_stamp().get("family") == wanted["family"] and version_of(python_in(VENV)):
            # As hard links, which cost no space; with all that somebody has installed there by hand.
            shutil.copytree(VENV, NEW, symlinks=True, copy_function=link)
            os.remove(os.path.join(NEW, STAMP))  # else it would be written in both
        else:
            python = find_python(wanted["family"])
            run("Making .venv", [UV, "venv", "--relocatable", "--prompt", "workshop", "--python", python, NEW])
            add_this_folder(NEW)
        for title, arguments in installs(wanted, NEW):
            run(title, arguments)
        with open(os.path.join(NEW, STAMP), "w", encoding="utf-8") as file:
            json.dump(wanted, file)
        shutil.rmtree(OLD, ignore_errors=True)
        if os.path.isdir(VENV):
            put_aside()
        rename(NEW, VENV)
    finally:
        bring_back()
        shutil.rmtree(NEW, ignore_errors=True)
    shutil.rmtree(OLD, ignore_errors=True)


def clear_new() -> None:
    """Delete what a killed call left; on Windows the uv that it started may still be writing there, and then fails."""
    for _ in range(150):
        shutil.rmtree(NEW, ignore_errors=True)
        if not os.path.exists(NEW):
            return
        time.sleep(0.2)


def put_aside() -> None:
    """Move .venv out of the way."""
    try:
        rename(VENV, OLD)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.rmtree(VENV)  # of a container's image: it can be deleted there, and not renamed


def rename(old: str, new: str) -> None:
    """Rename a folder; on Windows wait up to half a minute for virus scanners, which open what was just written."""
    for pause in (0.2, 0.5, 1, 2, 4, 8, 16, 0):
        try:
            return os.rename(old, new)
        except PermissionError:
            if not (WINDOWS and pause):
                raise
            time.sleep(pause)


def bring_back() -> None:
    """Let the .venv that was put aside stand again, if nothing has taken its place."""
    if os.path.isdir(OLD) and not os.path.exists(VENV):
        os.rename(OLD, VENV)


def link(source: str, target: str) -> None:
    """Make a hard link, or a copy where the disk knows no links; refuse at the first file for which neither can be."""
    try:
        os.link(source, target)
    except OSError:
        try:
            shutil.copy2(source, target)
        except OSError as error:
            step = f"{STEPS[0][1]}, then repeat the command."
            raise WorkshopError("The packages that are here could not be copied.", str(error), step) from None


def add_this_folder(venv: str) -> None:
    """Let a virtual environment's Python import the workshop from anywhere.

    An editable install would write the whole path, in UTF-8: Python reads it in the locale's encoding, and would not
    find a folder called Jörg in the locale C. A relative one also stays right when the folder is moved.
    """
    inner = "Lib" if WINDOWS else os.path.join("lib", "python3.*")
    (packages,) = glob.glob(os.path.join(glob.escape(venv), inner, "site-packages"))
    with open(os.path.join(packages, "any_gpu_workshop.pth"), "w", encoding="utf-8") as file:
        file.write(os.path.relpath(ROOT, packages) + "\n")


def installs(wanted: Dict[str, Any], venv: str) -> List[Tuple[str, List[str]]]:
    """Return the calls of uv, with their titles, that bring into `venv` what is wanted and is not there."""
    family, extras = wanted["family"], wanted["extras"]
    locks = [os.path.join("requirements", name + ".txt") for name in ("uv", family, *extras) if name != "torch"]
    # Compiled once, here: a process that compiles TensorFlow anew, as where .venv may not be written to, imports it in
    # 9 s instead of 3.5, and lessons start many processes.
    install = [UV, "pip", "install", "--compile-bytecode", "--python", python_in(venv), *wheels.options()]
    locked = [*install, "--require-hashes", *("--requirements=" + lock for lock in locks)]
    # PyTorch's builds for CPU and CUDA share a version, so no lock names it: the pin of pyproject.toml, and elsewhere
    # than on CUDA the locks as limits. There it names its own CUDA libraries, of the same generation.
    torch = [*install, "--requirements=pyproject.toml", "--extra=torch"]
    torch += ["--constraints=" + lock for lock in locks if family != "cuda"]
    torch += ["--torch-backend", torch_build(family)] if FAMILIES[family].torch else []
    calls = [(f"Installing the packages ({family})", locked)]
    return calls + [("Installing PyTorch", torch)] * ("torch" in extras)


def torch_build(family: str) -> str:
    """Return which build of PyTorch to take: CUDA 12.6's has code for compute capability 5.0 to 9.0, not for RTX 50.

    For those (10.0 and more) CUDA 12.9's: of the same generation as TensorFlow's and JAX's libraries, which CUDA 13's
    are not. PyTorch 2.13 has no build for CUDA 12.8 (https://github.com/pytorch/FBGEMM/pull/5976, 2026-07), and one for
    12.9 (https://github.com/sgl-project/DeepGEMM/pull/72, 2026-08). Not verified on hardware.
    """
    capabilities = b""
    if family == "cuda":
        query = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]  # "12.0", a line for each GPU
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            capabilities = subprocess.run(query, capture_output=True, timeout=10, check=True).stdout
    newest = max([int(major) for major in re.findall(rb"(\d+)\.\d+", capabilities)], default=0)
    return "cu129" if newest >= 10 else FAMILIES[family].torch


def check_intel_opencl() -> None:
    """Refuse where Intel's OpenCL is known not to work."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise WorkshopError("Intel's OpenCL comes by pip for Linux on x86-64 alone.", next=f"{CALL} doctor")
    if " " in ROOT:
        raise WorkshopError(
            "Intel's OpenCL does not work in a folder whose path has a space.",
            f"This one is {ROOT}: the driver then says DEVICE_NOT_AVAILABLE.",
            "Move the workshop to a folder without spaces and repeat, or: sudo apt install pocl-opencl-icd",
        )


def family_for(asked: str) -> str:
    """Return the family whose lock fits this machine; refuse if the one that was asked for has no packages for it."""
    system, machine = platform.system(), platform.machine().lower()
    if (system, machine) == ("Darwin", "x86_64") and is_translated():
        raise WorkshopError(
            "This Python is made for Intel's processors, and this Mac has one of Apple's.",
            "Rosetta translates it, and TensorFlow and JAX end at their import then.",
            "Install Python 3.12 from python.org, open a new Terminal, delete .venv, then repeat with that Python.",
        )
    if asked == "rocm":
        raise WorkshopError(
            "Nothing is installed for AMD GPUs by this command.",
            "AMD's packages come from AMD's own index, for Linux and Python 3.12, and differ from GPU to GPU.",
            "The page docs/amd-linux.md has the commands, and which GPUs they are for.",
        )
    if asked == "cuda" and system != "Linux":
        raise WorkshopError(
            "The cuda family is for Linux.",
            f"TensorFlow and JAX have no GPU packages for {system}.",
            "On Windows use WSL2 and call it there, or " + f"{CALL} lab --accel cpu",
        )
    if asked == "metal" and (system, machine) != ("Darwin", "arm64"):
        raise WorkshopError("The metal family is for Macs with Apple silicon.", next=f"{CALL} lab --accel cpu")
    return "intel-mac" if asked == "cpu" and (system, machine) == ("Darwin", "x86_64") else asked


def is_translated() -> bool:
    """Say whether Rosetta translates this process: https://developer.apple.com/documentation/apple-silicon."""
    with contextlib.suppress(OSError):
        query = ["/usr/sbin/sysctl", "-n", "sysctl.proc_translated"]
        return subprocess.run(query, capture_output=True, check=False).stdout.strip() == b"1"
    return False


def python_in(venv: str) -> str:
    """Return the path of the Python in a virtual environment."""
    return os.path.join(venv, "Scripts", "python.exe") if WINDOWS else os.path.join(venv, "bin", "python")


@contextlib.contextmanager
def only_one() -> Iterator[None]:
    """Hold the right to install into this folder; the operating system gives it back if this process dies."""
    with open(os.path.join(ROOT, ".venv.lock"), "a+b") as file:
        os.set_inheritable(file.fileno(), True)  # and not before the tool that it started has ended
        for attempt in itertools.count():
            try:
                if WINDOWS:
                    msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
                else:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except (BlockingIOError, PermissionError):
                if not attempt:
                    print("Another call is installing here; waiting for it.", flush=True)
                time.sleep(0.2)
        yield


def run(title: str, command: Sequence[str]) -> None:
    """Run one tool to its end, and show on a terminal that it is alive; fail with what it said if it failed."""
    began, output = time.monotonic(), []
    moving = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns - 1
    print(f"  {title} ...", end="" if moving else "\n", flush=True)
    process = subprocess.Popen(
        command, cwd=ROOT, env=clean_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, encoding="utf-8", errors="replace", close_fds=False,
    )  # fmt: skip
    try:
        reader = threading.Thread(target=lambda: output.extend(process.stdout), daemon=True)
        reader.start()
        while reader.is_alive():
            reader.join(0.2)
            if moving:
                line = f"  {title} ... {time.monotonic() - began:.0f} s   {output[-1].strip() if output else ''}"
                print("\r" + line[:width].ljust(width), end="", flush=True)
        status = process.wait()
    except BaseException:
        process.terminate()
        process.wait()
        raise
    line = f"  {title}: {time.monotonic() - began:.0f} s"
    print("\r" + line.ljust(width) if moving else line, flush=True)
    if status:
        step = next(step for pattern, step in STEPS if re.search(pattern, "".join(output), re.IGNORECASE))
        again = ", then repeat the same command; what was downloaded is kept."
        if wheels.made_for() and step in (NETWORK, CHANGED, MEND):
            step, again = wheels.MEND, ""
        raise WorkshopError(f"{title} failed.", reason(output) or f"exit status {status}", step + again)


def reason(output: Sequence[str]) -> str:
    """Return up to three lines of what a tool said, the middle of long ones left out: its errors and their causes."""
    lines = list(dict.fromkeys(line.strip() for line in output if line.strip()))
    # What ends with a colon only says that something follows, such as "ERROR: Exception:" above pip's traceback.
    errors = [line for line in lines if re.match(r"\W*(\w*error|cause)\b.*[^:]$", line, re.IGNORECASE)] or lines[-3:]
    shown = errors[:2] + errors[2:][-1:]
    return "\n      ".join(line if len(line) <= 160 else line[:78] + " ... " + line[-77:] for line in shown)


def clean_environment() -> Dict[str, str]:
    """Return the environment without what would lead a Python to the wrong packages, or pip and uv away from the lock.

    What a teacher may set for a room without a network stays: PIP_NO_INDEX, PIP_FIND_LINKS, UV_OFFLINE and their like.
    """
    dropped = {"PYTHONHOME", "PYTHONIOENCODING", "PYTHONPATH", "PYTHONSTARTUP", "__PYVENV_LAUNCHER__"}
    dropped |= {"PIP_" + name for name in ("TARGET", "PREFIX", "ROOT", "PYTHON", "DRY_RUN", "NO_BINARY")}
    dropped |= {"UV_" + name for name in ("TARGET", "PREFIX", "PYTHON", "SYSTEM_PYTHON", "NO_BINARY", "EXCLUDE_NEWER")}
    environment = {name: value for name, value in os.environ.items() if name not in dropped}
    environment.update(PIP_USER="0", PIP_REQUIRE_VIRTUALENV="0")  # pip's own settings may say otherwise
    environment["UV_PYTHON_DOWNLOADS"] = "manual"  # uv fetches none by itself; find_python() does
    environment.setdefault("UV_PYTHON_INSTALL_DIR", os.path.join(FETCHED, "python"))
    environment["VIRTUAL_ENV"] = VENV
    environment["PATH"] = os.path.dirname(python_in(VENV)) + os.pathsep + environment.get("PATH", os.defpath)
    if WINDOWS:
        environment.setdefault("PYTHONUTF8", "1")
    if platform.system() in ("Windows", "Darwin"):  # where virus scanners and companies put certificates of their own
        environment.setdefault("UV_SYSTEM_CERTS", "true")
    return environment


def suggest_gpu(family: str, asked: bool, command: str) -> None:
    """Name a GPU that this machine seems to have and that was not asked for; nothing is installed for it unasked."""
    system = platform.system()
    if system == "Linux" and (os.path.exists("/proc/driver/nvidia/version") or shutil.which("nvidia-smi")):
        name, accel, more = "An NVIDIA GPU", "cuda", f" would download about {FAMILIES['cuda'].download}"
    elif system == "Linux" and os.path.exists("/dev/kfd"):
        name, accel, more = "An AMD GPU", "rocm", " says where the commands for it are"
    elif (system, platform.machine()) == ("Darwin", "arm64"):
        name, accel, more = "An Apple GPU", "metal --with torch", f" would download about {FAMILIES['metal'].download}"
    else:
        return
    if not asked and accel.split()[0] != family and not wheels.made_for():  # a stick has nothing for GPUs
        print(f"{name} was seen: `{CALL} {command} --accel {accel}`{more}.", flush=True)


def find_python(family: str) -> str:
    """Return a Python that fits the family, a path or a version for uv; fetch one if there is none."""
    held = wheels.made_for().get("pythons")
    fitting = held or FAMILIES[family].pythons
    this_one = [sys.executable] if sys.maxsize > 2**32 else []  # there are no packages for 32 bits
    for request in [*this_one, *("cpython" + version for version in fitting)]:
        if version_of(request) in fitting:
            return request
    found = f"No fitting Python was found; this one is {platform.python_version()}."
    what = "The packages in the folder wheels" if held else f"The {family} lessons"
    needs = f"{what} need Python {' or '.join(fitting)}."
    if held:
        installer = "Install it from your teacher's installer (INSTALL.txt on the stick), then repeat the command."
        raise WorkshopError(found, needs, installer)
    print(f"{found} {needs}")
    install = [UV, "python", "install", "--no-bin", "--no-registry", "3.12"]
    try:
        run("Fetching Python 3.12 into this folder (30 MB)", install)
    except WorkshopError as error:
        raise WorkshopError(f"{found} Fetching one failed.", f"{needs}\n      {error.why}", how_to_install()) from None
    return "3.12"


def version_of(request: str) -> str:
    """Return the version, such as 3.12, of the Python that uv finds for a path or a name; empty if there is none."""
    find = [UV, "python", "find", "--system", "--no-project", "--show-version", "--no-cache", request]
    return ".".join(ask(find).stdout.decode().split(".")[:2])


def how_to_install() -> str:
    """Return how one gets a fitting Python on this system."""
    linux = "sudo apt install python3.12 python3.12-venv   (Fedora: sudo dnf install python3.12)"
    return "Install Python 3.12: " + {
        "Windows": "winget install Python.Python.3.12   then: py -3.12 workshop.py lab",
        "Darwin": "brew install python@3.12   (or from python.org), then repeat the command.",
    }.get(platform.system(), linux)


def hand_over(arguments: Sequence[str]) -> int:
    """Run `python -m helpers` in .venv: in place of this process, or on Windows below it."""
    command, environment = [python_in(VENV), "-m", "helpers", *arguments], clean_environment()
    os.chdir(ROOT)
    sys.stdout.flush()
    if not WINDOWS:
        os.execve(command[0], command, environment)
    signal.signal(signal.SIGINT, lambda *_: None)  # the terminal sends Ctrl-C to the command too
    return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
