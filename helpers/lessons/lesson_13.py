"""Lesson 13, Break training on purpose, and its second sitting, Break an installation: checks, machinery."""

from __future__ import annotations

import functools
import os
import re
import shutil
import sys
import tempfile
import venv
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from helpers.devices.host import package_owners
from helpers.judge import checks
from helpers.judge.checks import NotDone, NotYet
from helpers.running import processes

# ---------------------------------------------------------------------------------- both sittings: who of many is it?


class Suspect(NamedTuple):
    """A possible cause of a failure."""

    symptom: str  # those with the same symptom are told apart by their experiments
    experiment: str  # as a learner writes it
    proves: Callable[[object, object], object]  # of (what is broken, a number): is it what the experiment prints there?


def _judge_one(suspects: Mapping[str, Suspect], letter: str, broken: object, cause: object, printed: object) -> None:
    """Judge of one broken thing, which knows its `cause`, what a learner says: the cause, and what proved it."""
    names = {name.lower(): name for name in suspects}
    name = names.get(" ".join(str(cause).partition("(")[0].lower().split()))
    if name is None:
        raise NotYet(f"{letter}: the cause {cause!r} is not in the list: {', '.join(suspects)}.")
    if suspects[name].symptom != suspects[broken.cause].symptom:
        raise NotYet(f"{letter}: {name!r} has another symptom: {suspects[name].symptom}.")
    experiment = suspects[name].experiment
    if name != broken.cause:
        raise NotYet(f"{letter}: {name!r} is not its cause. Run {experiment}, look at the table.")
    if not suspects[name].proves(broken, printed):
        raise NotYet(f"{letter}: the cause is right. Write beside it what {experiment} prints; came {printed!r}.")


# ---------------------------------------------------------------------------------------- first sitting: its exercises


@checks.print_verdict
def check_prepare(learner: Callable) -> Iterator[str]:
    """Lesson 13, exercise 1: images of shape (28, 28, n) as rows, from 0 to 1, shuffled together with their labels."""
    orders = [_order(learner, many, seed) for many, seed in ((2, 1), (1, 1), (60, 1), (300, 1), (784, 1), (784, 2))]
    for order in orders:
        _, steps = np.unique(np.diff(order) % len(order), return_counts=True)  # from each image to the next
        in_place = np.sum(np.array(order) == np.arange(len(order)))
        if len(order) >= 60 and max(steps.max(), in_place) > len(order) / 4:
            raise NotYet(
                f"of {len(order)} images most are still in their stored order, or at equal distances from one to the "
                f"next: {', '.join(map(str, order[:8]))}, ... Expected them shuffled."
            )
    if _order(learner, 784, 2) != orders[-1]:
        raise NotYet("the same generator `rng` gave two different orders; take the order from `rng` alone.")
    if orders[-2] == orders[-1]:
        raise NotYet("two generators of different seeds gave the same order; take the order from `rng`.")
    yield f"{len(orders)} times, each image once beside its own label"


def _order(learner: Callable, many: int, seed: int) -> list[int]:
    """Judge `prepare` on random images, no two alike, and return the order in which they came."""
    drawn = np.random.default_rng()
    images = drawn.integers(0, 256, (28, 28, many), np.uint8)
    images[0, 0], images[27, 27] = 0, 255
    images[0, 1], images[0, 2] = np.arange(many) % 256, np.arange(many) // 256
    # Who divides by the largest pixel, of each image or of all, and not by 255, is found out by fainter images.
    images[..., 0] //= 2
    images = images // 3 * 2 if many == 60 else images
    labels, where = drawn.integers(0, 10, many).astype(np.uint8), f"for {many} image{'s' * (many > 1)}"
    given = images.copy(), labels.copy()
    actual = checks.answer(learner, *given, np.random.default_rng(seed), who=f"{where} prepare")
    if actual is None or actual is ...:
        raise NotDone(f"prepare returned {actual}; expected the pair x, y.")
    if not isinstance(actual, list | tuple) or [hasattr(array, "__array__") for array in actual] != [True] * 2:
        raise NotYet(f"{where} expected two arrays, x and y; came {checks.short(actual)}.")
    actual = [np.asarray(array) for array in actual]  # JAX' are as good
    if np.array_equal(actual[0], images.reshape(-1, 784)[np.random.default_rng(seed).permutation(many)]):
        raise NotDone("this is what you were given, and it has the faults.")
    for name, array, shape, kinds in zip("xy", actual, ((many, 784), (many,)), ("f", "iu"), strict=True):
        if array.shape != shape or array.dtype.kind not in kinds or array.dtype == np.float64:
            kind = "float32" if kinds == "f" else "an integer dtype"
            raise NotYet(f"{where} expected {name} of shape {shape} and {kind}; came {array.shape}, {array.dtype}.")
    x, y = actual
    pixels, order = images.transpose(2, 0, 1).reshape(many, 784), []
    places = {image.tobytes(): place for place, image in enumerate(pixels)}
    for row in range(many):
        with np.errstate(invalid="ignore"):  # NaN
            place = places.get(np.rint(x[row] * 255).astype(np.uint8).tobytes())
        if place is None or not np.allclose(x[row], pixels[place] / 255, rtol=0, atol=4e-6):
            raise NotYet(
                f"{where} row {row} of x is none of the images, divided by 255 and read row by row; it goes from "
                f"{x[row].min():g} to {x[row].max():g}. Show it as a picture."
            )
        if y[row] != labels[place]:
            raise NotYet(
                f"{where} row {row} of x shows image {place}, whose label is {labels[place]}; y says {y[row]}."
            )
        order.append(place)
    if len(set(order)) < many:
        raise NotYet(f"{where} an image comes twice, and another is lost; expected each once.")
    if not (np.array_equal(given[0], images) and np.array_equal(given[1], labels)):
        raise NotYet(f"{where} it changed its arguments; work on copies.")
    return order


@checks.print_verdict
def check_broken(forgetful: Callable, loss_twice: Callable) -> Iterator[str]:
    """Lesson 13, exercise 2: a step that never forgets a gradient, and a loss with softmax twice."""

    def never_forgets(weights: float, total: float, gradient: float, rate: float) -> list[float]:
        return [weights - rate * (total + gradient), total + gradient]

    def draw(rng: np.random.Generator, many: int) -> tuple:
        weights, x, y = rng.normal(0, 1, (784, 10)), rng.uniform(0, 1, (many, 784)), rng.integers(0, 10, many)
        return weights.astype(np.float32), x.astype(np.float32), y.astype(np.uint8)

    twice = [checks.answer(forgetful, 2.0, 4.0, 1.0, 0.5, who="forgetful") for _ in range(2)]  # one may keep a list
    if all(np.array_equal(answer, (1.5, 1.0)) for answer in twice):
        raise NotDone("forgetful uses the new gradient alone, as it was handed out.")
    yield checks.judge_function(
        forgetful, never_forgets, lambda rng: [*rng.uniform(0.5, 1, (5, 4)).tolist(), (1.0, 0, 0.25, 0.5)]
    )
    yield checks.judge_function(
        loss_twice,
        lambda *given: float(_with_gradient(True)(*given)[0]),
        lambda rng: [draw(rng, n) for n in (1, 4, 10)],
    )


@dataclass(frozen=True)
class Training:
    """A training of exercise 3: the network of the lesson on JAX, and one fault that the learner does not see."""

    x: np.ndarray = field(repr=False)  # as the network gets it, (n, 784), float32
    y: np.ndarray = field(repr=False)  # its labels, (n,)
    cause: str = field(repr=False)
    rate: float = field(repr=False, default=0.1)
    steps: int = field(repr=False, default=300)

    def end(self, rate: float | None = None, images: int | None = None, edge: bool = False) -> float:
        """Return the mean of the last 100 losses, with a change or without.

        Args:
            rate: another learning rate.
            images: that many of the first images alone.
            edge: whether all but the two outermost rows and columns of each image is made 0.
        """
        x = self.x[:images].reshape(-1, 28, 28).copy()
        if edge:
            x[:, 2:-2, 2:-2] = 0
        return float(np.mean(self._train(x.reshape(-1, 784), rate or self.rate)[1][-100:]))

    def growth(self) -> float:
        """Compute the gradient of one batch twice, weights unchanged; return how many times larger the second is."""
        one_batch = np.zeros((784, 10), np.float32), self.x[:128], self.y[:128]
        first, _ = self._gradient(*one_batch, 0)
        return float(np.abs(self._gradient(*one_batch, first)[0]).max() / np.abs(first).max())

    def row_sum(self) -> float:
        """Return the sum of the ten numbers that the trained network hands to its loss for the first image."""
        scores = self.x[0] @ self._train(self.x, self.rate)[0]
        powers = np.exp(scores - scores.max())
        return float((powers / powers.sum() if self.cause == "softmax twice" else scores).sum())

    def _gradient(self, weights: np.ndarray, x: np.ndarray, y: np.ndarray, last: object) -> tuple:
        """Return (what the next step uses as gradient, the loss) of a batch; `last` is what the step before used."""
        loss, gradient = _with_gradient(self.cause == "softmax twice")(weights, x, y)
        return (gradient + last if self.cause == "gradients add up" else gradient), loss

    def _train(self, x: np.ndarray, rate: float) -> tuple[np.ndarray, list[float]]:
        rng, total, losses = np.random.default_rng(0), 0, []
        weights = rng.uniform(-0.036, 0.036, (784, 10)).astype(np.float32)
        for _ in range(self.steps):
            batch = rng.integers(0, len(x), 128)
            total, loss = self._gradient(weights, x[batch], self.y[batch], total)
            weights = weights - np.float32(rate) * total
            losses.append(float(loss))
        return np.asarray(weights), losses


@functools.cache
def _with_gradient(twice: bool) -> Callable:
    """Return the compiled function of (weights, x, y): the mean loss, with softmax twice or not, and its gradient."""
    import jax

    def loss_of(weights: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        scores = x @ weights
        log_p = jax.nn.log_softmax(jax.nn.softmax(scores) if twice else scores)
        return -log_p[np.arange(len(y)), y].mean()

    return jax.jit(jax.value_and_grad(loss_of))


def trainings(x: np.ndarray, y: np.ndarray) -> dict[str, Training]:
    """Return the six trainings of exercise 3 on right images (n, 784), float32 from 0 to 1, and labels, by letter."""
    leaky = x.reshape(-1, 28, 28).copy()
    for image, label in zip(leaky, y, strict=True):  # in the bottom rows, where the lesson's own mark is not
        image[-2:, 26 - 2 * label : 28 - 2 * label] = 1
    return {
        "A": Training(x, y, "rate too high", rate=100),
        "B": Training(x, y[np.random.default_rng(1).permutation(len(y))], "pairs"),
        "C": Training(x, y, "softmax twice"),
        "D": Training(x, y, "gradients add up", rate=1, steps=600),
        "E": Training(leaky.reshape(-1, 784), y, "leak"),
        "F": Training(255 * x, y, "raw pixels"),
    }


def _prints(experiment: Callable[[Training], float]) -> Callable[[Training, object], bool]:
    """Return a function that says whether a number is what the experiment prints, to two digits or better."""

    def near(run: Training, number: object) -> bool:
        actual = float(experiment(run))
        plain = isinstance(number, int | float | np.number) and not isinstance(number, bool)
        return plain and abs(number - actual) <= max(0.006, 0.02 * abs(actual))

    return near


ABOVE, HIGH = "its last losses lie above guessing", "its last losses are high, but not above guessing"
OF_TRAINING = {
    "raw pixels": Suspect(ABOVE, "run.x.max()", _prints(lambda run: run.x.max())),
    "gradients add up": Suspect(ABOVE, "run.growth()", _prints(lambda run: run.growth())),
    "rate too high": Suspect(ABOVE, "run.end(rate=0.1)", _prints(lambda run: run.end(rate=0.1))),
    "rate too low": Suspect(HIGH, "run.end(rate=0.1)", _prints(lambda run: run.end(rate=0.1))),
    "softmax twice": Suspect(HIGH, "run.row_sum()", _prints(lambda run: run.row_sum())),
    "pairs": Suspect(HIGH, "run.end(images=32)", _prints(lambda run: run.end(images=32))),
    "layout": Suspect(HIGH, "run.end(images=32) and its pictures", _prints(lambda run: run.end(images=32))),
    "leak": Suspect("its last losses are too good", "run.end(edge=True)", _prints(lambda run: run.end(edge=True))),
}


@checks.print_verdict
def check_diagnosis(diagnosis: Mapping[str, Sequence], x: np.ndarray, y: np.ndarray) -> Iterator[str]:
    """Lesson 13, exercise 3: of each training the cause, and what the experiment for this cause printed."""
    parts, judge = ("cause", "number"), functools.partial(_judge_one, OF_TRAINING)
    yield checks.judge_diagnosis(diagnosis, trainings(x, y), parts, "trainings", judge)


# ---------------------------------------------------------------------- second sitting: installations that can be lost


@dataclass(repr=False)
class Scratch:
    """A real environment, which `with` makes and removes; pip finds an imitated tensorflow and tensorflow-cpu."""

    cause: str = ""  # the fault's name
    unpacked: Sequence[str] = ()  # packages that are installed, one over the other
    deleted: str = ""  # a pattern of what then disappears from them
    hidden_by: str = ""  # a file beside the programs
    devices: str | None = None  # the programs' CUDA_VISIBLE_DEVICES; None for no such variable

    def __enter__(self) -> Scratch:
        self._temporary = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)  # on Windows a file may still be open
        self.folder = Path(self._temporary.name).resolve()
        venv.create(self.folder / "venv", symlinks=os.name != "nt")
        self.interpreter = str(self.folder / "venv" / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))
        self.packages = next((self.folder / "venv").rglob("site-packages"))
        self.work = self.folder / "work"  # beside its programs
        self.work.mkdir()
        for package, version in {"tensorflow": "2.21.0", "tensorflow-cpu": "2.20.0"}.items():
            wheel = _build_wheel(self.folder, package, version)
            if package in self.unpacked:  # as pip does, but faster
                shutil.unpack_archive(wheel, self.packages, "zip")
        for place in list(self.packages.glob(self.deleted)) if self.deleted else ():
            shutil.rmtree(place) if place.is_dir() else place.unlink()
        if self.hidden_by:
            (self.work / self.hidden_by).write_text("steps = 10\n")
        return self

    def __exit__(self, *error: object) -> None:
        self._temporary.cleanup()

    def pip(self, command: str) -> str:
        """Let pip carry out a command in this environment, without the internet.

        Args:
            command: such as "install tensorflow"; nobody is asked whether something may be uninstalled.

        Returns:
            What `list` and `show` print; of other commands, and of an error, the last line.
        """
        words = re.sub(r"^[!%]?\s*(?:(?:python3?|py)\s+-m\s+)?pip3?\s+", "", command.strip()).split()
        settings = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.folder), "PIP_YES": "1"}
        settings |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_CONFIG_FILE": os.devnull}
        pip = [sys.executable, "-m", "pip", "--python", self.interpreter, *words]
        done = processes.run_command(pip, 60, {**os.environ, **settings}, self.work)
        lines = (done.stdout if done.status == 0 else done.stderr).strip().splitlines()
        return self._clean_output(lines if {"list", "show"} & set(words) else lines[-1:])

    def python(self, code: str) -> str:
        """Run a program with this environment's Python, and return what it printed and the last line of its error."""
        variables = {"CUDA_VISIBLE_DEVICES": self.devices, "PYTHONPATH": str(self.work)}
        program = [self.interpreter, "-B", "-c", code]
        done = processes.run_command(program, 30, processes.environment(variables), self.work)
        return self._clean_output([*done.stdout.splitlines(), *done.stderr.strip().splitlines()[-1:]])

    def _clean_output(self, lines: Sequence[str]) -> str:
        """Join lines, without the scratch folder's path and what Python guesses about a reason."""
        text = "\n".join(lines).strip().replace(f"{self.folder}{os.sep}", "")
        return re.sub(r" \((?:unknown location|consider .*)\)", "", text)


def _build_wheel(folder: Path, package: str, version: str) -> Path:
    """Write an imitated TensorFlow as PEP 427 has it: a package, beside it a folder in which RECORD lists files."""
    flavour = "cpu" if package.endswith("-cpu") else "gpu"
    gpus = "['imitated GPU'] * (os.environ.get('CUDA_VISIBLE_DEVICES') != '-1')" if flavour == "gpu" else "[]"
    code = f"import os\n\n__version__, flavour = '{version}', '{flavour}'\n"
    code += f"ones, gpus = lambda count: [1.0] * count, lambda: {gpus}\n"
    info = f"{package.replace('-', '_')}-{version}.dist-info"
    files = {"tensorflow/__init__.py": code, f"tensorflow/lib_{flavour}.so": "", "tensorflow/ops.py": ""}
    files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
    files[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    wheel = folder / f"{info.removesuffix('.dist-info')}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return wheel


def message_of(code: str, variables: Mapping[str, str] | None = None) -> str:
    """Run a program with this kernel's Python; return its standard error from "Traceback" on, packages' paths short."""
    done = processes.run_command([sys.executable, "-c", code], 60, processes.environment(variables))
    packages = f"{Path(np.__file__).parents[1]}{os.sep}"
    return "".join(re.findall(r"^Traceback.*", done.stderr, re.M | re.S)).strip().replace(packages, "")


# --------------------------------------------------------------------------------------- second sitting: its exercises

MESSAGES = (  # of real programs, shortened, with other paths
    'Traceback (most recent call last):\n  File "/a/one.py", line 8, in load\n    table["x"]\nKeyError: \'x\'\n\n'
    "During handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n"
    '  File "/a/two.py", line 2, in <module>\n    load("File \\"x\\"")\nValueError: no File "x"\n\n \n',
    'Traceback (most recent call last):\n  File "C:\\me\\my lesson\\run.py", line 1, in <module>\n    import jax\n'
    '  File "C:\\my env\\jax.py", line 857, in backends\n    assert _default_backend\nAssertionError  \n',
    "Illegal instruction (core dumped)\n",
    'Error: it failed:\n  Traceback (most recent call last):\n    File "/a/setup.py", line 3, in <module>\n'
    'FileNotFoundError: no file "version.txt"\n',
)


@checks.print_verdict
def check_read_message(learner: Callable) -> Iterator[str]:
    """Lesson 13, second sitting, exercise 1: the last line of a message, and the file that it names last."""

    def read_message(text: str) -> list[str | None]:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        files = [line.split('"')[1] for line in lines if line.startswith('File "')]
        return [lines[-1], files[-1] if files else None]

    cases = [(text,) for text in (*MESSAGES, "".join(MESSAGES), "\n".join(reversed(MESSAGES)))]
    yield checks.judge_function(learner, read_message, lambda rng: cases)


@checks.print_verdict
def check_commands(commands: Sequence[str]) -> Iterator[str]:
    """Lesson 13, second sitting, exercise 2: commands of pip that leave one whole TensorFlow, the one for GPUs."""
    if not isinstance(commands, list | tuple) or not all(
        isinstance(command, str) and command.strip() for command in commands
    ):
        raise NotYet(f"expected a list of commands, came {checks.short(commands)}.")
    if [command.split() for command in commands] in ([], [["install", "tensorflow"]]):
        raise NotDone("this is what you were given, and pip thinks that nothing is to be done.")
    with Scratch(unpacked=["tensorflow", "tensorflow-cpu"]) as env:
        output = [env.pip(command) for command in commands][-1]
        state = env.python(STATE)
        twice = [file for file, packages in package_owners(env.packages).items() if len(packages) > 1]
    if not state.startswith("2.21.0 gpu"):
        raise NotYet(f"afterwards a program sees {state!r}. The last thing that pip said: {output!r}.")
    if twice:
        raise NotYet(f"the import works, but two packages still own {twice[0]}: the next uninstall breaks it again.")
    yield f"{len(commands)} commands, one whole TensorFlow"


STATE = "import tensorflow as tf; print(tf.__version__, tf.flavour, tf.ones(2), tf.gpus())"
ATTRIBUTE, MODULE, GPU = "`has no attribute`", "`No module named`", "no GPU, and no error"
NOTHING = r"(nothing|none|\[\]|package\s+version[\s-]*)?"  # an empty list of packages, or its heading
OF_INSTALLATION = {
    "a file of yours": Suspect(ATTRIBUTE, "tensorflow.__file__", lambda env, printed: "tensorflow.py" in str(printed)),
    "two flavours": Suspect(
        ATTRIBUTE, "tensorflow.__file__", lambda env, printed: re.search("[Nn]one|namesp", str(printed))
    ),
    "another version": Suspect(ATTRIBUTE, "tensorflow.__version__", lambda env, printed: True),
    "not installed here": Suspect(
        MODULE, "pip list", lambda env, printed: re.fullmatch(NOTHING, str(printed).strip(), re.I)
    ),
    "files gone": Suspect(MODULE, "pip list", lambda env, printed: "2.21" in str(printed)),
    "a variable": Suspect(GPU, "os.environ.get(...)", lambda env, printed: str(printed).strip() == "-1"),
    "the build for CPUs": Suspect(GPU, "tensorflow.flavour", lambda env, printed: "cpu" in str(printed).lower()),
}


def installation(letter: str) -> Scratch:
    """Return an environment of exercise 3, to be entered, by its letter."""
    return {
        "A": Scratch("two flavours", ["tensorflow"], deleted="tensorflow/*.py"),
        "B": Scratch("a variable", ["tensorflow"], devices="-1"),
        "C": Scratch("not installed here"),
        "D": Scratch("a file of yours", ["tensorflow"], hidden_by="tensorflow.py"),
        "E": Scratch("files gone", ["tensorflow"], deleted="tensorflow"),
        "F": Scratch("the build for CPUs", ["tensorflow-cpu"]),
    }[letter.strip().upper()]


@checks.print_verdict
def check_installations(diagnosis: Mapping[str, Sequence]) -> Iterator[str]:
    """Lesson 13, second sitting, exercise 3: of each installation the cause, and what the experiment for it printed."""
    every, judge = {letter: installation(letter) for letter in "ABCDEF"}, functools.partial(_judge_one, OF_INSTALLATION)
    yield checks.judge_diagnosis(diagnosis, every, ("cause", "what was printed"), "installations", judge)
