"""PlaidML itself: its environment, its answers against those of helpers.tile, and what is done where it is missing."""

import contextlib
import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
import venv
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import psutil
import pytest

from helpers import __main__, opencl, plaidml, processes, tile
from helpers.commands import plaidml as command
from helpers.errors import WorkshopError
from helpers.maintain import lock

ROOT = Path(__file__).parent.parent
LONG = 120  # seconds: against hanging alone
NO_NETWORK = ("Failed to fetch", "error sending request", "dns error", "no wheels with a matching")


@pytest.fixture(scope="session")
def environment(tmp_path_factory):
    """PlaidML's environment: the project's own, or one that is built for these tests."""
    if not plaidml.missing(plaidml.ENVIRONMENT):
        return plaidml.ENVIRONMENT
    if plaidml.unfit():
        pytest.skip(plaidml.unfit())
    folder = tmp_path_factory.mktemp("plaidml") / ".plaidml"
    try:
        command.build(folder)
    except WorkshopError as error:
        if error.what == "uv is not here." or any(words in error.why for words in NO_NETWORK):
            pytest.skip(str(error))
        raise
    return folder


def run(environment, function, check=True, seconds=LONG, **arguments):
    """Run a function in PlaidML's environment."""
    options = {"python": plaidml.python(environment), "variables": plaidml.VARIABLES, "check": check}
    return processes.run(function, seconds=seconds, arguments=arguments, **options)


def call(environment, *arguments, monkeypatch):
    """Type the command, with this environment in the place of the project's."""
    monkeypatch.setattr(plaidml, "ENVIRONMENT", environment)
    return __main__.main(["plaidml", *arguments])


# ------------------------------------------------------------------------------------- the environment


def test_the_environment_has_what_is_locked_and_nothing_of_this_one(environment):
    def look():
        import importlib.metadata
        import importlib.util
        import sys

        names = ("helpers", "pyopencl", "jupyterlab", "keras_tuner")
        here = [name for name in names if importlib.util.find_spec(name)]
        return sys.version_info[:2], here, {one.name: one.version for one in importlib.metadata.distributions()}

    version, here, packages = run(environment, look).result
    assert here == ["helpers"]
    assert packages["plaidml"] == "0.7.0" and "enum34" not in packages
    if version == (3, 11):
        assert packages["numpy"].startswith("1.23.") and packages["plaidml-keras"] == "0.7.0"
    locked = dict(re.findall(r"^([a-z0-9.-]+)==(\S+)", plaidml.LOCK.read_text(encoding="utf-8"), re.MULTILINE))
    assert set(packages) - {"any-gpu-workshop"} <= {*locked, "Keras", "PyYAML", "Keras-Applications"} | {
        "Keras-Preprocessing"
    }


def test_a_second_call_changes_nothing_and_shows_that_plaidml_runs(environment, monkeypatch, capsys):
    before = (environment / "workshop.json").stat().st_mtime_ns
    assert call(environment, monkeypatch=monkeypatch) == 0
    said = capsys.readouterr().out
    assert said.startswith("PlaidML's environment is ready.")
    assert re.search(r"Devices, experimental: .*\n  llvm_cpu.0 +Tile is compiled with LLVM", said)
    assert "is [[19.0, 22.0], [43.0, 50.0]]." in said
    assert (environment / "workshop.json").stat().st_mtime_ns == before
    assert plaidml.ready()


def test_arrays_travel_between_two_numpys(environment):
    def echo(values):
        import numpy

        return values, numpy.__version__, [numpy.float32(3), numpy.arange(6.0).reshape(2, 3).T, numpy.array(["ü"])]

    values = [np.arange(4, dtype=np.int8), np.float16(2), np.datetime64("2020-01-01"), np.zeros((0, 2), "f4"), True]
    came, version, made = run(environment, echo, values=values).result
    assert version != np.__version__
    for one, other in zip(came + made, [*values, np.float32(3), np.arange(6.0).reshape(2, 3).T, np.array(["ü"])],
                          strict=True):  # fmt: skip
        assert type(one) is type(other)
        assert np.array_equal(one, other) and np.asarray(one).dtype == np.asarray(other).dtype


# ------------------------------------------------------------------------------------- its answers against ours

# SideBySide article C's operations: Tile and the shapes of the inputs, for sizes m, k and n.
MORE = {
    "both transposed": ("function (A[L, M], B[N, L]) -> (O) { O[i, j: M, N] = +(A[k, i] * B[j, k]); }",
                        lambda m, k, n: {"A": (k, m), "B": (n, k)}),
    "smallest sum": ("function (A[M, L], B[L, N]) -> (O) { O[i, j: M, N] = <(A[i, k] + B[k, j]); }",
                     lambda m, k, n: {"A": (m, k), "B": (k, n)}),
    "product": ("function (A[M, N]) -> (O) { O[i: M] = *(A[i, j]); }", lambda m, k, n: {"A": (m, 5)}),
    "sum of all": ("function (A[M, N]) -> (O) { O[] = +(A[i, j]); }", lambda m, k, n: {"A": (m, n)}),
    "transposition": ("function (A[M, N]) -> (O) { O[j, i: N, M] = =(A[i, j]); }", lambda m, k, n: {"A": (m, n)}),
    "mean": ("function (A[M, N]) -> (O) { S[j: N] = +(A[i, j]); O = S / M; }", lambda m, k, n: {"A": (m, n)}),
    "full convolution": ("function (I[N], K[M]) -> (O) { O[i + j: N + M - 1] = +(I[i] * K[j]); }",
                         lambda m, k, n: {"I": (m,), "K": (k,)}),
    "largest of pairs, the last alone": (
        "function (I[N]) -> (O) { O[i: (N + 1) / 2] = >(I[2 * i + d]), d < 2; }", lambda m, k, n: {"I": (m * n,)}),
    "elements that nothing reaches": ("function (I[N]) -> (O) { O[2 * i + 1: 2 * N + 3] = +(I[i]); }",
                                      lambda m, k, n: {"I": (m,)}),
    "dilated convolution": (
        "function (I[X, Y], K[M, N]) -> (O) { O[x, y: X - 2 * (M - 1), Y - 2 * (N - 1)] ="
        " +(I[x + 2 * i, y + 2 * j] * K[i, j]); }", lambda m, k, n: {"I": (m + 4, n + 4), "K": (3, 3)}),
    "softmax": ("function (X[M, N]) -> (O) { Largest[i, j: M, 1] = >(X[i, k]), j < 1; E = exp(X - Largest);"
                " Sum[i, j: M, 1] = +(E[i, k]); O = E / Sum; }", lambda m, k, n: {"X": (m, n)}),
    "condition": ("function (X[M, N], Y[N]) -> (O) { O = X < Y ? 2 * X : -Y - 1.5; }",
                  lambda m, k, n: {"X": (m, n), "Y": (n,)}),
    "functions": ("function (X) -> (O) { O = sqrt(abs(X)) + tanh(X) * exp(X) + log(abs(X) + 1.0); }",
                  lambda m, k, n: {"X": (m, k)}),
}  # fmt: skip
SIZES = [(1, 1, 1), (1, 7, 13), (2, 3, 5), (17, 1, 31), (31, 29, 23), (8, 16, 4)]
ARTICLE_C = {
    "largest of 2 x 2": lambda m, k, n: {"I": (2, 2 * m + 1, 2 * k, n)},
    "convolution, 3 x 3": lambda m, k, n: {"I": (2, m + 2, k + 3, 3), "K": (3, 3, 3, n)},
    "cumulative sum": lambda m, k, n: {"I": (m * n,)},
    "ReLU": lambda m, k, n: {"X": (m, k, n)},
    "matrix product, 512": lambda m, k, n: {"A": (m, k), "B": (k, n)},
    "largest of each row": lambda m, k, n: {"A": (m, n)},
    "smallest of each row": lambda m, k, n: {"A": (m, n)},
}


def compute_all(cases):
    """Run many Tile functions in one process: (source, arrays by name, output)."""
    import plaidml

    context = plaidml.Context()
    device = plaidml.Device(context, plaidml.devices(context)[0])
    answers = []
    for source, arrays, output in cases:
        inputs = {}
        for name, array in arrays.items():
            kind = plaidml.DType[str(array.dtype).upper()]
            inputs[name] = plaidml.Tensor(device, plaidml.Shape(context, kind, *array.shape))
            with inputs[name].mmap_discard(context) as view:
                view.copy_from_ndarray(array)
                view.writeback()
        function = plaidml.Invoker(context, plaidml.Function(source), inputs)
        result = plaidml.Tensor(device, function.get_output_shape(output))
        function.set_output(output, result)
        function.invoke()
        answers.append(result.as_ndarray(context))
    return answers


def assert_same(came, expected, name):
    assert came.shape == expected.shape, name
    scale = max(1.0, float(np.abs(expected).max(initial=0)))
    np.testing.assert_allclose(came, expected, rtol=1e-5, atol=1e-5 * scale, err_msg=str(name))


def test_both_compilers_give_the_same_answers(environment):
    rng = np.random.default_rng(5)
    operations = {name: (plaidml.OPERATIONS[name].source, shapes) for name, shapes in ARTICLE_C.items()} | MORE
    outputs = {name: one.output for name, one in plaidml.OPERATIONS.items()}
    cases, names = [], []
    for name, (source, shapes) in operations.items():
        for sizes in SIZES:
            arrays = {key: rng.standard_normal(shape, np.float32) for key, shape in shapes(*sizes).items()}
            cases.append((source, arrays, outputs.get(name, "O")))
            names.append((name, sizes))
    came = run(environment, compute_all, cases=cases).result
    functions = {source: tile.Function(source) for source, _, _ in cases}
    assert len(came) == len(operations) * len(SIZES) == 120
    for name, (source, arrays, _), theirs in zip(names, cases, came, strict=True):
        assert_same(theirs, functions[source](**arrays), name)


def test_every_operation_of_the_article_is_among_them():
    missing = set(plaidml.OPERATIONS) - set(ARTICLE_C)
    assert missing == {"matrix product, 1,152"}  # the same function as the other matrix product


def test_whole_numbers_are_the_same_too(environment):
    numbers = {"I": np.int32([-7, -3, 0, 3, 7]), "J": np.int32([2, 2, 2, -2, 4])}
    source = "function (I[N], J[N]) -> (O) { S[i: N] = +(I[k]), i - k < N; O = S + I / J; }"
    came = run(environment, compute_all, cases=[(source, numbers, "O")]).result[0]
    ours = tile.Function(source)(**numbers)
    assert came.dtype == ours.dtype == np.int32 and came.tolist() == ours.tolist() == [-10, -11, -10, -8, 1]


def test_compute_times_each_run_and_the_first_compiles(environment):
    a, b = np.float32([[2]]), np.float32([[3]])
    given = {"source": plaidml.OPERATIONS["matrix product, 512"].source, "arrays": {"A": a, "B": b}, "output": "C"}
    result, seconds = run(environment, plaidml.compute, repeats=4, **given).result
    assert result.tolist() == [[6]] and len(seconds) == 5 and min(seconds) > 0


# ------------------------------------------------------------------------------------- where the languages differ

ONE = {"I": np.arange(1, 6, dtype=np.float32)}
SUM = "function (I[N]) -> (O) { O[i: N] = +(I[i]); }"


@pytest.mark.parametrize("source", [SUM.replace(";", ""), SUM.replace("};", "}").replace("; }", "; // why\n}")])
def test_plaidml_calls_what_it_cannot_read_out_of_memory(environment, source):
    failure = run(environment, compute_all, cases=[(source, ONE, "O")], check=False).failures[0]
    assert "Out of memory" in failure
    if "//" in source:
        assert tile.Function(source)(**ONE).tolist() == [1, 2, 3, 4, 5]  # ours has comments
    else:
        with pytest.raises(tile.TileError, match="Line 1, column "):
            tile.Function(source)


@pytest.mark.parametrize("source", [
    "function (I[N], K[M]) -> (O) { O[i: N] = +(I[i + j - M / 2] * K[j]); }",  # exactly, by 3 / 2 places
    "function (I[N], K[M]) -> (O) { O[i: N] = +(I[i, i] * K[j]); }",
])  # fmt: skip
def test_plaidml_takes_its_process_with_it(environment, source):
    arrays = {**ONE, "K": np.ones(3, np.float32)}
    failed = run(environment, compute_all, cases=[(source, arrays, "O")], check=False)
    assert "ended by SIGABRT" in failed.failures[0]


def test_plaidml_never_ends_where_an_index_has_no_bound_and_is_ended(environment):
    source = "function (I[N]) -> (O) { O[] = +(I[i - k]); }"
    failed = run(environment, compute_all, cases=[(source, ONE, "O")], check=False, seconds=4)
    assert "it had not ended after 4 s; it was in line" in failed.failures[0]
    assert "function.invoke()" in failed.failures[0]
    assert not [one for one in psutil.Process().children(recursive=True) if one.status() != psutil.STATUS_ZOMBIE]
    with pytest.raises(tile.TileError, match="column"):
        tile.Function(source)(**ONE)


def test_plaidml_leaves_the_start_of_its_search_between_the_elements_that_are_reached(environment):
    source = "function (I[N]) -> (O) { O[2 * i + 1: 2 * N + 2] = >(I[i]); }"
    arrays = {"I": np.float32([-3, -2])}
    came = run(environment, compute_all, cases=[(source, arrays, "O")]).result[0]
    assert came.tolist() == [0, -3, np.finfo(np.float32).min, -2, 0, 0]
    assert tile.Function(source)(**arrays).tolist() == [0, -3, 0, -2, 0, 0]


def test_only_plaidml_has_nan_as_the_larger_of_two(environment):
    arrays = {"I": np.float32([np.nan, 2])}
    source = "function (I) -> (O) { O = max(I, 0.0); }"
    came = run(environment, compute_all, cases=[(source, arrays, "O")]).result[0]
    assert np.isnan(came[0]) and came[1] == 2
    assert tile.Function(source)(**arrays).tolist() == [0, 2]


# ------------------------------------------------------------------------------------- where it is missing or broken


def hollow(folder):
    """An environment that has the Python and the stamp, and no package."""
    venv.create(folder, symlinks=os.name != "nt")
    (folder / "workshop.json").write_text(json.dumps({"lock": plaidml.digest()}), encoding="utf-8")
    return folder


def test_what_is_missing_is_said_with_the_command(tmp_path, monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    folder = tmp_path / ".plaidml"

    def said():
        with pytest.raises(WorkshopError, match="PlaidML is not ready here") as caught:
            plaidml.python(folder)
        assert caught.value.next.endswith("workshop.py plaidml")
        return caught.value.why

    assert "has not been built" in said()
    hollow(folder)
    assert plaidml.python(folder) == str(plaidml.executable(folder))
    stamp = folder / "workshop.json"
    stamp.write_text('{"lock": "another"}', encoding="utf-8")
    assert "another list of packages" in said()
    for damaged in ("{", "[]", "\udcff"):
        stamp.write_text(damaged, encoding="utf-8", errors="surrogateescape")
        assert "damaged" in said() or "another list" in said()
    stamp.write_text(json.dumps({"lock": plaidml.digest()}), encoding="utf-8")
    plaidml.executable(folder).unlink()
    assert "The Python" in said() and "gone" in said()


@pytest.mark.parametrize("machine", ["arm64", "aarch64", "ARM64", "riscv64"])
def test_where_it_cannot_be_the_command_and_the_lesson_say_so(machine, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert call(tmp_path / ".plaidml", monkeypatch=monkeypatch) == 2
    said = capsys.readouterr().err
    assert "cannot run on this machine" in said and machine in said and "recorded elsewhere" in said
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(WorkshopError, match="cannot run on this machine"):
        plaidml.python()
    assert not plaidml.ready()


def test_a_broken_environment_is_named_with_the_way_out(tmp_path, monkeypatch, capsys):
    assert call(hollow(tmp_path / ".plaidml"), monkeypatch=monkeypatch) == 2
    said = capsys.readouterr().err
    assert "No module named 'plaidml'" in said
    assert "workshop.py plaidml --remove, then" in said


def test_packages_that_cannot_be_installed_leave_nothing(tmp_path, monkeypatch, capsys):
    damaged = tmp_path / "plaidml.txt"
    text = plaidml.LOCK.read_text(encoding="utf-8")
    damaged.write_text(re.sub(r"sha256:[0-9a-f]{64}", f"sha256:{0:064x}", text), encoding="utf-8")
    monkeypatch.setattr(plaidml, "LOCK", damaged)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    if not any((Path(sys.executable).parent / name).exists() for name in ("uv", "uv.exe")):
        pytest.skip("uv is not here")
    assert call(tmp_path / ".plaidml", monkeypatch=monkeypatch) == 2
    assert "Installing the packages failed." in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [damaged]


def test_it_can_be_taken_away_and_nothing_else(tmp_path, monkeypatch, capsys):
    folder = hollow(tmp_path / ".plaidml")
    assert call(folder, "--remove", monkeypatch=monkeypatch) == 0
    assert call(folder, "--remove", monkeypatch=monkeypatch) == 0
    assert capsys.readouterr().out.splitlines() == ["Removed .plaidml.", "There is no .plaidml here."]
    assert list(tmp_path.iterdir()) == []
    folder.mkdir()
    (folder / "thesis.txt").write_text("mine", encoding="utf-8")
    assert call(folder, "--remove", monkeypatch=monkeypatch) == 2
    assert "that is no environment" in capsys.readouterr().err
    assert (folder / "thesis.txt").exists()


FAKE_SLOW_UV = """#!/bin/sh
case "$*" in
    *" pip install "*) touch "$0.installs"; sleep 120 ;;
    *) exec "{uv}" "$@" ;;
esac
"""
BUILD = """
import sys
from pathlib import Path
from helpers import __main__, plaidml
from helpers.maintain import lock
plaidml.ENVIRONMENT = Path(sys.argv[1])
plaidml.unfit = str
lock.find_uv = lambda: sys.argv[2]
sys.exit(__main__.main(["plaidml"]))
"""


@pytest.mark.skipif(os.name == "nt", reason="written for POSIX signals")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "kill -9"])
def test_an_interrupted_build_is_never_taken_for_whole(how, tmp_path):
    try:
        uv = lock.find_uv()
    except WorkshopError as error:
        pytest.skip(str(error))
    slow, folder = tmp_path / "uv", tmp_path / "place" / ".plaidml"
    folder.parent.mkdir()
    slow.write_text(FAKE_SLOW_UV.format(uv=uv), encoding="utf-8")
    slow.chmod(0o755)
    process = subprocess.Popen(
        [sys.executable, "-c", BUILD, folder, slow], cwd=ROOT, start_new_session=True, stdout=subprocess.DEVNULL
    )
    try:
        end = time.monotonic() + LONG
        while not (tmp_path / "uv.installs").exists() and time.monotonic() < end:
            time.sleep(0.02)
        assert [one.name.startswith(".plaidml.") for one in folder.parent.iterdir()] == [True]
        os.killpg(process.pid, how)  # as the terminal does
        assert process.wait(LONG) == (130 if how == signal.SIGINT else -signal.SIGKILL)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert plaidml.missing(folder)
    left = [one.name for one in folder.parent.iterdir()]
    assert len(left) == (0 if how == signal.SIGINT else 1)
    mine = folder.with_name(f".plaidml.{os.getpid()}-1")  # of a call that still runs
    mine.mkdir()
    command.sweep(folder)
    assert list(folder.parent.iterdir()) == [mine]


# ------------------------------------------------------------------------------------- what was recorded


def test_the_recording_says_that_it_is_one_and_when_and_where():
    known = plaidml.recorded()
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", known.date)
    assert known.label.startswith(f"recorded on {known.date} on {known.machine}, with PlaidML 0.7.0 on llvm_cpu.0")
    assert str(known).startswith(known.label) and known.label in known._repr_html_()
    assert set(known.versions) == {"python", "plaidml", "numpy"}


@pytest.mark.parametrize("name", plaidml.OPERATIONS)
def test_what_was_recorded_is_what_numpy_and_our_compiler_say(name):
    one, operation = plaidml.recorded().results[name], plaidml.OPERATIONS[name]
    assert (one.source, one.shapes) == (operation.source, operation.shapes)
    arrays = operation.arrays(one.seed)
    for came in (operation.numpy(*arrays.values()), tile.Function(one.source)(**arrays)):
        assert one.shape == came.shape
        np.testing.assert_allclose(came.sum(dtype=np.float64), one.sum, rtol=1e-5, atol=1e-6 * came.size)
        np.testing.assert_allclose(came.ravel()[:4], one.first, rtol=1e-5, atol=1e-3)
    assert 0 <= one.difference < 1e-3
    for low, middle, high in (one.seconds, one.tile_seconds):
        assert 0 < low <= middle <= high < one.first_seconds
    assert one.runs >= 30


def test_a_recording_that_cannot_be_read_is_an_error(tmp_path):
    file = tmp_path / "plaidml.json"
    for text in (None, "", "{}", '{"results": []}', '{"results": {"a": {"shapes": {}}}}'):
        if text is not None:
            file.write_text(text, encoding="utf-8")
        with pytest.raises(WorkshopError, match="cannot be read") as caught:
            plaidml.recorded(file)
        assert "--record" in caught.value.next


def test_it_records_what_it_computed(environment, tmp_path, monkeypatch, capsys):
    chosen = {name: plaidml.OPERATIONS[name] for name in ("ReLU", "cumulative sum")}
    monkeypatch.setattr(plaidml, "OPERATIONS", chosen)
    file = tmp_path / "results" / "plaidml.json"
    command.record(environment, file, repeats=3)
    now, stored = plaidml.recorded(file), plaidml.recorded()
    assert list(now.results) == list(chosen)
    assert now.tile_device == opencl.name(opencl.pick_device())
    for name, one in now.results.items():
        assert one.runs == 9 and one.sum == pytest.approx(stored.results[name].sum, rel=1e-5)
    assert now.label in capsys.readouterr().out
    text = file.read_text(encoding="utf-8")
    assert str(environment) not in text and str(Path.home()) not in text


def test_it_stores_nothing_that_is_not_numpys(environment, tmp_path, monkeypatch):
    right = plaidml.OPERATIONS["ReLU"]
    wrong = plaidml.Operation(right.source, right.output, right.shapes, lambda x: x.clip(0.001))
    monkeypatch.setattr(plaidml, "OPERATIONS", {"ReLU": wrong})
    with pytest.raises(WorkshopError, match="is not NumPy's"):
        command.record(environment, tmp_path / "plaidml.json", repeats=3)
    assert list(tmp_path.iterdir()) == []


def test_importing_it_is_light():
    code = "import sys, helpers.plaidml, helpers.commands.plaidml; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert not {"numpy", "plaidml", "pyopencl", "psutil", "tabulate"} & set(done.stdout.split())
    assert find_spec("plaidml") is None  # the lessons' own environment never has it
