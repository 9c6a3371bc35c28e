"""PlaidML itself: its environment, and what is said where it is missing."""

import os
import platform
import re
import venv

import numpy as np
import pytest

from helpers import __main__
from helpers.commands import plaidml as command
from helpers.errors import WorkshopError
from helpers.running import processes
from helpers.setup.tools import python_in
from helpers.training import plaidml

LONG = 300  # seconds: against hanging alone
CANNOT = ("Failed to fetch", "error sending request", "dns error", "no wheels with a matching", "No interpreter found")


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
        if error.what == "uv is not here." or any(words in error.why for words in CANNOT):
            pytest.skip(str(error))
        raise
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plaidml, "ENVIRONMENT", folder)
        yield folder


def run(function, **arguments):
    """Run a function in PlaidML's environment."""
    given = {"python": plaidml.python(), "variables": plaidml.KERAS, "seconds": LONG}
    return processes.run(function, **given, arguments=arguments).result


# ------------------------------------------------------------------------------------- the environment


@pytest.mark.slow
def test_the_environment_has_what_is_locked_and_nothing_of_this_one(environment):
    def look():
        import importlib.metadata
        import importlib.util
        import sys

        here = [name for name in ("pyopencl", "jupyterlab", "keras_tuner") if importlib.util.find_spec(name)]
        versions = {package.name: package.version for package in importlib.metadata.distributions()}
        return sys.version_info[:2], here, versions

    version, here, packages = run(look)
    assert version == (3, 11) and here == []
    assert packages["plaidml"] == packages["plaidml-keras"] == "0.7.0" and "enum34" not in packages
    assert packages["numpy"].startswith("1.23.")
    locked = dict(re.findall(r"^([a-z0-9.-]+)==(\S+)", plaidml.LOCK.read_text(encoding="utf-8"), re.MULTILINE))
    assert {name.lower() for name in packages} - {"any-gpu-workshop"} <= set(locked)


@pytest.mark.slow
def test_its_keras_computes_on_plaidmls_device(environment):
    def double(x):
        from helpers.training import plaidml

        plaidml.put_names_back()
        from keras import backend

        return backend.backend(), backend.eval(2 * backend.variable(x))

    name, doubled = run(double, x=np.float32([[1, 2]]))
    assert name == plaidml.KERAS["KERAS_BACKEND"] and doubled.tolist() == [[2, 4]]


@pytest.mark.slow
def test_a_second_call_changes_nothing(environment, capsys):
    before = (environment / "plaidml.txt").stat().st_mtime_ns
    assert __main__.main(["plaidml"]) == 0
    assert capsys.readouterr().out.startswith("PlaidML's environment is ready.")
    assert (environment / "plaidml.txt").stat().st_mtime_ns == before and plaidml.ready()


# ------------------------------------------------------------------------------------- where it is missing or broken


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A place for an environment of one test, on a machine where PlaidML could run."""
    monkeypatch.setattr(plaidml, "ENVIRONMENT", tmp_path / ".plaidml")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    return tmp_path / ".plaidml"


def test_an_environment_that_is_not_whole_is_said_with_the_command(folder):
    def refused():
        with pytest.raises(WorkshopError, match="PlaidML is not ready here") as caught:
            plaidml.python()
        return caught.value.next.endswith(" plaidml") and not plaidml.ready()

    assert refused()
    venv.create(folder, symlinks=os.name != "nt")  # it looks whole, and has no package
    (folder / "plaidml.txt").write_bytes(plaidml.LOCK.read_bytes())
    assert plaidml.python() == str(python_in(folder)) and plaidml.ready()
    (folder / "plaidml.txt").write_text("of another list", encoding="utf-8")
    assert refused()


def test_where_it_cannot_be_the_command_and_the_lesson_say_so(folder, monkeypatch, capsys):
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    assert __main__.main(["plaidml"]) == 2
    text = capsys.readouterr().err
    assert "arm64" in text and "recorded" in text
    assert not folder.exists()
    with pytest.raises(WorkshopError, match="arm64"):
        plaidml.python()


def test_packages_that_cannot_be_installed_leave_nothing_that_looks_whole(folder, tmp_path, monkeypatch, capsys):
    """As little as a build that was killed: the copy of the lock comes last."""
    damaged = tmp_path / "plaidml.txt"
    text = plaidml.LOCK.read_text(encoding="utf-8")
    damaged.write_text(re.sub(r"sha256:[0-9a-f]{64}", f"sha256:{0:064x}", text), encoding="utf-8")
    monkeypatch.setattr(plaidml, "LOCK", damaged)
    assert __main__.main(["plaidml"]) == 2
    error = capsys.readouterr().err
    if any(words in error for words in ("uv is not here", "No interpreter found")):
        pytest.skip(error)
    assert "Installing the packages failed." in error
    assert python_in(folder).exists() and not plaidml.ready()
