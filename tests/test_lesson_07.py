"""Lesson 07's own machinery: who is waited for, and a loop whose pieces are watched."""

import itertools
import sys
import types
from contextlib import contextmanager

import pytest

from helpers.compute import devices, processes
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


def time_two():
    import time

    import jax

    from helpers.lessons import lesson_07

    matrix = jax.numpy.ones((300, 300)) / 300

    def loop(watch, wait):
        for _ in range(3):
            product = watch.order("computes", jax.numpy.matmul, matrix, matrix)
            if wait:
                product.block_until_ready()
            with watch.python("reads"):
                time.sleep(0.001)

    return lesson_07.time_loops(loop, {"waits": True, "orders": False}, repeats=3)


def test_a_loop_is_timed_in_each_way_and_its_pieces_follow_one_another():
    if not devices.installed("jax"):
        pytest.skip("JAX is not installed here")
    timed, shown = lesson_07.measured(processes.run(time_two, variables={"JAX_PLATFORMS": "cpu"}).result, "here")
    assert [len(run.seconds) for run in timed.values()] == [3, 3] and {run.device for run in timed.values()} == {"here"}
    for name, spans in shown.items():
        rows = {row: [span for span in spans if span[0] == row] for row in (lesson_07.PYTHON, "cpu:0")}
        assert [len(row) for row in rows.values()] == [3, 3] and len(spans) == 6
        for row in rows.values():
            assert all(begin <= end for _, _, begin, end in row)
            assert all(one[3] <= other[2] for one, other in itertools.pairwise(row))
        python = rows[lesson_07.PYTHON]  # the thread that was timed
        assert python[-1][3] - python[0][2] <= timed[name].median  # the middle run is the one that is shown
