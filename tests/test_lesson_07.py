"""What lesson 07's timings rest on: who is waited for."""

import sys
import types
from contextlib import contextmanager

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
