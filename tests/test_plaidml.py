"""PlaidML itself: its environment, its answers against those of helpers.tile, and what is done where it is missing."""

import json
import os
import platform
import re
import venv

import numpy as np
import pytest

from helpers import __main__, tile
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


def test_compute_times_each_run_and_the_first_compiles(environment):
    a, b = np.float32([[2]]), np.float32([[3]])
    given = {"source": plaidml.OPERATIONS["matrix product, 512"].source, "arrays": {"A": a, "B": b}, "output": "C"}
    result, seconds = run(plaidml.compute, repeats=4, **given).result
    assert result.tolist() == [[6]] and len(seconds) == 5 and min(seconds) > 0


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


@pytest.mark.parametrize("machine", ["arm64", "riscv64"])
def test_where_it_cannot_be_the_command_and_the_lesson_say_so(machine, folder, monkeypatch, capsys):
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert __main__.main(["plaidml"]) == 2
    text = capsys.readouterr().err
    assert machine in text and "recorded" in text
    assert not folder.exists()
    with pytest.raises(WorkshopError, match=machine):
        plaidml.python()


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


def test_names_are_put_back_for_plaidmls_keras_alone(monkeypatch):
    import collections
    import inspect

    had = hasattr(inspect, "getargspec")
    monkeypatch.setitem(os.environ, "KERAS_BACKEND", "jax")
    plaidml.put_names_back()
    assert not hasattr(collections, "Iterable") and hasattr(inspect, "getargspec") == had


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
    for actual in (operation.numpy(*arrays.values()), tile.Function(operation.source)(*arrays.values())):
        assert one["shape"] == list(actual.shape)
        np.testing.assert_allclose(actual.sum(dtype=np.float64), one["sum"], rtol=1e-5, atol=1e-6 * actual.size)
        np.testing.assert_allclose(actual.ravel()[:4], one["first"], rtol=1e-5, atol=1e-3)
    assert 0 <= one["difference"] < 1e-3
    for low, middle, high in (one["seconds"], one["tile_seconds"]):
        assert 0 < low <= middle <= high < one["first_seconds"]
    assert one["runs"] >= 30
