#!/usr/bin/env python3
"""Set the workshop up and hand over: `python3 workshop.py lab` opens the lessons, `... test` runs every test.

This file needs Python 3.8 or newer and nothing else. It brings uv into `.uv`, lets it build `.venv` from the lock files
in requirements/, and calls `python -m helpers COMMAND` there. While nothing has changed it installs nothing.
"""

import argparse
import contextlib
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
UNFINISHED = os.path.join(ROOT, ".venv.unfinished")  # the next stamp, there while packages are being added to .venv
MACHINE = f"{platform.system()}-{platform.machine()}"  # a folder may be copied from one to another
FETCHED = os.path.join(ROOT, ".uv", MACHINE)  # uv, and a Python that it fetched
UV = os.path.join(FETCHED, "bin", "uv")
UV_LOCK, UV_HERE = os.path.join(ROOT, "requirements", "uv.txt"), os.path.join(FETCHED, "uv.txt")  # wanted, installed
WHEELS = "wheels"  # in ROOT: packages for a room without a network, from `workshop.py stick`
MADE_FOR = os.path.join(ROOT, WHEELS, "made-for.json")
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
NEED_TOOLS = ("test", "store", "lint", "format", "book")  # of those who change the course: pytest, ruff, Sphinx


class Family(NamedTuple):
    """One kind of accelerator, and what its lock is made for."""

    newest: Tuple[int, int]  # Python
    backend: str  # Keras' default
    download: str
    torch: Optional[str] = None  # the build of PyTorch, as uv names it


OLDEST = (3, 11)
FAMILIES = {
    "cpu": Family((3, 13), "tensorflow", "0.6 GB", "cpu"),
    "cuda": Family((3, 13), "jax", "4.2 GB", "cu126"),  # the sum of the wheels in requirements/cuda.txt
    "metal": Family((3, 12), "torch", "0.6 GB"),
    "intel-mac": Family((3, 12), "tensorflow", "0.6 GB"),
}

NETWORK = "Check the network (behind a proxy set HTTPS_PROXY)"
CHANGED = "A download differs from the lock: look for a proxy that changes files"
MEND = "Mend what it says"
FROM_WHEELS = (
    "The folder wheels lacks a package, or has a damaged one: copy that folder from the stick again, or, where a "
    "network is, delete it; then repeat the command."
)
STEPS = (  # what to do if a tool says this
    ("no space left|disk quota|not enough space", "Make room on the disk"),
    ("hash mismatch|not match the hashes", CHANGED),
    ("access is denied|used by another process", "Stop what runs from .venv (JupyterLab?)"),
    ("no matching distribution|connect|network|resolv|timed out|fetch|ssl|certificate|offline|proxy", NETWORK),
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
        if not rest or rest[0] in ("-h", "--help") or (rest[-1] in ("-h", "--help") and not read_stamp()):
            print(own_options(commands.overview()).format_help(), end="")
            return 0 if rest else 2
        commands.check(rest[0], CALL)
        return hand_over(rest, set_up(options, rest[0]))
    except WorkshopError as problem:
        print(problem, file=sys.stderr)
        return 2
    except OSError as error:
        print(
            WorkshopError(
                "The set-up cannot work in this folder.",
                str(error),
                "Stop what runs here (JupyterLab?), make room on the disk, or copy the folder elsewhere; then repeat.",
            ),
            file=sys.stderr,
        )
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


# ---------------------------------------------------------------------------------------------------------------------
# The set-up


def set_up(options: argparse.Namespace, command: str) -> Dict[str, Any]:
    """Bring .venv to what this call needs, if it is not there already, and return its stamp."""
    wanted = desired_state(options)
    if is_there(wanted, command):
        return wanted
    with only_one():
        if os.path.exists(UNFINISHED) and last_change() <= os.stat(UNFINISHED).st_mtime_ns:
            os.remove(UNFINISHED)  # it ended while it downloaded, and .venv is as it was
        wanted, stood = desired_state(options), read_stamp()
        if is_there(wanted, command):  # another call has done it while this one waited
            return wanted
        began = time.monotonic()
        size = FAMILIES[wanted["family"]].download
        check_wheels()
        source = "asks no network: the folder wheels has the packages" if made_for() else f"downloads about {size}"
        first = f"Setting up: this takes some minutes once, and {source}."
        print("Setting up." if stood else first, flush=True)
        bring_uv()
        held = [name for name in wanted["extras"] if name in stood.get("extras", [])]
        build({**wanted, "extras": held}, command)
        try:
            build(wanted, command)
        except WorkshopError as problem:
            raise WorkshopError(f"{problem}\n      The lessons open without it, too: {CALL} lab") from None
        print(f"Set-up finished after {time.monotonic() - began:.0f} s.", flush=True)
    suggest_gpu(wanted["family"], bool(options.accel), command)
    return wanted


def read_stamp() -> Dict[str, Any]:
    """Return what .venv was built for; empty if there is none, or nothing says it. What failed is not remembered."""
    with contextlib.suppress(OSError, ValueError), open(os.path.join(VENV, STAMP), encoding="utf-8") as file:
        return json.load(file)
    return {}


def desired_state(options: argparse.Namespace) -> Dict[str, Any]:
    """Return the stamp that .venv should have: what is asked for now, or was before."""
    stamp = read_stamp()
    extras = sorted({*options.extras, *stamp.get("extras", [])})
    if "intel-opencl" in extras:
        check_intel_opencl()
    return {"family": family_for(options.accel or stamp.get("family", "cpu")), "extras": extras}


def is_there(wanted: Dict[str, Any], command: str) -> bool:
    """Say whether .venv holds all that is wanted; changes nothing, needs no network and no folder to write to."""
    if os.path.exists(UNFINISHED) or not (wanted.items() <= read_stamp().items() and uv_is_there()):
        return False
    for _, arguments in installs(wanted, command, VENV):
        if b"Would make no changes" not in ask([*arguments, "--dry-run", "--offline", "--no-cache"]).stderr:
            return False
    return True


def ask(command: Sequence[str]) -> "subprocess.CompletedProcess[bytes]":
    """Return what a question to uv gave; refuse if it had no room for the answer, which says nothing of .venv."""
    done = subprocess.run(command, cwd=ROOT, env=clean_environment(), capture_output=True, check=False)
    pattern, step = STEPS[0]
    said = done.stderr.decode("utf-8", "replace")
    if done.returncode and re.search(pattern, said, re.IGNORECASE):
        raise WorkshopError("The disk is full.", reason(said.splitlines()), f"{step}, then repeat the command.")
    return done


def made_for() -> Dict[str, Any]:
    """Return what the packages in the folder wheels are for; empty where there are none, and the network serves."""
    with contextlib.suppress(OSError, ValueError), open(MADE_FOR, encoding="utf-8") as file:
        return json.load(file)
    return {}


def from_wheels() -> List[str]:
    """Return what lets pip and uv, both called in ROOT, take packages from the folder wheels alone, if it is there."""
    return ["--no-index", "--find-links", WHEELS] if made_for() else []


def check_wheels() -> None:
    """Refuse if the folder wheels is for another kind of computer."""
    held = made_for()
    if held and (held["system"], held["machine"]) != (platform.system(), platform.machine()):
        raise WorkshopError(
            "The folder wheels has packages for another computer.",
            f"They are for: {held['words']}.",
            "Copy this computer's folder from the stick, or, where a network is, delete the folder wheels; repeat.",
        )


def uv_is_there() -> bool:
    """Say whether .uv holds the uv of the lock."""
    return os.path.exists(UV_HERE) and filecmp.cmp(UV_LOCK, UV_HERE, shallow=False)


def bring_uv() -> None:
    """Let pip install uv into .uv, for uv does everything else; refuse a Python that has no pip and makes none."""
    if uv_is_there():
        return
    python = sys.executable
    pip = [python, "-m", "pip"]
    # pip's wheel can be run as it is. The oldest here runs on every Python that starts this file.
    wheels = sorted(glob.glob(os.path.join(glob.escape(ROOT), WHEELS, "pip-*.whl")))
    if not importlib.util.find_spec("pip") and made_for() and wheels:
        pip = [python, os.path.join(wheels[0], "pip")]
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
        run("Making room for pip", [python, "-m", "venv", "--clear", folder])
        pip[0] = python_in(folder)
    pip += ["install", "--quiet", "--no-input", "--disable-pip-version-check", *from_wheels()]
    lock = ["--require-hashes", "--only-binary", ":all:", "-r", UV_LOCK]
    run("Installing uv", [*pip, "--upgrade", "--target", FETCHED, *lock])
    shutil.copy(UV_LOCK, UV_HERE)


def build(wanted: Dict[str, Any], command: str) -> None:
    """Install what is wanted: add it to .venv, or build a new one that takes its place; so a failure leaves what stood.

    Only adding can leave .venv half done, if it is killed or breaks off. The file UNFINISHED is there as long as that
    takes, and the next call then builds a new one.
    """
    if is_there(wanted, command):
        return
    stamp = read_stamp()
    same = stamp.get("family") == wanted["family"]
    if same and not os.path.exists(UNFINISHED) and version_of(python_in(VENV)):
        add(wanted, command)
        return
    python = find_python(wanted["family"])
    if os.path.isdir(VENV) and os.listdir(VENV) and not os.path.exists(os.path.join(VENV, "pyvenv.cfg")):
        raise WorkshopError(
            f"{VENV} is no virtual environment.",
            "The set-up would have to delete what is in it.",
            "Move .venv away, then repeat the command.",
        )
    try:
        run("Making .venv", [UV, "venv", "--clear", "--relocatable", "--prompt", "workshop", "--python", python, NEW])
        add_this_folder(NEW)
        for title, arguments in installs(wanted, command, NEW):
            run(title, arguments)
        with open(os.path.join(NEW, STAMP), "w", encoding="utf-8") as file:
            json.dump(wanted, file)
        shutil.rmtree(OLD, ignore_errors=True)
        if os.path.isdir(VENV):
            os.rename(VENV, OLD)
        os.rename(NEW, VENV)
    except BaseException:
        if os.path.isdir(OLD) and not os.path.exists(VENV):
            os.rename(OLD, VENV)
        raise
    finally:
        shutil.rmtree(NEW, ignore_errors=True)
    shutil.rmtree(OLD, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        os.remove(UNFINISHED)


def add(wanted: Dict[str, Any], command: str) -> None:
    """Add to .venv what is wanted and not there."""
    before = last_change()
    with open(UNFINISHED, "w", encoding="utf-8") as file:
        json.dump(wanted, file)
    try:
        for title, arguments in installs(wanted, command, VENV):
            run(title, arguments)
    except WorkshopError:
        if last_change() == before:
            os.remove(UNFINISHED)
        raise
    os.replace(UNFINISHED, os.path.join(VENV, STAMP))


def add_this_folder(venv: str) -> None:
    """Let a virtual environment's Python import the workshop from anywhere.

    An editable install would write the whole path, in UTF-8: Python reads it in the locale's encoding, and would not
    find a folder called Jörg in the locale C. A relative one also stays right when the folder is moved.
    """
    with open(os.path.join(site_packages(venv), "any_gpu_workshop.pth"), "w", encoding="utf-8") as file:
        file.write(os.path.relpath(ROOT, site_packages(venv)) + "\n")


def last_change() -> int:
    """Return when a package was last added to .venv or taken away, in nanoseconds; 0 if there is none."""
    return os.stat(site_packages(VENV)).st_mtime_ns if site_packages(VENV) else 0


def installs(wanted: Dict[str, Any], command: str, venv: str) -> List[Tuple[str, List[str]]]:
    """Return the calls of uv, with their titles, that bring into `venv` what is wanted and is not there."""
    family, extras = wanted["family"], wanted["extras"]
    names = ["uv", family] + ["test", "book"] * (command in NEED_TOOLS) + [name for name in extras if name != "torch"]
    locks = [os.path.join("requirements", name + ".txt") for name in names]
    # Compiled once, here: a process that compiles TensorFlow anew, as where .venv may not be written to, imports it in
    # 9 s instead of 3.5, and lessons start many processes.
    install = [UV, "pip", "install", "--compile-bytecode", "--python", python_in(venv), *from_wheels()]
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
    told = b""
    if family == "cuda":
        ask = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]  # "12.0", a line for each GPU
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            told = subprocess.run(ask, capture_output=True, timeout=10, check=True).stdout
    newest = max([int(major) for major in re.findall(rb"(\d+)\.\d+", told)], default=0)
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


def register_intel_opencl() -> None:
    """Tell the OpenCL loader in PyOpenCL's wheel where Intel's driver is: the wheel's own .icd names another place."""
    path = os.path.join(site_packages(VENV), "pyopencl", ".libs", "intel.icd")
    driver = os.path.join(VENV, "lib", "libintelocl.so") + "\n"
    with open(path, "a+", encoding="utf-8") as file:
        file.seek(0)
        if file.read() != driver:  # new, or the folder was moved
            file.truncate(0)
            file.write(driver)


def python_in(venv: str) -> str:
    """Return the path of the Python in a virtual environment."""
    return os.path.join(venv, "Scripts", "python.exe") if WINDOWS else os.path.join(venv, "bin", "python")


def site_packages(venv: str) -> str:
    """Return the folder of the packages in a virtual environment; empty if there is none."""
    inner = "Lib" if WINDOWS else os.path.join("lib", "python3.*")
    return "".join(glob.glob(os.path.join(glob.escape(venv), inner, "site-packages"))[:1])


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
    began, said = time.monotonic(), []
    moving = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns - 1
    print(f"  {title} ...", end="" if moving else "\n", flush=True)
    process = subprocess.Popen(
        command, cwd=ROOT, env=clean_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, encoding="utf-8", errors="replace", close_fds=False,
    )  # fmt: skip
    reader = threading.Thread(target=lambda: said.extend(process.stdout), daemon=True)
    reader.start()
    try:
        while reader.is_alive():
            reader.join(0.2)
            if moving:
                line = f"  {title} ... {time.monotonic() - began:.0f} s   {said[-1].strip() if said else ''}"
                print("\r" + line[:width].ljust(width), end="", flush=True)
        status = process.wait()
    except BaseException:
        process.terminate()
        process.wait()
        raise
    line = f"  {title}: {time.monotonic() - began:.0f} s"
    print("\r" + line.ljust(width) if moving else line, flush=True)
    if status:
        step = next(step for pattern, step in STEPS if re.search(pattern, "".join(said), re.IGNORECASE))
        again = ", then repeat the same command; what was downloaded is kept."
        if made_for() and step in (NETWORK, CHANGED, MEND):
            step, again = FROM_WHEELS, ""
        raise WorkshopError(f"{title} failed.", reason(said) or f"exit status {status}", step + again)


def reason(said: Sequence[str]) -> str:
    """Return up to three lines of what a tool said, the middle of long ones left out: its errors and their causes."""
    lines = list(dict.fromkeys(line.strip() for line in said if line.strip()))
    # What ends with a colon only says that something follows, such as "ERROR: Exception:" above pip's traceback.
    errors = [line for line in lines if re.match(r"\W*(\w*error|cause)\b.*[^:]$", line, re.IGNORECASE)] or lines[-3:]
    shown = errors[:2] + errors[2:][-1:]
    return "\n      ".join(line if len(line) <= 160 else line[:78] + " ... " + line[-77:] for line in shown)


def clean_environment() -> Dict[str, str]:
    """Return the environment without what would lead a Python to the wrong packages, or pip and uv away from the lock.

    What a teacher may set for a room without a network stays: PIP_NO_INDEX, PIP_FIND_LINKS, UV_OFFLINE and their like.
    """
    dropped = {"PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "__PYVENV_LAUNCHER__"}
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
    if not asked and accel.split()[0] != family:
        print(f"{name} was seen: `{CALL} {command} --accel {accel}`{more}.", flush=True)


# ---------------------------------------------------------------------------------------------------------------------
# A Python that fits


def find_python(family: str) -> str:
    """Return a Python that fits the family: a path, or a version for uv; refuse if there is none."""
    newest, held = FAMILIES[family].newest, made_for().get("pythons", [])
    needs = f"The {family} lessons need Python 3.11 to {newest[0]}.{newest[1]}."
    if held:
        needs = f"The packages in the folder wheels need Python {' or '.join(held)}."
    this_one = sys.executable if sys.maxsize > 2**32 else None  # there are no packages for 32 bits
    ranges = [f"cpython{version}" for version in held] or [f"cpython>=3.11,<3.{newest[1] + 1}"]
    for request in filter(None, [this_one, *ranges]):
        version = version_of(request)
        fits = "{}.{}".format(*version) in held if version and held else OLDEST <= version[:2] <= newest
        if version and fits:
            return request
    found = f"No fitting Python was found; this one is {platform.python_version()}."
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


def version_of(request: str) -> Tuple[int, ...]:
    """Return the version of the Python that uv finds for a path, a name or a range of versions; empty if none."""
    find = [UV, "python", "find", "--system", "--no-project", "--show-version", "--no-cache", request]
    return tuple(map(int, re.findall(rb"\d+", ask(find).stdout)[:3]))


def how_to_install() -> str:
    """Return how one gets a fitting Python on this system."""
    linux = "sudo apt install python3.12 python3.12-venv   (Fedora: sudo dnf install python3.12)"
    return "Install Python 3.12: " + {
        "Windows": "winget install Python.Python.3.12   then: py -3.12 workshop.py lab",
        "Darwin": "brew install python@3.12   (or from python.org), then repeat the command.",
    }.get(platform.system(), linux)


# ---------------------------------------------------------------------------------------------------------------------
# The command itself


def hand_over(arguments: Sequence[str], stamp: Dict[str, Any]) -> int:
    """Run `python -m helpers` in .venv: in place of this process, or on Windows below it."""
    if "intel-opencl" in stamp["extras"]:
        register_intel_opencl()
    environment = clean_environment()
    if "KERAS_BACKEND" not in os.environ:
        environment["KERAS_BACKEND"] = keras_backend(stamp)
    command = [python_in(VENV), "-m", "helpers", *arguments]
    os.chdir(ROOT)
    sys.stdout.flush()
    if not WINDOWS:
        os.execve(command[0], command, environment)
    signal.signal(signal.SIGINT, lambda *_: None)  # the terminal sends Ctrl-C to the command too
    return subprocess.run(command, env=environment, check=False).returncode


def keras_backend(stamp: Dict[str, Any]) -> str:
    """Return Keras' default backend for what is installed."""
    backend = FAMILIES[stamp["family"]].backend
    if backend == "torch" and "torch" not in stamp["extras"]:
        print(f"Keras would use this GPU through PyTorch, which is not installed: {CALL} lab --with torch")
        return "tensorflow"
    return backend


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
