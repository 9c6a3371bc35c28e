"""The tools that install: pip, which brings uv into `.uv`, and uv, which does everything else."""

from __future__ import annotations

import filecmp
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from helpers import ROOT
from helpers.errors import WorkshopError

WINDOWS = os.name == "nt"
VENV = ROOT / ".venv"
FETCHED = ROOT / ".uv" / f"{platform.system()}-{platform.machine()}"  # a folder may be copied from one to another
UV = FETCHED / "bin" / ("uv.exe" if WINDOWS else "uv")
UV_WANTED, UV_INSTALLED = ROOT / "requirements" / "uv.txt", FETCHED / "uv.txt"
CERTIFICATES = "A proxy or virus scanner intercepts the connection"  # `advise_certificates` has the rest
STEPS = (  # what to do if a tool says this
    ("no space left|disk quota|not enough space", "Free some disk space"),
    (
        r"os error (3|206)\b|path too long|file ?name (is )?too long",
        r"Move the workshop to a short path, such as C:\gpu",
    ),
    ("hash mismatch|not match the hashes", "A download differs from the lock; look for a proxy that changes files"),
    ("access is denied|used by another process|not empty|already exists", "Stop programs in .venv, such as JupyterLab"),
    ("no wheels|platform tag", "There are no such packages for this computer (docs/platforms.md); use another one"),
    ("unknownissuer|invalid peer certificate|certificate_verify_failed", CERTIFICATES),
    (
        "no matching distribution|connect|network|resolve host|timed out|fetch|ssl|certificate|offline|proxy",
        "Check the network (behind a proxy, set HTTPS_PROXY)",
    ),
    ("", "Fix the problem that it reports"),
)


def python_in(venv: Path) -> Path:
    """Return the path of the Python in a virtual environment."""
    return venv / ("Scripts/python.exe" if WINDOWS else "bin/python")


def is_uv_there() -> bool:
    """Say whether .uv holds the uv of the lock; virus scanners were seen to remove it."""
    return UV.exists() and UV_INSTALLED.exists() and filecmp.cmp(UV_WANTED, UV_INSTALLED, shallow=False)


def bring_uv() -> None:
    """Let pip install uv into .uv; refuse a Python that has no pip and cannot make one."""
    if is_uv_there():
        return
    python = Path(sys.executable)
    if not importlib.util.find_spec("pip"):
        if not importlib.util.find_spec("ensurepip"):
            sudo = "" if hasattr(os, "geteuid") and os.geteuid() == 0 else "sudo "
            package = "python{}.{}-venv".format(*sys.version_info)
            raise WorkshopError(
                "Your Python cannot make virtual environments.",
                "Debian and Ubuntu put pip, venv and ensurepip into separate packages.",
                f"{sudo}apt install {package}   then repeat the command.",
            )
        run("Preparing pip", [python, "-m", "venv", "--clear", FETCHED / "venv"])
        python = python_in(FETCHED / "venv")
    pip = [python, "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check", "--upgrade"]
    lock = ["--require-hashes", "--only-binary", ":all:", "-r", UV_WANTED]
    run("Installing uv", [*pip, "--target", FETCHED, *lock])
    shutil.copy(UV_WANTED, UV_INSTALLED)


def ask(command: Iterable[str | Path]) -> subprocess.CompletedProcess[str]:
    """Return what uv answered, without a line on the terminal; refuse if it had no room on the disk for an answer."""
    done = subprocess.run(
        [str(part) for part in command], cwd=ROOT, env=clean_environment(), capture_output=True, check=False,
        encoding="utf-8", errors="replace",
    )  # fmt: skip
    pattern, step = STEPS[0]
    if done.returncode and re.search(pattern, done.stderr, re.IGNORECASE):
        raise WorkshopError("The disk is full.", shorten(done.stderr.splitlines()), f"{step}, then repeat the command.")
    return done


def run(title: str, command: Iterable[str | Path]) -> None:
    """Run a tool to its end, and show on a terminal that it is alive; fail with what it said if it failed."""
    began, moving, width = time.monotonic(), sys.stdout.isatty(), shutil.get_terminal_size().columns - 1
    output: list[str] = []
    print(f"  {title} ...", end="" if moving else "\n", flush=True)
    process = subprocess.Popen(
        [str(part) for part in command], cwd=ROOT, env=clean_environment(), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", errors="replace", close_fds=False,
    )  # fmt: skip
    try:
        reader = threading.Thread(target=lambda: output.extend(process.stdout or ()), daemon=True)
        reader.start()
        while reader.is_alive():
            reader.join(0.2)
            if moving:
                line = f"  {title} ... {time.monotonic() - began:.0f} s   {name_step(output)}"
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
        if step == CERTIFICATES:
            step += advise_certificates("".join(output), clean_environment())
        step += ", then repeat the same command. Finished downloads are kept."
        raise WorkshopError(f"{title} failed.", shorten(output) or f"exit status {status}", step)


def name_step(output: Sequence[str]) -> str:
    """Return what a tool is doing: its latest line, or what uv does silently after it has installed the packages."""
    latest = output[-1].strip() if output else ""
    return "compiling the packages to bytecode, about a minute" if latest.startswith("Installed ") else latest


def advise_certificates(said: str, environment: Mapping[str, str]) -> str:
    """Return how a tool gets to trust the certificate of a proxy or scanner: a way that is not in use already.

    uv looks into the system's store if UV_SYSTEM_CERTS is set, and into the file of SSL_CERT_FILE:
    https://github.com/astral-sh/uv/issues/8070 (2024-10), /17355 (2026-01). pip has a variable of its own.

    Args:
        said: by the tool that failed: pip or uv.
        environment: in which it ran.
    """
    is_pip = "certificate_verify_failed" in said.lower()  # OpenSSL's words, which uv does not use
    name = "PIP_CERT" if is_pip else "SSL_CERT_FILE"
    file = environment.get(name)
    if file and not Path(file).is_file():
        return f": {name} names {file}, and there is no such file. Set it to the full path of the certificate"
    if file:
        return (
            f", and the file that {name} names does not hold the certificate that it uses. Ask who runs the network "
            "for the root certificate as a .pem file, or use another network"
        )
    if is_pip or environment.get("UV_SYSTEM_CERTS", "").lower() in ("1", "true", "yes", "on"):
        return (
            f". Ask who runs the network for its root certificate, a .pem file, and set {name} to that file's full "
            "path; or use another network"
        )
    return ": set UV_SYSTEM_CERTS=true"


def shorten(output: Sequence[str]) -> str:
    """Return up to three lines of what a tool said, the middle of long ones left out: its errors and their causes."""
    lines = list(dict.fromkeys(line.strip() for line in output if line.strip()))
    # What ends with a colon only says that something follows, such as "ERROR: Exception:" above pip's traceback.
    errors = [line for line in lines if re.match(r"\W*(\w*error|cause)\b.*[^:]$", line, re.IGNORECASE)] or lines[-3:]
    shown = errors[:2] + errors[2:][-1:]
    return "\n      ".join(line if len(line) <= 160 else line[:78] + " ... " + line[-77:] for line in shown)


def clean_environment() -> dict[str, str]:
    """Return the environment without what would lead a Python to the wrong packages, or pip and uv away from the lock.

    What chooses an index or a cache stays: PIP_INDEX_URL, UV_DEFAULT_INDEX, UV_CACHE_DIR, UV_OFFLINE and their like.
    """
    dropped = {"PYTHONHOME", "PYTHONIOENCODING", "PYTHONPATH", "PYTHONSTARTUP", "__PYVENV_LAUNCHER__"}
    dropped |= {"PIP_" + name for name in ("TARGET", "PREFIX", "ROOT", "PYTHON", "DRY_RUN", "NO_BINARY")}
    dropped |= {"UV_" + name for name in ("TARGET", "PREFIX", "PYTHON", "SYSTEM_PYTHON", "NO_BINARY", "EXCLUDE_NEWER")}
    environment = {name: value for name, value in os.environ.items() if name not in dropped}
    environment.update(PIP_USER="0", PIP_REQUIRE_VIRTUALENV="0")  # pip's own settings may say otherwise
    environment["UV_PYTHON_DOWNLOADS"] = "manual"  # uv fetches none by itself; environment.find_python() does
    environment.setdefault("UV_PYTHON_INSTALL_DIR", str(FETCHED / "python"))
    environment["VIRTUAL_ENV"] = str(VENV)
    environment["PATH"] = f"{python_in(VENV).parent}{os.pathsep}{environment.get('PATH', os.defpath)}"
    if WINDOWS:
        environment.setdefault("PYTHONUTF8", "1")
    if platform.system() in ("Windows", "Darwin"):  # where virus scanners and companies put certificates of their own
        environment.setdefault("UV_SYSTEM_CERTS", "true")
    return environment
