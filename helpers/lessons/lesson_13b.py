"""Serve lesson 13b, Break an installation: environments that can be lost, and the checks of its exercises."""

from __future__ import annotations

import os
import random
import re
import shutil
import sys
import tempfile
import venv
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from helpers import ROOT
from helpers.devices.host import package_owners
from helpers.judge import checks
from helpers.judge.checks import NotDone, NotYet
from helpers.running import processes
from helpers.setup.tools import python_in


@dataclass(repr=False)
class Scratch:
    """A real environment, which `with` makes and removes; pip finds an imitation of tensorflow and tensorflow-cpu."""

    unpacked: Sequence[str] = ()  # packages that are installed, one over the other
    deleted: str = ""  # a pattern of the files that then disappear from them
    hidden_by: str = ""  # a file beside the programs, which hides a package
    devices: str | None = None  # the programs' CUDA_VISIBLE_DEVICES; None for no such variable
    is_for_cpus: bool = False  # whether tensorflow, too, is built without GPUs, as on macOS
    has_gpu: bool = True  # whether a package that is built for GPUs finds one, unless a variable hides it
    log: str = ""  # what TensorFlow logs at each import, HARMLESS or NO_DRIVER; empty for nothing

    def __enter__(self) -> Scratch:
        self._temporary = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)  # on Windows a file may still be open
        self.folder = Path(self._temporary.name).resolve()
        venv.create(self.folder / "venv", symlinks=os.name != "nt")
        self.interpreter = str(python_in(self.folder / "venv"))
        self.packages = next((self.folder / "venv").rglob("site-packages"))
        self.work = self.folder / "work"  # beside its programs
        self.work.mkdir()
        (self.work / "train.py").write_text("import tensorflow\n")  # a harmless file of yours
        for package in ("tensorflow", "tensorflow-cpu"):
            is_for_cpus = self.is_for_cpus or package.endswith("-cpu")
            wheel = _build_wheel(self.folder, package, is_for_cpus, self.has_gpu, self.log)
            if package in self.unpacked:  # as pip does, but faster
                shutil.unpack_archive(wheel, self.packages, "zip")
        if self.deleted:
            for place in list(self.packages.glob(self.deleted)):
                if place.is_dir():
                    shutil.rmtree(place)
                else:
                    place.unlink()
        if self.hidden_by:
            (self.work / self.hidden_by).write_text("steps = 10\n")
        return self

    def __exit__(self, *error: object) -> None:
        self._temporary.cleanup()

    def pip(self, command: str) -> str:
        """Let pip carry out a command in this environment, without the internet.

        Args:
            command: such as "install tensorflow"; pip does not ask before it uninstalls something.

        Returns:
            What pip prints, without where it looks for packages; of a command that fails, its error.
        """
        words = re.sub(r"^[!%]?\s*(?:(?:python3?|py)\s+-m\s+)?pip3?\s+", "", command.strip()).split()
        settings = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.folder), "PIP_YES": "1"}
        settings |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_CONFIG_FILE": os.devnull, "PIP_NO_COLOR": "1"}
        pip = [sys.executable, "-m", "pip", "--python", self.interpreter, *words]
        done = processes.run_command(pip, 60, {**os.environ, **settings}, self.work)
        lines = (done.stdout if done.status == 0 else done.stderr).strip().splitlines()
        return self._clean_output([line for line in lines if not line.startswith("Looking in links")])

    def python(self, code: str, without: str = "") -> str:
        """Run a program with this environment's Python; return what it printed and the last line of its error or log.

        Args:
            code: the program.
            without: names a variable that is removed first.
        """
        variables = {"CUDA_VISIBLE_DEVICES": self.devices, "PYTHONPATH": str(self.work)}
        if without:
            variables[without] = None
        program = [self.interpreter, "-B", "-c", code]
        done = processes.run_command(program, 30, processes.environment(variables), self.work)
        return self._clean_output([*done.stdout.splitlines(), *done.stderr.strip().splitlines()[-1:]])

    def _clean_output(self, lines: Sequence[str]) -> str:
        """Join lines, without the scratch folder's path and without Python's guess at a reason."""
        text = "\n".join(lines).strip().replace(f"{self.folder}{os.sep}", "")
        return re.sub(r" \((?:unknown location|consider .*)\)", "", text)


# What the real tensorflow 2.21.0 logged at `import tensorflow` on Linux without NVIDIA's driver (28 November 2026). It
# listed no GPU, with and without CUDA_VISIBLE_DEVICES, and is_built_with_cuda() was True.
NO_DRIVER = "Could not find cuda drivers on your machine, GPU will not be used."
HARMLESS = "This TensorFlow binary is optimized to use available CPU instructions."  # from the same log, shortened


def _build_wheel(folder: Path, package: str, is_for_cpus: bool, has_gpu: bool, log: str) -> Path:
    """Write an imitation of TensorFlow as PEP 427 has it: a package, and a folder whose RECORD lists files."""
    version = "2.21.0"
    gpus = "[] if os.environ.get('CUDA_VISIBLE_DEVICES') == '-1' else ['imitated GPU']"
    code = f"import os, sys, time\n\n__version__ = '{version}'\n"
    if log:  # as in TensorFlow, the time and the process's number stand before it (there after I0000)
        code += f"print(f'[{{time.time():.6f}} {{os.getpid():7}}] {log}', file=sys.stderr)\n"
    if is_for_cpus or not has_gpu:
        gpus = "[]"
    code += f"class config:\n    list_physical_devices = staticmethod(lambda kind='GPU': {gpus})\n"  # as in TensorFlow
    code += f"class test:\n    is_built_with_cuda = staticmethod(lambda: {not is_for_cpus})\n"
    info = f"{package.replace('-', '_')}-{version}.dist-info"
    library = "tensorflow/lib_cpu.so" if is_for_cpus else "tensorflow/lib_gpu.so"
    files = {"tensorflow/__init__.py": code, library: "", "tensorflow/ops.py": ""}
    files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
    files[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    wheel = folder / f"{info.removesuffix('.dist-info')}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return wheel


def capture_message(code: str, variables: Mapping[str, str] | None = None) -> str:
    """Run a program with this kernel's Python, and return its standard error from "Traceback" on, with short paths."""
    done = processes.run_command([sys.executable, "-c", code], 60, processes.environment(variables))
    packages = f"{Path(np.__file__).parents[1]}{os.sep}"
    return "".join(re.findall(r"^Traceback.*", done.stderr, re.M | re.S)).strip().replace(packages, "")


# ------------------------------------------------------------------------------------------------------ its exercises

PLACES = ("your own line", "a file of data", "a shared library", "the package", "a variable")


@dataclass(frozen=True)
class Reading:
    """How a message of exercise 1 is read."""

    line: int  # that reports the first failure, counted from 1; it begins with the name of an error
    place: str  # what is missing or wrong, one of PLACES
    ask: str  # the question for a learner who names another line
    answers: Mapping[str, str] = field(default_factory=dict)  # to other places: what a change there would do


READINGS = {
    "A": Reading(
        4,
        "a shared library",
        "What went wrong first, above the line that joins two tracebacks?",
        {"the package": "Another build may need another library, but which file does this line miss?"},
    ),
    "B": Reading(
        6,
        "a file of data",
        "What went wrong first, before the program tried to report it?",
        {"your own line": "Line 14 has a fault, too, but without that fault the file would still be missing."},
    ),
    "C": Reading(
        6,
        "the package",
        "Which line says what failed, and not where?",
        {"your own line": "Without `cuda` the message would go, and the computer's GPU would go unused."},
    ),
    "D": Reading(8, "your own line", "Which line says what failed? A library may add advice below it."),
}


def read_messages() -> dict[str, list[str]]:
    """Return the lines of each message of exercise 1 by its letter: of real programs, shortened, with short paths."""
    text = (ROOT / "helpers" / "lessons" / "programs" / "13b-messages.txt").read_text(encoding="utf-8")
    messages = (part.splitlines() for part in text.split("=== ")[1:])
    return {letter: lines for letter, *lines in messages}


def show_message(letter: str) -> None:
    """Print a message of exercise 1 with the numbers of its lines."""
    for number, line in enumerate(read_messages()[letter], 1):
        print(f"{number:2} {line}")


def _describe_line(letter: str, number: str) -> str:
    """Say why a line of a message, counted from 1, is not the one that exercise 1 asks for."""
    errors = [str(place) for place, line in enumerate(read_messages()[letter], 1) if re.match(r"\w+Error: ", line)]
    return "reports a later failure" if number in errors else "doesn't begin with the name of an error"


@checks.print_verdict
def check_reading(reading: object) -> Iterator[str]:
    """Judge exercise 1 of lesson 13b: for each message the line of the first failure, and what is missing or wrong."""

    def judge(letter: str, right: Reading, line: object, place: object) -> None:
        number = str(line).strip()
        if number != str(right.line):
            raise NotYet(f"{letter}: line {line!r} {_describe_line(letter, number)}. {right.ask}")
        named = " ".join(str(place).lower().split())
        if named not in PLACES:
            raise NotYet(f"{letter}: {place!r} is none of the places: {', '.join(map(repr, PLACES))}.")
        if named != right.place:
            why = right.answers.get(named, f"What would you change in {place!r}? Read the line once more.")
            raise NotYet(f"{letter}: the line is right, the place is not. {why}")

    yield checks.judge_diagnosis(reading, READINGS, ("line", "place"), "messages", judge)


@checks.print_verdict
def check_commands(commands: Sequence[str]) -> Iterator[str]:
    """Judge exercise 2 of lesson 13b: commands of pip that leave one whole TensorFlow, the one for GPUs."""
    is_list = isinstance(commands, list | tuple)
    if not is_list or not all(isinstance(command, str) and command.strip() for command in commands):
        raise NotYet(f"expected a list of commands, came {checks.short(commands)}.")
    if not commands:
        raise NotDone("the list has no command yet.")
    if [command.split() for command in commands] == [["install", "tensorflow"]]:
        raise NotDone("this is what you were given, and pip thinks that nothing is to be done.")
    with Scratch(unpacked=["tensorflow", "tensorflow-cpu"]) as env:
        output = [env.pip(command) for command in commands][-1].splitlines()[-1:]
        state = env.python(f"import tensorflow as tf; print(tf.__version__, {BUILT})")
        twice = [file for file, packages in package_owners(env.packages).items() if len(packages) > 1]
    if state != "2.21.0 True":
        raise NotYet(f"afterwards a program sees {state!r}. The last thing that pip said: {' '.join(output)!r}.")
    if twice:
        raise NotYet(f"the import works, but two packages still own {twice[0]}: the next uninstall breaks it again.")
    yield f"{len(commands)} commands, one whole TensorFlow"


STATE = "import tensorflow as tf; print(tf.__version__, tf.config.list_physical_devices('GPU'))"
BUILT = "tf.test.is_built_with_cuda()"
EXPERIMENTS: dict[str, Callable[[Scratch], str]] = {  # by what a verdict calls it
    "`print(tensorflow.__file__)`": lambda env: env.python("import tensorflow; print(tensorflow.__file__)"),
    "`pip list`": lambda env: env.pip("list"),
    "the program without CUDA_VISIBLE_DEVICES": lambda env: env.python(STATE, without="CUDA_VISIBLE_DEVICES"),
    f"`print({BUILT})`": lambda env: env.python(f"import tensorflow as tf; print({BUILT})"),
}
FILE, LIST, WITHOUT, BUILD = EXPERIMENTS
INSTALLATIONS: dict[str, tuple[str, str, Scratch]] = {  # by letter: the cause, the experiment, the environment
    "A": ("some files gone", FILE, Scratch(["tensorflow"], deleted="tensorflow/*.py")),
    "B": ("a variable", WITHOUT, Scratch(["tensorflow"], devices="-1", log=HARMLESS)),
    "C": ("not installed here", LIST, Scratch()),
    "D": ("a file of yours", FILE, Scratch(["tensorflow"], hidden_by="tensorflow.py")),
    "E": ("all files gone", LIST, Scratch(["tensorflow"], deleted="tensorflow")),
    "F": ("the build for CPUs", BUILD, Scratch(["tensorflow"], devices="-1", is_for_cpus=True, log=HARMLESS)),
    "G": ("something else", BUILD, Scratch(["tensorflow"], devices="-1", has_gpu=False, log=NO_DRIVER)),
    # No log: only the program without the variable tells these two apart.
    "H": ("a variable", WITHOUT, Scratch(["tensorflow"], devices="-1")),
    "I": ("something else", BUILD, Scratch(["tensorflow"], devices="-1", has_gpu=False)),
}


def make_installation(letter: str) -> Scratch:
    """Return the environment of exercise 3 with this letter, to be entered by `with`."""
    return replace(INSTALLATIONS[letter.strip().upper()][2])


@checks.print_verdict
def check_diagnose(learner: Callable[[Scratch], str]) -> Iterator[str]:
    """Judge exercise 3 of lesson 13b: a function that returns the cause of an installation's failure."""
    causes = dict.fromkeys(cause for cause, _, _ in INSTALLATIONS.values())
    for letter in random.sample(sorted(INSTALLATIONS), len(INSTALLATIONS)):
        cause, experiment, _ = INSTALLATIONS[letter]
        with make_installation(letter) as env:
            named = checks.answer(learner, env, who=f"for {letter} diagnose")
            if isinstance(named, str) and named == cause:
                continue
            if not isinstance(named, str) or named not in causes:
                raise NotYet(
                    f"for {letter} diagnose returned {named!r}. That is none of {', '.join(map(repr, causes))}."
                )
            if named == "a variable":
                experiment = WITHOUT
            printed = EXPERIMENTS[experiment](env)
            printed = printed.splitlines()[-1:] if experiment == LIST else printed.splitlines()
            shown = repr(" | ".join(printed)) if printed else "nothing"
            raise NotYet(
                f"for {letter} diagnose returned {named!r}. There a program prints "
                f"{' | '.join(env.python(STATE).splitlines())!r}, "
                f"and {experiment} prints {shown}."
            )
    yield f"{len(INSTALLATIONS)} installations"
