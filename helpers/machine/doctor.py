"""Find what is wrong on this machine, why, and the next command for it.

Every probe runs in a thread of its own with a time-out; whatever touches a driver or the network runs in a process that
can be killed. A probe that breaks becomes a note in the report, never an exception.

To add a finding, write a generator that takes a `Host`, yields a `Finding` for what is wrong and a few words for what
is fine, and name it in PROBES.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from helpers import ROOT, devices, processes
from helpers.machine.host import (
    STAMP,
    Host,
    add_missing,
    cgroup_room,
    command,
    copy_elsewhere,
    opencl_compiler,
    opencl_driver,
    other_python,
    python_command,
    reinstall,
    set_variable,
    unset_variable,
)

PYTHONS = ((3, 11), (3, 13))  # the oldest and the newest that the locks are for, as in pyproject.toml
LEAST_MEMORY = 2 << 30  # bytes: a lesson's kernel stays below 1.5 GiB, and JupyterLab wants its share
LEAST_DISK = 3 << 30  # bytes: one accelerator family takes about that much
QUICK_SECONDS = 3.0  # for each quick probe; together they take well under 1 s
CHILD_SECONDS = 8.0  # for each process that a probe starts; a probe starts two at most, one after the other
WHOLE_SECONDS = 18.0  # for everything
WIDTH = 100  # characters of the report's lines; commands are never broken
SEVERITIES = ("stops", "limits", "note")
LOADER_VARIABLES = ("OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH")
CANNOT_COMPILE = "cannot compile"  # as helpers.devices puts it
NOT_INSTALLED, HANGS = "not installed", "hangs"
TRAINING_BACKENDS = ("tensorflow", "jax", "torch")
# What the lessons import, and the distribution that brings it.
MODULES = {
    "jupyterlab": "jupyterlab",
    "ipykernel": "ipykernel",
    "numpy": "numpy",
    "matplotlib": "matplotlib",
    "pyopencl": "pyopencl",
    "keras": "keras",
    "jax": "jax",
    "sklearn": "scikit-learn",
    "pooch": "pooch",
    "tabulate": "tabulate",
}
OTHER_BACKENDS = {"numpy": "it cannot train", "openvino": "it can run models, but not train them"}


@dataclass(frozen=True)
class Finding:
    """Something that is not as it should be.

    Attributes:
        name: of the probe that found it.
        severity: `stops` (the workshop cannot run at all), `limits` (some lessons cannot) or `note`.
        what: one sentence that says what is wrong.
        why: the reason, or what it means.
        next: what to type or do next on this machine; lines that start with four spaces are commands.
    """

    name: str
    severity: str
    what: str
    why: str
    next: str


class Findings(list[Finding]):
    """The findings of one examination, the worst first; `fine` has a few words for each thing that is in order."""

    fine: tuple[str, ...] = ()


@dataclass(frozen=True)
class Probe:
    """One thing to look at.

    Attributes:
        name: short, for the report.
        look: yields a Finding for what is wrong, and a few words for what is fine.
        when: `quick` (only then), `full` (only then) or `always`. Only a full one may import a framework or use the
            network.
    """

    name: str
    look: Callable[[Host], Iterator[Finding | str]]
    when: str = "always"


def examine(quick: bool = False) -> Findings:
    """Look at everything side by side and return what is wrong, the worst first.

    Args:
        quick: only what takes less than a second, without importing a framework and without the network.
    """
    host = Host.here()
    probes = [probe for probe in PROBES if probe.when in ("always", "quick" if quick else "full")]
    deadline = time.monotonic() + (QUICK_SECONDS if quick else WHOLE_SECONDS)
    runs = [(probe, *_start(probe, host)) for probe in probes]
    try:
        for probe, seen, done in runs:
            if not done.wait(max(0.0, deadline - time.monotonic())):
                seen.append(_no_answer(probe))
    finally:
        if not all(done.is_set() for _, _, done in runs):  # Ctrl-C too: leave no process behind
            processes.kill_all()
    everything = [item for _, seen, _ in runs for item in list(seen)]
    found = [item for item in everything if isinstance(item, Finding)]
    findings = Findings(sorted(found, key=lambda finding: SEVERITIES.index(finding.severity)))
    findings.fine = tuple(item for item in everything if isinstance(item, str))
    return findings


def _start(probe: Probe, host: Host) -> tuple[list[Finding | str], threading.Event]:
    """Run a probe in a thread; return the list that it fills and an event for its end. What breaks becomes a note."""
    seen: list[Finding | str] = []
    # Not Thread.is_alive: in Python 3.11 a join that Ctrl-C interrupts leaves the thread marked as ended.
    done = threading.Event()

    def work() -> None:
        try:
            for item in probe.look(host):
                seen.append(item)
        except BaseException as error:
            reason = f"{type(error).__name__}: {(str(error) or 'no reason given').splitlines()[0]}"
            what = f"The check of {probe.name} itself broke, so nothing is known about it."
            seen.append(Finding(probe.name, "note", what, reason, "The rest of this report holds; go on."))
        finally:
            done.set()

    threading.Thread(target=work, name=f"doctor-{probe.name}", daemon=True).start()
    return seen, done


def _no_answer(probe: Probe) -> Finding:
    return Finding(
        probe.name,
        "note",
        f"The check of {probe.name} did not finish in time, so nothing is known about it.",
        "Something that it asks hangs or is very slow: a driver, a disk, or a busy machine.",
        "Try again when the machine is less busy; the rest of this report holds.",
    )


def status(findings: list[Finding]) -> int:
    """Return the exit status: 0 when the workshop can run at all, if only on a CPU, 1 when a finding stops it."""
    return int(any(finding.severity == "stops" for finding in findings))


def report(findings: list[Finding]) -> str:
    """Return the findings as text for a beginner: the verdict, what is wrong, why, what to type, and what is fine."""
    counts = {severity: sum(finding.severity == severity for finding in findings) for severity in SEVERITIES}
    if counts["stops"]:
        verdict = "The workshop cannot run here yet."
    elif counts["limits"]:
        verdict = "The workshop can run here, with limits."
    else:
        verdict = "The workshop can run here."
    blocks = [verdict, *(_block(finding) for finding in findings)]
    fine = getattr(findings, "fine", ())
    if fine:
        blocks.append("\n".join(["In order:", *(f"  {words}" for words in fine)]))
    return "\n\n".join(blocks)


def _block(finding: Finding) -> str:
    title = {"stops": "STOPS THE WORKSHOP", "limits": "LIMITS WHAT RUNS", "note": "NOTE"}[finding.severity]
    what = textwrap.wrap(f"{title}: {finding.what}", WIDTH, break_long_words=False, break_on_hyphens=False)
    return "\n".join([*what, *_indented("Why:  ", finding.why), *_indented("Next: ", finding.next)])


def _indented(label: str, text: str) -> list[str]:
    """Wrap prose below its label; keep a command on a line of its own, whole, so that it can be copied."""
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("    "):
            lines.append(line)
        else:
            lines += textwrap.wrap(line, WIDTH - 8, break_long_words=False, break_on_hyphens=False)
    marks = [label, *[" " * len(label)] * len(lines)]
    return [f"  {mark}{line}" for mark, line in zip(marks, lines, strict=False)]


# --- Advice: what to do next, by system and by how the packages came -------------------------------------------------


# --- Probes ----------------------------------------------------------------------------------------------------------


def _python(host: Host) -> Iterator[Finding | str]:
    """Is this Python one that the locks are for."""
    version, (oldest, newest) = _dotted(host.python), PYTHONS
    if oldest <= host.python <= newest:
        yield f"Python {version}"
        return
    why = f"The workshop runs on Python {_dotted(oldest)} to {_dotted(newest)}; TensorFlow and Keras have no others."
    yield Finding("Python", "stops", f"This is Python {version}.", why, other_python(host))


def _packages(host: Host) -> Iterator[Finding | str]:
    """Are the packages there, and are they those of the lock."""
    from importlib import metadata

    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    lock = lock_file(host)
    ours = _requirements_of_the_project()
    lines = re.findall(r"^[A-Za-z0-9][^\\\n]*", lock.read_text(encoding="utf-8"), re.M) if lock else ours
    wanted = [requirement for requirement in map(Requirement, lines) if _applies(requirement)]
    lessons_need = {canonicalize_name(Requirement(line).name) for line in ours} or None
    missing, other, needed = [], [], False
    for requirement in wanted:
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            version = None
        if not version:
            missing.append(requirement.name)
            needed = needed or lessons_need is None or canonicalize_name(requirement.name) in lessons_need
        elif not requirement.specifier.contains(version, prereleases=True):
            other.append(f"{requirement.name} is {version}, not {str(requirement.specifier).removeprefix('==')}")
    source = f"requirements/{lock.name}" if lock else "pyproject.toml"
    if missing:
        what = f"{_count(missing, 'package')} missing: {_listed(missing)}."
        why = f"The lessons need what {source} names; an install was interrupted, or this is another environment."
        yield Finding("packages", "stops" if needed else "limits", what, why, add_missing(host))
    if other:
        what = f"{_count(other, 'package')} not of the version that the lessons were tested with: {_listed(other)}."
        why = f"{source} names the versions; something else was installed into the same environment."
        yield Finding("packages", "limits", what, why, reinstall(host))
    if not missing and not other:
        yield f"{len(wanted)} packages as in {source}"


def _files(host: Host, modules: dict[str, str] = MODULES) -> Iterator[Finding | str]:
    """Without importing them: are the files there of the packages that count as installed."""
    from importlib import metadata

    gone = []
    for module, package in modules.items():
        try:
            metadata.version(package)
        except metadata.PackageNotFoundError:
            continue  # a missing package, and told as one
        if not _found(module):
            gone.append(module)
    if gone:
        what = (
            f"{_count(gone, 'package')} missing, though Python's list of packages has {_them(gone)}: {_listed(gone)}."
        )
        why = "The files were deleted, or an install or uninstall was interrupted. Nothing that imports them works."
        yield Finding("packages", "stops", what, why, reinstall(host))


def _found(module: str) -> bool:
    """Say whether a module is there, without importing it; an empty folder that was left behind does not count."""
    import importlib.util

    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None


def lock_file(host: Host) -> Path | None:
    """Return the lock that this environment was built from; None where it was built from none, as for ROCm."""
    folder = ROOT / "requirements"
    if host.route == "binder":
        return folder / "binder.txt"
    if host.route == "conda":
        from_conda = any(Path(sys.prefix, "conda-meta").glob("pyopencl-*.json"))
        return folder / ("conda-opencl.txt" if from_conda else "cpu.txt")
    if host.route == "own":
        return None
    try:
        family = json.loads(Path(sys.prefix, STAMP).read_text(encoding="utf-8"))["family"]
        lock = folder / f"{Path(family).name}.txt"
    except (OSError, ValueError, KeyError, TypeError):
        lock = folder / "cpu.txt"
    return lock if lock.is_file() else None


def _requirements_of_the_project() -> list[str]:
    """Return what pyproject.toml asks for, without the extras; empty if the project is not installed."""
    from importlib import metadata

    try:
        return [line for line in metadata.requires("any-gpu-workshop") or [] if "extra ==" not in line]
    except metadata.PackageNotFoundError:
        return []


def _applies(requirement: object) -> bool:
    return requirement.marker is None or requirement.marker.evaluate()


def _helpers(host: Host) -> Iterator[Finding | str]:
    """Does a kernel, which starts in notebooks/, find the workshop's own `helpers`."""
    notebooks = ROOT / "notebooks"
    code = (  # finds it without running it, as a kernel would: from the folder that it starts in
        f"import os; os.chdir({str(notebooks if notebooks.is_dir() else ROOT)!r})\n"
        "import importlib.util as u; spec = u.find_spec('helpers')\n"
        "print(spec and (spec.origin or list(spec.submodule_search_locations)[0]) or '')"
    )
    done = processes.run_command([sys.executable, "-c", code], CHILD_SECONDS)
    if done.status != 0:
        raise RuntimeError(_complaint(done))
    found = Path(done.stdout.rstrip("\n").split("\n")[-1])
    if found == Path():
        what = "The workshop's own package, helpers, is not installed in this environment."
        install = f"In the workshop's folder:\n    {python_command(host)} -m pip install --no-deps -e ."
        yield Finding("helpers", "stops", what, "Every lesson imports it.", install)
    elif found.resolve() != ROOT / "helpers" / "__init__.py":
        yield _in_the_way(host, found)
    else:
        yield "lessons find the workshop's own package"


def _in_the_way(host: Host, found: Path) -> Finding:
    """Say which other `helpers` is found first, and how to get it out of the way."""
    package = found.parent if found.name == "__init__.py" else found
    folder = package.parent
    named = [Path(part).resolve() for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    if folder.resolve() in named:
        why = f"The variable PYTHONPATH names the folder that it lies in, {folder}."
        next_step = _forget(host, ["PYTHONPATH"])
    elif folder.resolve() == ROOT / "notebooks":
        why = "It lies in notebooks/, where kernels look first."
        next_step = "Move it elsewhere, or give it another name."
    else:
        why = f"A package of that name is installed in {folder}."
        next_step = (
            f"Remove it:\n    {python_command(host)} -m pip uninstall helpers\nIf that does not help: {reinstall(host)}"
        )
    return Finding("helpers", "stops", f"Another package named helpers is in the way: {package}", why, next_step)


def _complaint(done: processes.Finished) -> str:
    """Return the last line of what a process complained of before it ended."""
    if done.status is None:
        return "a process that was to answer did not do so in time"
    return (done.stderr.strip().splitlines() or [f"a process ended with status {done.status}"])[-1]


def _environment(changes: dict[str, str | None] | None = None) -> dict[str, str]:
    """Return the variables for a process that imports our helpers, with some set or, where None, removed."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    changed = {**os.environ, "PYTHONPATH": path, **(changes or {})}
    return {name: value for name, value in changed.items() if value is not None}


def _shadows(host: Host, folder: Path = ROOT / "notebooks") -> Iterator[Finding | str]:
    """Does a file beside the notebooks, where kernels look first, hide a module of Python's or of a package."""
    from importlib.machinery import PathFinder

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
        what = f"{_count(found, 'file')} in {folder.name}/ in the way of a module of the same name: {_listed(found)}."
        why = "Kernels start in that folder and look there first, so lessons import this file instead of the real one."
        yield Finding("files", "limits", what, why, "Move it elsewhere, or give it another name; then restart kernels.")


def _writable(host: Host, folders: tuple[Path, ...] = (ROOT / "notebooks", ROOT)) -> Iterator[Finding | str]:
    """Can answers be saved: tried, since rights alone do not say it."""
    for folder in filter(Path.is_dir, folders):
        try:
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            what = f"No answers can be saved: {folder} cannot be written to."
            yield Finding("folder", "limits", what, f"The system says: {error.strerror}.", copy_elsewhere(host))
            return


def _profile(host: Host) -> Iterator[Finding | str]:
    """Is ANYGPU_PROFILE one of the profiles."""
    from helpers import workload
    from helpers.errors import WorkshopError

    try:
        workload.current()
    except WorkshopError as error:
        forget = _forget(host, [workload.VARIABLE])
        yield Finding("profile", "limits", error.what, f"{error.why} Lessons do not start with it.", forget)


def _opencl_choice(host: Host) -> Iterator[Finding | str]:
    """Does PYOPENCL_CTX name a device; PyOpenCL itself is asked, in a fresh process."""
    if not os.environ.get("PYOPENCL_CTX") or not devices.installed("opencl"):
        return
    code = (
        "import json\nfrom helpers import opencl\nfrom helpers.errors import WorkshopError\n"
        "try: opencl.pick_device(); wrong = None\n"
        "except WorkshopError as error: wrong = [error.what, error.why]\n"
        "print(json.dumps(wrong))"
    )
    done = processes.run_command([sys.executable, "-P", "-c", code], CHILD_SECONDS, env=_environment())
    if done.status != 0:
        raise RuntimeError(_complaint(done))
    wrong = json.loads(done.stdout.strip().splitlines()[-1])
    if wrong and "PYOPENCL_CTX" in wrong[0]:  # anything else is told of OpenCL itself
        why = f"PyOpenCL says: {wrong[1]}. Lessons 01 to 03 and 12 stop while it is set."
        yield Finding("OpenCL", "limits", wrong[0], why, _forget(host, ["PYOPENCL_CTX"]))


def _opencl_variables(host: Host) -> Iterator[Finding | str]:
    """Without asking a driver: does OCL_ICD_VENDORS send OpenCL's loader to a place that does not exist."""
    value = os.environ.get("OCL_ICD_VENDORS", "")
    # A bare library name is looked up by the system. OPENCL_VENDOR_PATH does not hide the PoCL that pip brought.
    if host.system == "Linux" and "/" in value and not Path(value).exists():
        what = f"OCL_ICD_VENDORS is set to {value}, and there is no such place."
        why = "OpenCL then finds no driver at all, not even the PoCL that came with the workshop."
        yield Finding("OpenCL", "limits", what, why, _forget(host, ["OCL_ICD_VENDORS"]))


def _opencl(host: Host) -> Iterator[Finding | str]:
    """Is there an OpenCL device, and if not, is there one that a variable hides."""
    names = [name for name in LOADER_VARIABLES if name in os.environ]
    there, problem = _ask_opencl({})
    if problem == NOT_INSTALLED:
        return  # a missing package, and told as one
    without = _ask_opencl(dict.fromkeys(names))[0] if names else []
    hidden = sorted(set(without) - set(there))
    if hidden:
        variables = " and ".join(names)
        what = f"{variables} hides {'every OpenCL device' if not there else 'OpenCL devices'}: {', '.join(hidden)}."
        values = ", ".join(f"{name} is {os.environ[name]!r}" for name in names)
        why = f"{values}: OpenCL looks for drivers there instead of where they are installed. Without it they appear."
        yield Finding("OpenCL", "note" if there else "limits", what, why, _forget(host, names))
    elif problem == HANGS:
        what = f"OpenCL did not answer within {CHILD_SECONDS:g} s."
        why = "One of the installed drivers hangs when it is asked for its devices. Lessons 01 to 03 and 12 would, too."
        advice = "Restart the machine. If it still hangs, update or remove the OpenCL driver that was installed last."
        yield Finding("OpenCL", "limits", what, why, advice)
    elif not there and CANNOT_COMPILE in problem:
        what = f"The OpenCL device here cannot be used: {problem}."
        why = "Its compiler is older than this processor. Lessons 01 to 03 and 12 need one that compiles."
        yield Finding("OpenCL", "limits", what, why, opencl_compiler(host))
    elif not there:
        what = f"There is no OpenCL device here: {problem or 'no driver has any'}."
        why = "No OpenCL driver is installed, or none that works. Lessons 01 to 03 and 12 need one; the others do not."
        advice = opencl_driver(host)
        if "rusticl" in problem:
            enable = set_variable(host, "RUSTICL_ENABLE", "radeonsi")
            advice = (
                f"Mesa's rusticl shows a GPU only when asked to (radeonsi: AMD, iris: Intel):\n    {enable}\n{advice}"
            )
        yield Finding("OpenCL", "limits", what, why, advice)
    if there and CANNOT_COMPILE in problem:
        why = "Its compiler is older than this processor. Nothing is lost: another OpenCL device works."
        yield Finding("OpenCL", "note", f"OpenCL device {problem}.", why, "Nothing to do.")
    if there:
        yield f"OpenCL: {', '.join(sorted(set(there)))}"


def _ask_opencl(changes: dict[str, str | None]) -> tuple[list[str], str]:
    """Return the OpenCL devices that a fresh process sees, and the problem if it sees none.

    Args:
        changes: variables to set, or with None to remove, in that process.
    """
    if not devices.installed("opencl"):
        return [], NOT_INSTALLED
    asked = [sys.executable, "-P", "-m", "helpers.devices", "--ask", "opencl", "--timeout", str(CHILD_SECONDS)]
    done = processes.run_command(asked, CHILD_SECONDS, env=_environment(changes))
    if done.status is None:
        return [], HANGS
    try:
        said = json.loads(done.stdout)
        return [str(devices.Device(**device)) for device in said["devices"]], said["error"] or said["message"]
    except (ValueError, KeyError, TypeError):
        return [], _complaint(done)


def _forget(host: Host, names: list[str]) -> str:
    commands = "".join(f"\n    {unset_variable(host, name)}" for name in names)
    return f"Type this in the terminal, then start the workshop from there again:{commands}"


def _dataset_file(host: Host) -> Iterator[Finding | str]:
    """Without reading it: is the file that ANYGPU_MNIST names there."""
    name = os.environ.get("ANYGPU_MNIST")
    if name and not any(place.is_file() for place in (Path(name).expanduser(), ROOT / name)):
        yield _no_dataset_named(host, f"ANYGPU_MNIST names {name}, and there is no such file.")


def _no_dataset_named(host: Host, what: str) -> Finding:
    why = "While it is set, lessons that need MNIST stop: they never take another source behind your back."
    forget = f"    {unset_variable(host, 'ANYGPU_MNIST')}"
    give = f"    {set_variable(host, 'ANYGPU_MNIST', _example_path(host))}"
    return Finding(
        "dataset", "limits", what, why, f"Name a whole mnist.npz:\n{give}\nOr let the workshop look:\n{forget}"
    )


def _example_path(host: Host) -> str:
    return r"C:\full\path\to\mnist.npz" if host.system == "Windows" else "/full/path/to/mnist.npz"


def _dataset(host: Host) -> Iterator[Finding | str]:
    """Is MNIST here, whole, or can a mirror be reached."""
    code = (
        "import json\nfrom helpers import data\nfrom helpers.errors import WorkshopError\n"
        "try: where, wrong = data.available(), ''\n"
        "except WorkshopError as error: where, wrong = '', error.what\n"
        "print(json.dumps([where, wrong, data.MIRRORS[0]]))"
    )
    done = processes.run_command([sys.executable, "-P", "-c", code], 2 * CHILD_SECONDS, env=_environment())
    if done.status != 0:
        raise RuntimeError(_complaint(done))
    *remarks, answer = done.stdout.strip().splitlines()
    where, wrong, address = json.loads(answer)
    if wrong:
        yield _no_dataset_named(host, wrong)
    elif where:
        yield f"MNIST: from {where}"
    else:
        what = "MNIST is not on this machine, and none of its mirrors can be reached."
        why = "Lessons then use the stand-in, 1,797 smaller digits, and accuracies on it are not MNIST's."
        give = set_variable(host, "ANYGPU_MNIST", _example_path(host))
        next_step = (
            "Connect to a network. Or download this file on another machine, copy it to this one, and name it:\n"
            f"    {address}\n    {give}"
        )
        yield Finding("dataset", "limits", what, " ".join([why, *remarks]), next_step)


def _memory(host: Host) -> Iterator[Finding | str]:
    """Is there enough memory for one lesson, within the container's limit if there is one."""
    import psutil

    free = min([psutil.virtual_memory().available, *cgroup_room()])
    if free >= LEAST_MEMORY:
        yield f"memory: {_gigabytes(free)} available"
        return
    what = f"Only {_gigabytes(free)} of memory is available."
    why = (
        f"A lesson's kernel takes up to 1.5 GiB, beside JupyterLab and the browser; {_gigabytes(LEAST_MEMORY)} is safe."
    )
    next_step = "Close other programs, and keep one lesson open at a time (Kernel > Shut Down All Kernels)."
    if os.environ.get("ANYGPU_PROFILE") != "preview":
        next_step += f" Lessons can also do less work:\n    {set_variable(host, 'ANYGPU_PROFILE', 'preview')}"
    yield Finding("memory", "limits", what, why, next_step)


def _disk(host: Host) -> Iterator[Finding | str]:
    """Is there room for the packages, the dataset and the outputs."""
    free = shutil.disk_usage(ROOT).free
    if free >= LEAST_DISK:
        yield f"disk: {_gigabytes(free)} free"
        return
    what = f"Only {_gigabytes(free)} is free on the disk that holds the workshop."
    why = f"Packages, MNIST and outputs want room, and a full disk breaks installs; {_gigabytes(LEAST_DISK)} is safe."
    tool = "Open Windows' Disk Clean-up (cleanmgr)" if host.system == "Windows" else "Empty the wastebasket"
    next_step = f"{tool}, and the cache of pip:\n    {python_command(host)} -m pip cache purge"
    yield Finding("disk", "limits", what, why, next_step)


def _keras_backend(host: Host) -> Iterator[Finding | str]:
    """Is the backend that Keras will take one that exists, is installed, and can train."""
    import importlib.util

    chosen, source = os.environ.get("KERAS_BACKEND", ""), "The variable KERAS_BACKEND"
    take = set_variable(host, "KERAS_BACKEND", "tensorflow")
    advice = f"Take one that is installed:\n    {take}"
    if not chosen:
        chosen, file = _keras_config()
        source = f"Keras' own settings, {file},"
        advice = f'Write {{"backend": "tensorflow"}} into that file, or overrule it:\n    {take}'
    if chosen not in (*TRAINING_BACKENDS, *OTHER_BACKENDS):
        what = f"{source} asks for the Keras backend {chosen!r}, which does not exist."
        why = f"Keras 3 can train on {', '.join(TRAINING_BACKENDS)}; every import of it fails until this is mended."
        yield Finding("Keras", "limits", what, why, advice)
    elif importlib.util.find_spec(chosen) is None:
        what = f"{source} asks for the Keras backend {chosen!r}, and that package is not installed."
        if chosen == "torch" and host.route == "venv":
            advice = f"Install it:\n    {command(host, 'lab')} --with torch\nOr: {advice}"
        yield Finding("Keras", "limits", what, "Every import of Keras fails until this is mended.", advice)
    elif chosen in OTHER_BACKENDS:
        what = f"{source} asks for the Keras backend {chosen!r}; {OTHER_BACKENDS[chosen]}."
        yield Finding("Keras", "limits", what, "Lessons 04 to 09 train.", advice)
    else:
        yield f"Keras backend: {chosen}"


def _keras_config() -> tuple[str, Path]:
    """Return the backend that keras.json names, tensorflow by default, and that file; as Keras reads it."""
    home = os.environ.get("KERAS_HOME")
    file = (Path(home) if home else Path(os.path.expanduser("~"), ".keras")) / "keras.json"  # noqa: PTH111 (never raises)
    try:
        return str(json.loads(file.read_text(encoding="utf-8")).get("backend", "tensorflow")), file
    except (OSError, ValueError, AttributeError):
        return "tensorflow", file


PROBES: tuple[Probe, ...] = (
    Probe("Python", _python),
    Probe("packages", _packages),
    Probe("package files", _files),
    Probe("helpers", _helpers),
    Probe("files in notebooks", _shadows),
    Probe("folder", _writable),
    Probe("profile", _profile),
    Probe("OpenCL", _opencl_variables, "quick"),
    Probe("OpenCL", _opencl, "full"),
    Probe("PYOPENCL_CTX", _opencl_choice, "full"),
    Probe("Keras", _keras_backend),
    Probe("dataset", _dataset_file, "quick"),
    Probe("dataset", _dataset, "full"),
    Probe("memory", _memory),
    Probe("disk", _disk),
)


# --- Words -----------------------------------------------------------------------------------------------------------


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def _gigabytes(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"


def _count(items: list[str], noun: str) -> str:
    return f"1 {noun} is" if len(items) == 1 else f"{len(items)} {noun}s are"


def _them(items: list[str]) -> str:
    return "it" if len(items) == 1 else "them"


def _listed(items: list[str], most: int = 6) -> str:
    return ", ".join(items[:most]) + (f" and {len(items) - most} more" if len(items) > most else "")
