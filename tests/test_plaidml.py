"""PlaidML itself: its environment, its answers against those of helpers.tile, and what is done where it is missing."""

import json
import os
import platform
import re
import subprocess
import sys
import venv
from importlib.util import find_spec

import numpy as np
import pytest

from helpers import ROOT, __main__, tile
from helpers.commands import plaidml as command
from helpers.compute import plaidml, processes
from helpers.errors import WorkshopError
from helpers.measure import timing

LONG = 300  # seconds: against hanging alone
NO_NETWORK = ("Failed to fetch", "error sending request", "dns error", "no wheels with a matching")


@pytest.fixture(scope="session")
def environment(tmp_path_factory):
    """PlaidML's environment: the project's own, or one that is built for these tests and stands in its place."""
    if plaidml.ready():
        yield plaidml.ENVIRONMENT
        return
    if plaidml.unfit():
        pytest.skip(plaidml.unfit())
    folder = tmp_path_factory.mktemp("plaidml") / ".plaidml"
    try:
        command.build(folder)
    except WorkshopError as error:
        if error.what == "uv is not here." or any(words in error.why for words in NO_NETWORK):
            pytest.skip(str(error))
        raise
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plaidml, "ENVIRONMENT", folder)
        yield folder


def run(function, check=True, **arguments):
    """Run a function in PlaidML's environment."""
    given = {"python": plaidml.python(), "variables": plaidml.VARIABLES, "seconds": LONG, "check": check}
    return processes.run(function, **given, arguments=arguments)


# ------------------------------------------------------------------------------------- the environment


def test_the_environment_has_what_is_locked_and_nothing_of_this_one(environment):
    def look():
        import importlib.metadata
        import importlib.util
        import sys

        here = [name for name in ("pyopencl", "jupyterlab", "keras_tuner") if importlib.util.find_spec(name)]
        return sys.version_info[:2], here, {one.name: one.version for one in importlib.metadata.distributions()}

    version, here, packages = run(look).result
    assert here == []
    assert packages["plaidml"] == "0.7.0" and "enum34" not in packages
    if version == (3, 11):
        assert packages["numpy"].startswith("1.23.") and packages["plaidml-keras"] == "0.7.0"
    locked = dict(re.findall(r"^([a-z0-9.-]+)==(\S+)", plaidml.LOCK.read_text(encoding="utf-8"), re.MULTILINE))
    assert {name.lower() for name in packages} - {"any-gpu-workshop"} <= set(locked)


def test_a_second_call_changes_nothing_and_shows_that_plaidml_runs(environment, capsys):
    before = (environment / "plaidml.txt").stat().st_mtime_ns
    assert __main__.main(["plaidml"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("PlaidML's environment is ready.")
    assert re.search(r"Devices, experimental: .*\n  llvm_cpu.0 +Tile is compiled with LLVM", text)
    assert "is [[19.0, 22.0], [43.0, 50.0]]." in text
    assert (environment / "plaidml.txt").stat().st_mtime_ns == before
    assert plaidml.ready()


def test_arrays_travel_between_two_numpys(environment):
    def echo(values):
        import numpy

        return values, numpy.__version__, [numpy.float32(3), numpy.arange(6.0).reshape(2, 3).T, numpy.array(["ü"])]

    values = [np.arange(4, dtype=np.int8), np.float16(2), np.datetime64("2020-01-01"), np.zeros((0, 2), "f4"), True]
    actual, version, made = run(echo, values=values).result
    expected = [*values, np.float32(3), np.arange(6.0).reshape(2, 3).T, np.array(["ü"])]
    assert version != np.__version__
    for one, other in zip(actual + made, expected, strict=True):
        assert type(one) is type(other)
        assert np.array_equal(one, other) and np.asarray(one).dtype == np.asarray(other).dtype


# ------------------------------------------------------------------------------------- its answers against ours

# Beside article C's operations: Tile and the shapes of the inputs, for sizes m, k and n.
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


def compute_all(cases, patience=None):
    """Run many Tile functions in one process: (source, arrays by name, output); or say whether one still runs."""
    import threading

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
        if patience is not None:
            thread = threading.Thread(target=function.invoke, daemon=True)
            thread.start()
            thread.join(patience)
            return thread.is_alive()
        function.invoke()
        answers.append(result.as_ndarray(context))
    return answers


@pytest.mark.slow
def test_both_compilers_give_the_same_answers(environment, request):
    many = SIZES if request.config.getoption("--all") else SIZES[1::2]
    rng = np.random.default_rng(5)
    operations = {name: (plaidml.OPERATIONS[name].source, shapes) for name, shapes in ARTICLE_C.items()} | MORE
    outputs = {name: one.output for name, one in plaidml.OPERATIONS.items()}
    cases, names = [], []
    for name, (source, shapes) in operations.items():
        for sizes in many:
            arrays = {key: rng.standard_normal(shape, np.float32) for key, shape in shapes(*sizes).items()}
            cases.append((source, arrays, outputs.get(name, "O")))
            names.append((name, sizes))
    theirs = run(compute_all, cases=cases).result
    functions = {source: tile.Function(source) for source, _, _ in cases}
    assert len(theirs) == len(operations) * len(many) == 20 * len(many)
    for name, (source, arrays, _), actual in zip(names, cases, theirs, strict=True):
        expected = functions[source](**arrays)
        assert actual.shape == expected.shape, name
        scale = max(1.0, float(np.abs(expected).max(initial=0)))
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5 * scale, err_msg=str(name))


def test_every_operation_of_the_article_is_among_them():
    missing = set(plaidml.OPERATIONS) - set(ARTICLE_C)
    assert missing == {"matrix product, 1,152"}  # the same function as the other matrix product


def test_whole_numbers_are_the_same_too(environment):
    numbers = {"I": np.int32([-7, -3, 0, 3, 7]), "J": np.int32([2, 2, 2, -2, 4])}
    source = "function (I[N], J[N]) -> (O) { S[i: N] = +(I[k]), i - k < N; O = S + I / J; }"
    actual = run(compute_all, cases=[(source, numbers, "O")]).result[0]
    ours = tile.Function(source)(**numbers)
    assert actual.dtype == ours.dtype == np.int32 and actual.tolist() == ours.tolist() == [-10, -11, -10, -8, 1]


def test_compute_times_each_run_and_the_first_compiles(environment):
    a, b = np.float32([[2]]), np.float32([[3]])
    given = {"source": plaidml.OPERATIONS["matrix product, 512"].source, "arrays": {"A": a, "B": b}, "output": "C"}
    result, seconds = run(plaidml.compute, repeats=4, **given).result
    assert result.tolist() == [[6]] and len(seconds) == 5 and min(seconds) > 0


# ------------------------------------------------------------------------------------- where the languages differ

ONE = {"I": np.arange(1, 6, dtype=np.float32)}
SUM = "function (I[N]) -> (O) { O[i: N] = +(I[i]); }"


def test_plaidml_never_ends_where_an_index_has_no_bound(environment):
    source = "function (I[N]) -> (O) { O[] = +(I[i - k]); }"
    assert run(compute_all, cases=[(source, ONE, "O")], patience=4).result is True
    assert run(compute_all, cases=[(SUM, ONE, "O")], patience=LONG).result is False
    with pytest.raises(tile.TileError, match="column"):
        tile.Function(source)(**ONE)


@pytest.mark.parametrize(
    ("source", "given", "theirs", "ours"),
    [
        # PlaidML leaves the start of its search between the elements that are reached, and NaN as the larger of two.
        ("function (I[N]) -> (O) { O[2 * i + 1: 2 * N + 2] = >(I[i]); }", [-3, -2],
         [0, -3, np.finfo(np.float32).min, -2, 0, 0], [0, -3, 0, -2, 0, 0]),
        ("function (I) -> (O) { O = max(I, 0.0); }", [np.nan, 2], [np.nan, 2], [0, 2]),
    ],
)  # fmt: skip
def test_the_values_differ_where_we_know_it(source, given, theirs, ours, environment):
    arrays = {"I": np.float32(given)}
    np.testing.assert_array_equal(run(compute_all, cases=[(source, arrays, "O")]).result[0], theirs)
    assert tile.Function(source)(**arrays).tolist() == ours


# ------------------------------------------------------------------------------------- where it is missing or broken


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A place for an environment of one test, on a machine where PlaidML could run."""
    monkeypatch.setattr(plaidml, "ENVIRONMENT", tmp_path / ".plaidml")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    return tmp_path / ".plaidml"


def hollow(folder):
    """An environment that looks whole, and has no package."""
    venv.create(folder, symlinks=os.name != "nt")
    (folder / "plaidml.txt").write_bytes(plaidml.LOCK.read_bytes())


def test_an_environment_that_is_not_whole_is_said_with_the_command(folder):
    def refused():
        with pytest.raises(WorkshopError, match="PlaidML is not ready here") as caught:
            plaidml.python()
        return caught.value.next.endswith("workshop.py plaidml") and not plaidml.ready()

    assert refused()
    hollow(folder)
    assert plaidml.python() == str(plaidml.executable(folder)) and plaidml.ready()
    (folder / "plaidml.txt").write_text("of another list", encoding="utf-8")
    assert refused()
    hollow(folder)
    plaidml.executable(folder).unlink()
    assert refused()


@pytest.mark.parametrize("machine", ["arm64", "aarch64", "riscv64"])
def test_where_it_cannot_be_the_command_and_the_lesson_say_so(machine, folder, monkeypatch, capsys):
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert __main__.main(["plaidml"]) == 2
    text = capsys.readouterr().err
    assert "cannot run on this machine" in text and machine in text and "recorded elsewhere" in text
    assert not folder.exists()
    with pytest.raises(WorkshopError, match="cannot run on this machine"):
        plaidml.python()


def test_a_broken_environment_is_named_with_the_way_out(folder, capsys):
    hollow(folder)
    assert __main__.main(["plaidml"]) == 2
    text = capsys.readouterr().err
    assert "No module named 'plaidml'" in text
    assert "workshop.py plaidml --remove, then" in text


def test_packages_that_cannot_be_installed_leave_nothing_that_looks_whole(folder, tmp_path, monkeypatch, capsys):
    """As little as a build that was killed: the copy of the lock comes last."""
    damaged = tmp_path / "plaidml.txt"
    text = plaidml.LOCK.read_text(encoding="utf-8")
    damaged.write_text(re.sub(r"sha256:[0-9a-f]{64}", f"sha256:{0:064x}", text), encoding="utf-8")
    monkeypatch.setattr(plaidml, "LOCK", damaged)
    if __main__.main(["plaidml"]) == 2 and "uv is not here" in (error := capsys.readouterr().err):
        pytest.skip("uv is not here")
    assert "Installing the packages failed." in error
    assert plaidml.executable(folder).exists() and not plaidml.ready()


def test_it_can_be_taken_away_and_nothing_else(folder, capsys):
    hollow(folder)
    assert __main__.main(["plaidml", "--remove"]) == 0
    assert __main__.main(["plaidml", "--remove"]) == 0
    assert capsys.readouterr().out.splitlines() == ["Removed .plaidml.", "There is no .plaidml here."]
    folder.mkdir()
    (folder / "thesis.txt").write_text("mine", encoding="utf-8")
    assert __main__.main(["plaidml", "--remove"]) == 2
    assert "that is no environment" in capsys.readouterr().err
    assert (folder / "thesis.txt").exists()


# ------------------------------------------------------------------------------------- what was recorded


def test_the_recording_says_that_it_is_one_and_when_and_where():
    table, known = plaidml.recorded(), json.loads(plaidml.RECORDED.read_text(encoding="utf-8"))
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", known["date"])
    assert table.headers[0] == f"recorded on {known['date']} on {known['machine']}, with PlaidML 0.7.0 on llvm_cpu.0"
    assert [row[0] for row in table.rows] == list(plaidml.OPERATIONS)
    assert table.rows[0][2] == timing.duration(known["results"]["matrix product, 512"]["seconds"][1])


@pytest.mark.parametrize("name", plaidml.OPERATIONS)
def test_what_was_recorded_is_what_numpy_and_our_compiler_say(name):
    one = json.loads(plaidml.RECORDED.read_text(encoding="utf-8"))["results"][name]
    operation = plaidml.OPERATIONS[name]
    assert one["source"] == operation.source
    assert one["shapes"] == {key: list(shape) for key, shape in operation.shapes.items()}
    arrays = operation.arrays()
    for actual in (operation.numpy(*arrays.values()), tile.Function(operation.source)(**arrays)):
        assert one["shape"] == list(actual.shape)
        np.testing.assert_allclose(actual.sum(dtype=np.float64), one["sum"], rtol=1e-5, atol=1e-6 * actual.size)
        np.testing.assert_allclose(actual.ravel()[:4], one["first"], rtol=1e-5, atol=1e-3)
    assert 0 <= one["difference"] < 1e-3
    for low, middle, high in (one["seconds"], one["tile_seconds"]):
        assert 0 < low <= middle <= high < one["first_seconds"]
    assert one["runs"] >= 30


@pytest.mark.parametrize("text", [None, "", "{}", '{"results": []}'])
def test_a_recording_that_cannot_be_read_is_an_error(text, tmp_path, monkeypatch):
    monkeypatch.setattr(plaidml, "RECORDED", tmp_path / "plaidml.json")
    if text is not None:
        plaidml.RECORDED.write_text(text, encoding="utf-8")
    with pytest.raises(WorkshopError, match="cannot be read"):
        plaidml.recorded()


def test_importing_it_is_light():
    code = "import sys, helpers.compute.plaidml, helpers.commands.plaidml; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert not {"numpy", "plaidml", "pyopencl", "psutil", "tabulate"} & set(done.stdout.split())
    assert find_spec("plaidml") is None  # the lessons' own environment never has it
