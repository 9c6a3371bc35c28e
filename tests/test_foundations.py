"""helpers itself, its errors, its profiles, and the catcher of native log lines."""

import os

import pytest
from IPython.testing.globalipapp import start_ipython

from helpers.errors import WorkshopError
from helpers.measure import workload
from helpers.running.quiet import caught_stderr


def test_a_message_has_what_why_and_next():
    error = WorkshopError("It is broken.", "The cable is out.", "Plug it in.")
    assert str(error) == "It is broken.\nWhy:  The cable is out.\nNext: Plug it in."
    assert str(WorkshopError("It is broken.")) == "It is broken."


def test_a_notebook_shows_the_message_without_a_traceback(capsys):
    shell = start_ipython() or __import__("IPython").get_ipython()
    shell.run_cell("from helpers.errors import WorkshopError\nraise WorkshopError('Broken.', next='Mend it.')")
    out = capsys.readouterr().out
    assert "Broken.\nNext: Mend it." in out
    assert "Traceback" not in out


def test_the_workload_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv(workload.VARIABLE, "full")
    assert workload.current() == "full"
    for unset in ("", None):
        monkeypatch.setenv(workload.VARIABLE, unset) if unset is not None else monkeypatch.delenv(workload.VARIABLE)
        assert workload.current() == "lab"


def test_an_unknown_workload_gives_the_way_out(monkeypatch):
    monkeypatch.setenv(workload.VARIABLE, "turbo")
    with pytest.raises(WorkshopError, match="no workload called 'turbo'") as caught:
        workload.current()
    assert "preview, lab, full" in str(caught.value)
    assert "Next:" in str(caught.value)


@pytest.mark.parametrize(("name", "amount"), [("preview", 1), ("lab", 2), ("full", 3)])
def test_a_lesson_picks_the_amount_of_its_workload(monkeypatch, name, amount):
    monkeypatch.setenv(workload.VARIABLE, name)
    assert workload.pick(preview=1, lab=2, full=3) == amount


def test_native_lines_are_caught_and_handed_over(capfd):
    with caught_stderr() as lines:
        os.write(2, b"a line past Python\n")
    assert capfd.readouterr().err == ""
    assert lines == ["a line past Python"]


def test_lines_are_caught_when_the_block_fails_too(capfd):
    with pytest.raises(ValueError), caught_stderr() as lines:
        os.write(2, b"why it failed\n")
        raise ValueError
    assert lines == ["why it failed"]
    os.write(2, b"afterwards\n")
    assert capfd.readouterr().err == "afterwards\n"
