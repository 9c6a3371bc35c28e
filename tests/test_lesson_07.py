"""Lesson 07's own machinery: who is waited for, orders that are watched, and the picture of visible cards."""

import itertools
import sys
import types
from contextlib import contextmanager

import pytest

from helpers import devices, processes, timing
from helpers.lessons import lesson_07


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


def test_python_is_free_when_its_last_order_has_returned(capsys):
    spans = [("Python", "orders", 1.0, 1.5), ("Python", "orders", 1.5, 2.0), ("cpu:0", "computes A", 1.0, 4.0)]
    lesson_07.tell_orders({"at the end": spans})
    assert capsys.readouterr().out == "at the end: Python is free after 1 s, all is done after 3 s\n"


def test_the_order_of_the_cards_decides_which_one_is_shown(monkeypatch):
    told = []
    monkeypatch.setattr(lesson_07, "show", lambda drawn, alt: told.append(alt))
    lesson_07.draw_visible([("slow", 1), ("fast", 0), ("slow", 2)], "2,0")
    assert "is not set, GPU:1 is the fast one in slot 1" in told[0]
    assert "is PCI_BUS_ID, GPU:1 is the slow one in slot 0" in told[0]
