"""The examples in docstrings hold. A module with a new example is named here."""

import doctest
import importlib

import pytest

MODULES = """
    errors measure.timing devices.host devices.kernel_text running.processes training judge.values judge.counters
"""


@pytest.mark.parametrize("module", MODULES.split())
def test_the_examples_hold(module, monkeypatch):
    monkeypatch.setattr("helpers.errors.LINE_WIDTH", 100)  # as learners have it
    failed, tried = doctest.testmod(importlib.import_module(f"helpers.{module}"))
    assert tried and not failed
