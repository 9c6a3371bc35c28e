"""helpers itself, its errors, its profiles, and the catcher of native log lines."""

import os

import pytest
from IPython.testing.globalipapp import start_ipython

from helpers import workload
from helpers.errors import WorkshopError
from helpers.quiet import caught_stderr


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


def test_the_profile_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv(workload.VARIABLE, "full")
    assert workload.current().name == "full"
    for unset in ("", None):
        monkeypatch.setenv(workload.VARIABLE, unset) if unset is not None else monkeypatch.delenv(workload.VARIABLE)
        assert workload.current().name == "lab"


def test_an_unknown_profile_gives_the_way_out(monkeypatch):
    monkeypatch.setenv(workload.VARIABLE, "turbo")
    with pytest.raises(WorkshopError, match="no profile called 'turbo'") as caught:
        workload.current()
    assert "preview, lab, full" in str(caught.value)
    assert "Next:" in str(caught.value)


@pytest.mark.parametrize(("name", "amount"), [("preview", 1), ("lab", 2), ("full", 3)])
def test_a_lesson_picks_the_amount_of_its_profile(monkeypatch, name, amount):
    monkeypatch.setenv(workload.VARIABLE, name)
    assert workload.pick(preview=1, lab=2, full=3) == amount


def test_larger_profiles_do_more():
    small, middle, large = workload.PROFILES.values()
    for amount in ("repeats", "load_seconds", "largest_vector"):
        assert getattr(small, amount) < getattr(middle, amount) < getattr(large, amount)


@pytest.mark.parametrize("amount", ["train_images", "mlp_epochs", "cnn_epochs", "trial_steps"])
def test_preview_trains_less_than_the_whole(amount):
    small, middle, large = (getattr(profile, amount) for profile in workload.PROFILES.values())
    assert small < middle <= large


def test_a_shortened_training_says_by_how_much():
    preview, lab = workload.named("preview"), workload.named("lab")
    assert preview.shortened(2, 10) == (
        "preview profile, far from the whole training: 2 of 10 epochs, 3,200 of 60,000 images"
    )
    assert preview.shortened(1, of=12, total=1_500).endswith(": 1 of 12 epochs, 1,500 of 1,500 images")
    assert preview.shortened(10, of=10).endswith(": 10 of 10 epochs, 3,200 of 60,000 images")
    assert preview.shortened(10, of=10, total=1_500) == ""
    assert lab.shortened(lab.mlp_epochs, of=10) == lab.shortened(lab.cnn_epochs, of=12) == ""
    assert lab.shortened(11, of=12).endswith(": 11 of 12 epochs, 60,000 of 60,000 images")


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
