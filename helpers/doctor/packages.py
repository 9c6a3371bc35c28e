"""Finds packages that are missing, of another version, without their files, or hidden by others of the same name."""

from __future__ import annotations

import json
import os
import re
import site
import sys
import tomllib
from collections.abc import Iterable
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

from helpers import ROOT
from helpers.devices.host import LESSON_FOLDERS, STAMP, Host, has_module
from helpers.doctor.findings import Finding, Results, count_items, join_some, tell
from helpers.running import processes
from helpers.setup import families

if TYPE_CHECKING:
    from packaging.requirements import Requirement

# What the lessons import; the distribution that brings it has the same name.
_NUMBERS = ("numpy", "matplotlib", "pyopencl", "keras", "jax", "onnx", "onnxruntime", "tf2onnx")
MODULES = ("jupyterlab", "ipykernel", "pooch", "tabulate", *_NUMBERS)
SECONDS = 8.0  # for another Python to say where it finds a package


def find_other_python(host: Host, environment: Path = ROOT / ".venv") -> Finding | None:
    """Find that the doctor was started by a Python without the packages, beside the workshop's own environment."""
    if host.installed_by != "own" or not (environment / STAMP).is_file() or all(map(has_module, MODULES)):
        return None
    return tell("packages-another-python", host, here=sys.executable)


def check_versions(host: Host) -> Results:
    """Find packages that are missing, or of another version than the lock's; Colab and Kaggle have their own."""
    if host.hosted:
        return
    lock = find_lock()
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    lines = re.findall(r"^[A-Za-z0-9][^\\\n]*", lock.read_text(encoding="utf-8"), re.M) if lock else []
    needed, locked = _requirements(ours), _requirements(lines)
    if _read_version("torch"):  # its build for CUDA brings CUDA libraries of its own: helpers/setup/environment.py
        locked = {name: line for name, line in locked.items() if not name.startswith("nvidia-")}
    missing, other, right = [], [], 0
    for name, requirement in (needed | locked).items():
        version = _read_version(name)
        if version and requirement.specifier.contains(version, prereleases=True):
            right += 1
        elif version:
            other.append(f"{name} is {version}, not {str(requirement.specifier).removeprefix('==')}")
        elif name in needed:  # a lock has the packages of every extra
            missing.append(name)
    source = f"requirements/{lock.name}" if lock else "pyproject.toml"
    if missing:
        what = f"{count_items(missing, 'package')} missing: {join_some(missing)}"
        yield tell("packages-missing", host, packages=what, source=source)
    if other:
        what = (
            f"{count_items(other, 'package')} not of the version that the lessons were tested with: {join_some(other)}"
        )
        yield tell("packages-versions", host, packages=what, source=source)
    if not missing and not other:
        yield f"{right} packages as in {source}"


def _requirements(lines: Iterable[str]) -> dict[str, Requirement]:
    """Return the requirements that hold on this machine, by their names."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    read = [Requirement(line) for line in lines]
    return {canonicalize_name(line.name): line for line in read if line.marker is None or line.marker.evaluate()}


def _read_version(package: str) -> str:
    """Return the version of a package, or nothing if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def find_lock() -> Path | None:
    """Return the lock from which workshop.py built this environment; None where it did not, or from none (ROCm)."""
    try:
        family = json.loads(Path(sys.prefix, STAMP).read_text(encoding="utf-8"))["family"]
        return ROOT / "requirements" / families.FAMILIES[family].lock
    except (OSError, ValueError, KeyError, TypeError):
        return None


def check_files(host: Host, modules: Iterable[str] = MODULES) -> Results:
    """Find packages that count as installed and whose files are gone; they are not imported."""
    # One that does not count as installed is a missing package, and reported as one.
    gone = [module for module in modules if _read_version(module) and not has_module(module)]
    if gone:
        what = f"{count_items(gone, 'package')} missing, though listed as installed: {join_some(gone)}"
        yield tell("packages-missing", host, words=["files"], packages=what, source="pyproject.toml")


def check_our_helpers(host: Host) -> Results:
    """Find that a kernel, which starts beside its lesson, does not import the workshop's own `helpers`."""
    folders = [ROOT / name for name in LESSON_FOLDERS if (ROOT / name).is_dir()]
    code = (  # finds it without running it, as a kernel would: from the folder that it starts in
        f"import os; os.chdir({str((folders or [ROOT])[0])!r})\n"
        "import importlib.util as u; spec = u.find_spec('helpers')\n"
        "print(spec and (spec.origin or list(spec.submodule_search_locations)[0]) or '')"
    )
    done = processes.run_command([sys.executable, "-c", code], SECONDS)
    if done.status != 0:
        raise RuntimeError((done.stderr.strip() or "no answer").splitlines()[-1])
    place = Path(done.stdout.rstrip("\n").split("\n")[-1])
    if place == Path():
        yield tell("packages-no-helpers", host)
    elif place.resolve() != ROOT / "helpers" / "__init__.py":
        package = place.parent if place.name == "__init__.py" else place
        named = [Path(part).resolve() for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
        words = ["pythonpath"] if package.parent.resolve() in named else []
        yield tell("packages-other-helpers", host, words=words, package=package, folder=package.parent)
    else:
        yield "lessons import the workshop's own helpers"


def check_shadows(host: Host, root: Path = ROOT) -> Results:
    """Find files beside the lessons, where kernels look first, that hide a module of Python's or of a package."""
    folders = [(root / name).resolve() for name in LESSON_FOLDERS]
    path = [part for part in sys.path if part and Path(part).resolve() not in (ROOT, *folders)]
    hiding = []
    for file in sorted(file for folder in folders for form in ("*.py", "*/__init__.py") for file in folder.glob(form)):
        name = file.parent.name if file.name == "__init__.py" else file.stem
        if name == "helpers" or name in sys.builtin_module_names:
            continue  # the first is reported by its own check, the others cannot be hidden
        spec = PathFinder.find_spec(name, path)
        if name in sys.stdlib_module_names or (spec and spec.origin):
            hiding.append(file.relative_to(root.resolve()).as_posix())
    if hiding:
        yield tell("packages-shadowed", host, files=count_items(hiding, "file"), names=join_some(hiding))


def check_pythonpath(host: Host) -> Results:
    """Find packages that PYTHONPATH, or the user's own folder of packages, puts before the workshop's."""
    folders = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    if hiding := _list_modules_in(folders):
        yield tell("packages-pythonpath", host, names=join_some(hiding), value=os.environ["PYTHONPATH"])
    elif host.installed_by == "conda" and site.ENABLE_USER_SITE:
        folder = site.getusersitepackages()
        if hiding := _list_modules_in([folder]):
            yield tell("packages-pythonpath", host, words=["user"], names=join_some(hiding), value=folder)


def _list_modules_in(folders: Iterable[str]) -> list[str]:
    """Return what the lessons import and one of these folders has; this environment's own folder does not count."""
    own = {Path(place).resolve() for place in site.getsitepackages()}
    others = [folder for folder in folders if Path(folder).resolve() not in own]
    specs = {name: PathFinder.find_spec(name, others) for name in (*MODULES, "tensorflow", "torch")}
    return [name for name, spec in specs.items() if spec and spec.origin]


CHECKS = (check_versions, check_files, check_our_helpers, check_pythonpath, check_shadows)
