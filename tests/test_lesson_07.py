"""Lesson 07's own machinery: who is waited for, orders that are watched, visible cards, a plug-in of TensorFlow."""

import hashlib
import itertools
import os
import platform
import sys
import types
import zipfile
from contextlib import contextmanager

import pytest

from helpers import ROOT
from helpers.compute import data, devices, processes
from helpers.errors import WorkshopError
from helpers.lessons import lesson_07
from helpers.measure import timing


def test_a_record_waits_for_its_own_device_and_for_no_other(monkeypatch):
    waited, inside = [], []

    @contextmanager
    def device(name):
        inside.append(name)
        yield
        inside.pop()

    raw_ops = types.SimpleNamespace(SyncDevice=lambda: waited.append(inside[-1]))
    monkeypatch.setitem(sys.modules, "tensorflow", types.SimpleNamespace(device=device, raw_ops=raw_ops))
    record = timing.Record()
    with record("GPU:1", "B"):
        pass
    assert waited == ["GPU:1"]


def watch_two():
    import jax

    from helpers.lessons import lesson_07

    matrix = jax.numpy.ones((300, 300)) / 300
    a, b = (jax.device_put(matrix, device) for device in jax.devices()[:2])

    def give_orders(note, wait):
        for _ in range(3):
            for what, matrix in (("A", a), ("B", b)):
                product = note(what, jax.numpy.matmul, matrix, matrix)
                if wait:
                    product.block_until_ready()

    return [lesson_07.watched(give_orders, wait) for wait in (True, False)]


def test_orders_are_watched_device_by_device():
    """Each device's pieces follow one another; who waits after each order has one device at work at a time."""
    if not devices.installed("jax"):
        pytest.skip("JAX is not installed here")
    two = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    waited, ordered = processes.run(watch_two, variables=two).result
    for spans in (waited, ordered):
        rows = {row: [span for span in spans if span[0] == row] for row in (lesson_07.PYTHON, "cpu:0", "cpu:1")}
        assert [len(row) for row in rows.values()] == [6, 3, 3] and len(spans) == 12
        for row in rows.values():
            assert all(begin <= end for _, _, begin, end in row)
            assert all(one[3] <= other[2] for one, other in itertools.pairwise(row))
    work = sorted((span for span in waited if span[0] != lesson_07.PYTHON), key=lambda span: span[2])
    assert all(one[3] <= other[2] for one, other in itertools.pairwise(work))


# ------------------------------------------------------------------------------------------------------- the plug-in


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, on a machine that zentf is made for."""
    monkeypatch.setattr(lesson_07, "CACHE", tmp_path)
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    tensorflow = types.SimpleNamespace(__version__="2.21.0")
    monkeypatch.setattr(lesson_07.training, "import_tensorflow", lambda: tensorflow)
    return tmp_path


def wheel(folder, monkeypatch):
    """A file in place of zentf's wheel, and its checksum in place of that one's."""
    with zipfile.ZipFile(folder / lesson_07.ZENTF_WHEEL, "w") as packed:
        packed.writestr("tensorflow-plugins/library.so", "machine code")
    content = (folder / lesson_07.ZENTF_WHEEL).read_bytes()
    monkeypatch.setattr(lesson_07, "ZENTF_SHA256", hashlib.sha256(content).hexdigest())


def test_zentf_is_unpacked_once_from_the_cache(cache, monkeypatch):
    wheel(cache, monkeypatch)
    folder = lesson_07.zentf()
    assert (cache / "zentf-2.21.0.0" / "tensorflow-plugins" / "library.so").read_text() == "machine code"
    assert folder == str(cache / "zentf-2.21.0.0" / "tensorflow-plugins")
    (cache / lesson_07.ZENTF_WHEEL).unlink()
    assert lesson_07.zentf() == folder
    assert [one.name for one in cache.iterdir()] == ["zentf-2.21.0.0"]


def test_zentf_is_fetched_only_when_asked_for_and_then_by_pip(cache, monkeypatch):
    commands = []

    def pip(command, timeout):
        commands.append(command)
        wheel(cache, monkeypatch)
        return processes.Finished(0, "", "", 1.0)

    monkeypatch.setattr(processes, "run_command", pip)
    with pytest.raises(WorkshopError, match=r"not in data/cache.*\nNext: Set download=True"):
        lesson_07.zentf()
    assert commands == []
    assert lesson_07.zentf(download=True).endswith("tensorflow-plugins")
    assert commands[0][1:4] == ["-m", "pip", "download"] and "zentf==2.21.0.0" in commands[0]


def test_a_damaged_file_of_zentf_is_not_unpacked(cache):
    (cache / lesson_07.ZENTF_WHEEL).write_text("half of it")
    with pytest.raises(WorkshopError, match="damaged"):
        lesson_07.zentf(download=True)
    assert [one.name for one in cache.iterdir()] == [lesson_07.ZENTF_WHEEL]


def test_zentf_is_left_out_where_it_does_not_fit(cache, monkeypatch):
    monkeypatch.setattr(lesson_07.training.import_tensorflow(), "__version__", "2.20.0")
    with pytest.raises(WorkshopError, match=r"for TensorFlow 2\.21; this is 2\.20\.0"):
        lesson_07.zentf()
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    with pytest.raises(WorkshopError, match="this is Linux arm64"):
        lesson_07.zentf()


def multiply_there():
    """Multiplies where the plug-in is, so that this process keeps its TensorFlow unstarted."""
    import os

    if "TF_PLUGGABLE_DEVICE_LIBRARY_PATH" not in os.environ:
        print("here")
        return
    import tensorflow as tf

    from helpers.lessons import lesson_07

    a = tf.ones((64, 64))
    product = tf.function(lambda: a @ a)
    print(*lesson_07.executed(product), "on", *(one.name for one in tf.config.list_physical_devices()))


def test_without_zentf_half_is_shown_and_what_is_missing(cache, monkeypatch, capsys):
    monkeypatch.delenv("TF_PLUGGABLE_DEVICE_LIBRARY_PATH", raising=False)
    lesson_07.with_and_without_zentf(multiply_there, {})
    lines = capsys.readouterr().out.splitlines()
    assert lines[:5] == [
        "without zentf, in this process", "here", "", "with zentf, in a fresh process", "zentf is left out."
    ]  # fmt: skip


@pytest.mark.slow
def test_the_real_zentf_exchanges_the_product_and_brings_no_device():
    """In a process of its own: TensorFlow's import has ended a process that had run hundreds of tests before it."""
    if not any(data.CACHE.glob("zentf-*")):
        pytest.skip(f"{lesson_07.ZENTF_WHEEL} is not in data/cache")
    switches = {"TF_ENABLE_ZENDNN_OPTS": "1", "TF_ENABLE_ONEDNN_OPTS": "0"}
    code = "import test_lesson_07 as here; from helpers.lessons import lesson_07\n"
    code += f"lesson_07.with_and_without_zentf(here.multiply_there, {switches})"
    variables = processes.environment() | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}
    done = processes.run_command([sys.executable, "-c", code], timeout=300, env=variables)
    assert done.status == 0, done.stderr
    assert "_ZenMatMul on /physical_device:CPU:0\n" in done.stdout
    assert "logged of plug-ins: Plugin optimizer for device_type CPU is enabled." in done.stdout


# ------------------------------------------------------------------------------------------- what exercise 2 is told
