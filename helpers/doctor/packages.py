"""Findings about packages: missing, of another version, without their files, or hidden by others of the same name."""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path

from helpers import ROOT
from helpers.compute import devices, processes
from helpers.compute.frameworks import FRAMEWORKS
from helpers.compute.host import STAMP, Host, command, python_command, reinstall
from helpers.doctor import amd, apple, windows
from helpers.doctor import host as computer
from helpers.doctor.facts import AGAIN_SECONDS, Facts
from helpers.doctor.findings import (
    CHILD_SECONDS,
    Failure,
    Finding,
    Seen,
    count,
    forget,
    listed,
    reinstall_or_ask,
)

# What the lessons import, and the distribution that brings it.
_NUMBERS = ("numpy", "matplotlib", "pyopencl", "keras", "jax", "onnx", "onnxruntime", "tf2onnx")
_SAME_NAME = ("jupyterlab", "ipykernel", "pooch", "tabulate", *_NUMBERS)
MODULES = {**{name: name for name in _SAME_NAME}, "sklearn": "scikit-learn"}


def another_python(host: Host, environment: Path = ROOT / ".venv") -> Finding | None:
    """Was the doctor started by a Python without the packages, though the workshop's own environment is beside it."""
    if host.installed_by != "own" or not (environment / STAMP).is_file() or all(map(devices.installed, MODULES)):
        return None
    what = f"This is not the workshop's Python: {sys.executable}"
    why = f"It has not all of the workshop's packages. They are in {environment.name}, which was built in this folder."
    start = "py" if host.system == "Windows" else "python3"
    advice = f"Ask the doctor there:\n    {start} workshop.py doctor"
    return Finding("Python", "stops", what, why, advice, "packages-another-python")


def versions(host: Host) -> Seen:
    """Are the packages there, and are they those of the lock."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    lock = lock_file(host)
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    lines = re.findall(r"^[A-Za-z0-9][^\\\n]*", lock.read_text(encoding="utf-8"), re.M) if lock else ours
    wanted = [one for one in map(Requirement, lines) if one.marker is None or one.marker.evaluate()]
    lessons_need = {canonicalize_name(Requirement(line).name) for line in ours}
    missing, other = [], []
    for requirement in wanted:
        version = _or_none(metadata.version, requirement.name)
        if not version:
            missing.append(requirement.name)
        elif not requirement.specifier.contains(version, prereleases=True):
            other.append(f"{requirement.name} is {version}, not {str(requirement.specifier).removeprefix('==')}")
    source = f"requirements/{lock.name}" if lock else "pyproject.toml"
    if missing:
        needed = any(canonicalize_name(name) in lessons_need for name in missing)
        what = f"{count(missing, 'package')} missing: {listed(missing)}."
        why = f"The lessons need what {source} names; an install was interrupted, or this is another environment."
        add = f"It installs what is missing:\n    {command(host, 'lab')}"
        advice = add if host.installed_by == "venv" else reinstall(host)
        yield Finding("packages", "stops" if needed else "limits", what, why, advice, "packages-missing")
    if other:
        what = f"{count(other, 'package')} not of the version that the lessons were tested with: {listed(other)}."
        why = f"{source} names the versions; something else was installed into the same environment."
        yield Finding("packages", "limits", what, why, reinstall(host), "packages-versions")
    if not missing and not other:
        yield f"{len(wanted)} packages as in {source}"


def _or_none(ask: Callable[[str], object], name: str) -> object:
    try:
        return ask(name)
    except metadata.PackageNotFoundError:
        return None


def lock_file(host: Host) -> Path | None:
    """Return the lock that this environment was built from; None where it was built from none, as for ROCm."""
    folder = ROOT / "requirements"
    if host.installed_by == "binder":
        return folder / "binder.txt"
    if host.installed_by == "conda":
        from_conda = any(Path(sys.prefix, "conda-meta").glob("pyopencl-*.json"))
        return folder / ("conda-opencl.txt" if from_conda else "cpu.txt")
    if host.installed_by == "own":
        return None
    try:
        family = json.loads(Path(sys.prefix, STAMP).read_text(encoding="utf-8"))["family"]
        lock = folder / f"{Path(family).name}.txt"
    except (OSError, ValueError, KeyError, TypeError):
        lock = folder / "cpu.txt"
    return lock if lock.is_file() else None


def files(host: Host, modules: dict[str, str] = MODULES) -> Seen:
    """Without importing them: are the files there of the packages that count as installed."""
    # One that does not count as installed is a missing package, and told as one.
    listed_here = [module for module, package in modules.items() if _or_none(metadata.version, package)]
    gone = [module for module in listed_here if not devices.installed(module)]
    if gone:
        what = f"{count(gone, 'package')} missing, though listed as installed: {listed(gone)}."
        why = "The files were deleted, or an install or uninstall was interrupted. Nothing that imports them works."
        yield Finding("packages", "stops", what, why, reinstall(host), "packages-files")


def our_helpers(host: Host) -> Seen:
    """Does a kernel, which starts in notebooks/, find the workshop's own `helpers`."""
    notebooks = ROOT / "notebooks"
    code = (  # finds it without running it, as a kernel would: from the folder that it starts in
        f"import os; os.chdir({str(notebooks if notebooks.is_dir() else ROOT)!r})\n"
        "import importlib.util as u; spec = u.find_spec('helpers')\n"
        "print(spec and (spec.origin or list(spec.submodule_search_locations)[0]) or '')"
    )
    done = processes.run_command([sys.executable, "-c", code], CHILD_SECONDS)
    if done.status != 0:
        raise RuntimeError((done.stderr.strip() or "no answer").splitlines()[-1])
    found = Path(done.stdout.rstrip("\n").split("\n")[-1])
    if found == Path():
        what = "The workshop's own package, helpers, is not installed in this environment."
        install = f"In the workshop's folder:\n    {python_command(host)} -m pip install --no-deps -e ."
        yield Finding("helpers", "stops", what, "Every lesson imports it.", install, "packages-no-helpers")
    elif found.resolve() != ROOT / "helpers" / "__init__.py":
        package = found.parent if found.name == "__init__.py" else found
        what = f"Another package named helpers is in the way: {package}"
        yield Finding("helpers", "stops", what, *_way_out(host, package.parent), "packages-other-helpers")
    else:
        yield "lessons find the workshop's own package"


def _way_out(host: Host, folder: Path) -> tuple[str, str]:
    """Why another `helpers` in that folder is found first, and how to get it out of the way."""
    named = [Path(part).resolve() for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    if folder.resolve() in named:
        return f"The variable PYTHONPATH names the folder that it lies in, {folder}.", forget(host, "PYTHONPATH")
    if folder.resolve() == ROOT / "notebooks":
        return "It lies in notebooks/, where kernels look first.", "Move it elsewhere, or give it another name."
    remove = f"Remove it:\n    {python_command(host)} -m pip uninstall helpers"
    return f"A package of that name is installed in {folder}.", f"{remove}\nIf that does not help: {reinstall(host)}"


def shadows(host: Host, folder: Path = ROOT / "notebooks") -> Seen:
    """Does a file beside the notebooks, where kernels look first, hide a module of Python's or of a package."""
    path = [part for part in sys.path if part and Path(part).resolve() not in (ROOT, folder.resolve())]
    found = []
    for file in sorted([*folder.glob("*.py"), *folder.glob("*/__init__.py")]):
        name = file.parent.name if file.name == "__init__.py" else file.stem
        if name == "helpers" or name in sys.builtin_module_names:
            continue  # the first is told by its own check, the others cannot be hidden
        spec = PathFinder.find_spec(name, path)
        if name in sys.stdlib_module_names or (spec and spec.origin):
            found.append(file.relative_to(folder).as_posix())
    if found:
        what = f"{count(found, 'file')} in {folder.name}/ in the way of a module of the same name: {listed(found)}."
        why = "Kernels start in that folder and look there first, so lessons import this file instead of the real one."
        advice = "Move it elsewhere, or give it another name; then restart kernels."
        yield Finding("files", "limits", what, why, advice, "packages-shadowed")


# ------------------------------------------------------------------------------- packages that overwrite each other

FLAVOURS = (  # packages that own the same files: of each row one alone may be installed
    ("tensorflow", "tensorflow-cpu", "tensorflow-rocm", "tensorflow-gpu", "tensorflow-macos", "tf-nightly"),
    ("nvidia-cudnn-cu12", "nvidia-cudnn-cu13"),
    ("nvidia-nccl-cu12", "nvidia-nccl-cu13"),
    ("onnxruntime", "onnxruntime-gpu", "onnxruntime-directml"),
)


def files_of(folder: str | Path | None = None, names: tuple[str, ...] = ()) -> dict[str, list[str]]:
    """Return for each installed package the files that its RECORD lists.

    Args:
        folder: where the packages lie; None for this environment.
        names: of the packages that are asked for; all of them if empty.
    """
    found = {}
    for one in metadata.distributions(path=[str(folder)]) if folder else metadata.distributions():
        name = one.metadata["Name"]
        if name and (not names or name in names) and (record := one.read_text("RECORD")):
            found[name] = [line.rsplit(",", 2)[0] for line in record.splitlines() if line.strip()]
    return found


def owners(folder: str | Path | None = None, names: tuple[str, ...] = ()) -> dict[str, list[str]]:
    """Return for each file of code the packages whose RECORD lists it; lesson 13 shows it.

    Args:
        folder: where the packages lie; None for this environment.
        names: of the packages that are asked for; all of them if empty.
    """
    found: dict[str, list[str]] = {}
    for package, files in files_of(folder, names).items():
        for file in files:
            if re.search(r"\.(py|so[.\d]*|pyd|dll)$", file):
                found.setdefault(file, []).append(package)
    return found


def _choose_one(host: Host) -> str:
    return f"Only a new environment is sure to be whole. {reinstall(host)}"


TWO_FLAVOURS = Failure(
    "packages-two-flavours", "packages", "limits",
    "{packages} are installed together, and {files} of their files are the same ones: the last one installed wrote "
    "them.",
    "They are flavours of one thing. A GPU that is gone, another version than pip says, or an attribute that is "
    "missing "
    "are the signs; removing one of them takes files of the other with it.",
    _choose_one, "tested (lesson 13 shows it); TensorFlow's and NVIDIA's wheels on PyPI (2026-11-20)",
    ("nvidia", "amd-linux", "cpu"), {"packages": "tensorflow and tensorflow-cpu", "files": "12,345"},
)  # fmt: skip
NO_IMPORT = Failure(
    "packages-import-fails", "package", "limits",
    "{framework} cannot be imported: {says}.",
    "Every lesson that computes with it stops there. The words are its own; a file that is missing or of another "
    "version "
    "is the usual cause.",
    reinstall_or_ask,
    "this course's own trials", ("nvidia", "amd-linux", "amd-windows", "apple", "cpu"),
    {"framework": "TensorFlow", "says": "ImportError: libcudnn.so.9: cannot open shared object file"},
)  # fmt: skip
SLOW_IMPORT = Failure(
    "packages-import-hangs", "package", "note",
    "{framework} did not answer within {seconds} s.",
    "On a slow or busy machine its import takes longer. If it never ends, a driver hangs.",
    lambda host: f"Close other programs and ask again; this waits for a minute:\n    {command(host, 'devices')}",
    "this course's own trials", ("cpu",), {"framework": "TensorFlow", "seconds": "30"},
)  # fmt: skip
FAILURES = (TWO_FLAVOURS, NO_IMPORT, SLOW_IMPORT)


def flavours(facts: Facts, folder: str | Path | None = None) -> Iterator[Finding]:
    """Are two packages installed that own the same files of code."""
    for row in FLAVOURS:
        here = tuple(name for name in row if facts.has(name))
        if len(here) > 1:
            shared = [file for file, names in owners(folder, here).items() if len(names) > 1]
            if shared:
                yield TWO_FLAVOURS.found(facts.host, packages=" and ".join(here), files=f"{len(shared):,}")


def imports(facts: Facts) -> Iterator[Finding]:
    """Can each framework be imported; where another finding knows the cause, that one tells it."""
    explained = {
        "tensorflow": any(apple.metal_breaks(facts)) or any(windows.runtime(facts)),
        "jax": any(apple.jax_metal(facts)),
        "torch": any(windows.runtime(facts)),
    }
    for name in ("tensorflow", "jax", "torch", "onnxruntime"):  # OpenCL and WebGPU are told by their own families
        answer = facts.answers.get(name)
        if not answer or explained.get(name) or answer.state not in ("failed", "timed out"):
            continue
        title = FRAMEWORKS[name].title
        if answer.state == "timed out":
            yield SLOW_IMPORT.found(facts.host, framework=title, seconds=f"{AGAIN_SECONDS:g}")
        elif not any(amd.libraries(facts)) and not any(computer.no_avx(facts)):
            yield NO_IMPORT.found(facts.host, framework=title, says=answer.message.rstrip("."))


JUDGES = (flavours, imports)
