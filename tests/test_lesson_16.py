"""Lesson 16's references, what it counts and times, and its transformer; its toml has the wrong and right kernels."""

import numpy as np
import pytest

from helpers import training
from helpers.devices import opencl
from helpers.judge.checks import NotYet
from helpers.lessons import lesson_16, lesson_16_clock, lesson_16_faults, lesson_16_reader
from helpers.measure import records, timing
from helpers.running import processes
from helpers.training import transformer


def attend(q, k, v):
    return lesson_16_faults.compute_attention(q, k, v).astype(np.float32)


@pytest.mark.parametrize("causal", [False, True])
def test_a_pass_without_a_mistake_is_attention(causal):
    q, k, v = np.random.default_rng(0).normal(size=(3, 2, 9, 4)).astype(np.float32)
    *_, answer = lesson_16_faults.run_pass(q @ k.swapaxes(1, 2), v, causal)
    assert np.allclose(answer, lesson_16_faults.compute_attention(q, k, v, causal), 1e-5, 1e-5)


def test_a_kernel_that_leaves_out_a_number_is_told_so():
    without_sum = lesson_16.ONE_PASS.replace("out[2 * row + 1] = sum;", "")
    with pytest.raises(NotYet, match=r"the sum: .* never written"):
        lesson_16.judge_one_pass(without_sum)


def test_a_wrong_way_is_not_timed(queue, monkeypatch, capsys):
    monkeypatch.setattr(lesson_16, "ATTENTION", lesson_16.ATTENTION.replace("sum * old", "sum"))
    assert lesson_16_clock.find_ways(queue, 64) == {}
    assert "WRONG" in capsys.readouterr().out


def test_times_are_noted_for_a_record(queue, monkeypatch, tmp_path):
    monkeypatch.setenv(records.RECORD, str(tmp_path / "notes"))
    clock = lesson_16_clock
    clock.measure_ways(queue, {clock.ONE: lambda: None}, 64)
    (note,) = records.read_notes(tmp_path / "notes", "16")
    assert (note.label, note.device, note.runs) == (clock.ONE, opencl.name(queue.device), timing.ENOUGH)


def test_only_what_changes_more_answers_than_as_much_ink_is_claimed():
    looked, ink = np.full((100, 49), 1 / 49), np.full((100, 49), 8.0)
    ink[:, 5] = 16

    def describe(by_attention, by_ink, by_other):
        def count_changed(maps):
            return {0: by_attention, 1: by_other, 5: by_ink}[int(maps[0].argmax())]

        below = lesson_16_reader.tabulate_erased(looked, ink, count_changed).below
        return ["more" in line.split(": ")[1] for line in below[1:]]

    assert describe(30, 60, 10) == [True, True]
    assert describe(30, 35, 25) == describe(5, 4, 25) == [False, False]


def test_an_image_is_cut_into_pieces_row_by_row():
    image = np.arange(28 * 28).reshape(1, 28, 28) % 256
    pieces = 255 * transformer.cut(image.astype(np.uint8))
    assert pieces.shape == (1, 49, 16)
    assert np.allclose(pieces[0, 8], image[0, 4:8, 4:8].reshape(-1))  # row 1, column 1 of the pieces


def predict_by_keras(pieces):
    """Return the ten numbers that Keras computes of each image's pieces, with the stored weights."""
    training.start()
    model = transformer.build()
    transformer.write_weights(model, transformer.load_weights())
    return model.predict(pieces, verbose=0)


@pytest.mark.slow
def test_numpy_computes_what_keras_computes_with_the_stored_weights():
    pieces = transformer.cut(np.random.default_rng(0).integers(0, 256, (128, 28, 28), np.uint8))
    run = processes.run("test_lesson_16:predict_by_keras", seconds=600, arguments={"pieces": pieces})
    weights = transformer.load_weights()
    x = transformer.compute_layers(weights, transformer.place_pieces(weights, pieces), attend, 1)
    numbers = transformer.score_digits(weights, x, attend(*transformer.list_heads(weights, x, 1)))
    assert np.abs(run.result - numbers).max() < 1e-3
