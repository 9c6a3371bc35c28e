"""Findings about packages: missing, of another version, without their files, or hidden by others of the same name."""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from collections.abc import Callable
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path

from helpers import ROOT, devices, processes
from helpers.machine.doctor.findings import CHILD_SECONDS, Finding, Seen, count, forget, listed
from helpers.machine.host import STAMP, Host, command, python_command, reinstall

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
    return Finding("Python", "stops", what, why, f"Ask the doctor there:\n    {start} workshop.py doctor")


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
        yield Finding("packages", "stops" if needed else "limits", what, why, advice)
    if other:
        what = f"{count(other, 'package')} not of the version that the lessons were tested with: {listed(other)}."
        why = f"{source} names the versions; something else was installed into the same environment."
        yield Finding("packages", "limits", what, why, reinstall(host))
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
        yield Finding("packages", "stops", what, why, reinstall(host))


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
        yield Finding("helpers", "stops", what, "Every lesson imports it.", install)
    elif found.resolve() != ROOT / "helpers" / "__init__.py":
        package = found.parent if found.name == "__init__.py" else found
        what = f"Another package named helpers is in the way: {package}"
        yield Finding("helpers", "stops", what, *_way_out(host, package.parent))
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
        yield Finding("files", "limits", what, why, "Move it elsewhere, or give it another name; then restart kernels.")
