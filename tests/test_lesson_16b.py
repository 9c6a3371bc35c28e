"""Lesson 16b's network on the device beside NumPy and Keras, its choice of words, and what its tables may claim."""

import numpy as np
import pyopencl as cl
import pytest

from helpers import training
from helpers.devices import opencl
from helpers.lessons import lesson_16_faults, lesson_16b, lesson_16b_clock
from helpers.lessons.lesson_16b_writer import Writer
from helpers.measure import records, timing
from helpers.running import processes
from helpers.training import transformer, writer


@pytest.fixture(scope="module")
def queue():
    context = cl.Context([opencl.pick_device()])  # held: Intel's driver ends one that its queue alone holds
    yield cl.CommandQueue(context)


@pytest.fixture(scope="module")
def stored():
    return writer.load_writer()


def compute_scores(weights, given):
    """Return the scores of the next word after each word, of shape (m, 49, 64), by NumPy.

    Args:
        weights: by name.
        given: the label's word and the words after it, as `writer.begin` returns them.
    """

    def attend(q, k, v):
        return lesson_16_faults.compute_attention(q, k, v, causal=True).astype(np.float32)

    x = weights["words.kernel"][given] + weights["words.bias"]
    rows = transformer.compute_layers(weights, x, attend)
    return transformer.apply(transformer.normalize(rows, weights, "after"), weights, "scores")


def test_the_device_computes_and_chooses_what_numpy_does_with_and_without_the_cache(queue, stored):
    _, weights = stored
    network, labels = Writer(queue, weights, 3), np.array([7, 0, 9])
    choose = cl.Kernel(opencl.build(queue.context, lesson_16b.CHOOSE), "choose")
    for compute in (network.recompute, network.extend):
        network.begin(labels, seed=1)
        scores = []
        for place in range(transformer.PIECES):
            compute(place)
            scores.append(network.read_scores())
            network.choose(choose, 1)
        words, actual = network.read_words(), np.stack(scores, axis=1)
        assert np.abs(compute_scores(weights, writer.begin(labels, words)) - actual).max() < 1e-3
        drawn = np.random.default_rng(1).integers(0, 2**20, words.size).reshape(words.shape) / 2**20
        chosen = [lesson_16b.find_words(actual[:, i], drawn[:, i], 1) for i in range(transformer.PIECES)]
        assert np.mean(np.stack(chosen, axis=1) == words) > 0.98  # a number may lie at the end of a share
        assert network.launches == 13 * transformer.PIECES
    assert (network.rows, network.pairs) == (3 * 49, 3 * 2 * 4 * 1_225)
    assert network.count_cache_bytes() == 2 * 2 * 49 * 64 * 4


def test_evenly_spaced_numbers_choose_each_word_as_often_as_its_share_says(queue):
    scores = np.random.default_rng(0).normal(size=writer.WORDS).astype(np.float32)
    count = 4_000
    chance = ((np.arange(count) + 0.5) / count).astype(np.float32)
    words = lesson_16b._run_choose(
        opencl.Kernel(lesson_16b.CHOOSE, "choose"), np.tile(scores, (count, 1)), chance, temperature=2
    )
    expected = count * lesson_16b.compute_shares(scores, 2)
    assert np.abs(np.bincount(words, minlength=writer.WORDS) - expected).max() < 1.5


def test_words_say_what_they_show(stored):
    codebook, _ = stored
    words = np.random.default_rng(0).integers(0, writer.WORDS, (5, transformer.PIECES))
    images = writer.draw(words, codebook)
    assert np.array_equal(writer.spell(images, codebook), words)
    assert np.array_equal(images[0, 4:8, 8:12].reshape(-1), codebook[words[0, 9]])  # row 1, column 2 of the pieces


def test_a_codebook_has_a_blank_word_and_then_more_and_more_ink():
    images = np.random.default_rng(0).integers(0, 256, (20, 28, 28), np.uint8)
    codebook = writer.make_codebook(images, seed=0)
    ink = codebook.astype(int).sum(axis=1)
    assert codebook.shape == (64, 16) and ink[0] == 0 and np.all(np.diff(ink) > -16)  # rounded to whole numbers


def test_times_are_noted_for_a_record_and_no_gap_within_the_spread_is_claimed(queue, stored, monkeypatch, tmp_path):
    monkeypatch.setenv(records.RECORD, str(tmp_path / "notes"))
    monkeypatch.setattr(timing, "ENOUGH", 3)
    clock = lesson_16b_clock
    runs = clock.measure_last(queue, stored[1], lesson_16b.ATTEND_NEW, (1, 3))
    noted = {note.label for note in records.read_notes(tmp_path / "notes", "16b")}
    assert len(noted) == len(runs) == 9 and len(clock.tabulate_last(runs).rows) == 5
    slow, fast = (timing.Measurement("", "", seconds * 13) for seconds in ((2.0,), (1.0,)))
    ways = [(way, 3) for way in (clock.RECOMPUTED, "recomputed, again", clock.CACHED, "with the cache, again")]
    clear, unclear = (clock.Runs(zip(ways, (slow, slow, fast, last), strict=True)) for last in (fast, slow))
    assert clock.describe_gain(clear, 3) == "2 times as fast."
    assert clock.describe_gain(unclear, 3).startswith("no claim. ")
    clear.others = 0.25  # explains a factor of 1.33
    assert clock.describe_gain(clear, 3) == "at least 1.5 times as fast."
    clear.others = 0.6
    assert clock.describe_gain(clear, 3).startswith("no claim. Other programs can explain a factor of 2.5")


def predict_by_keras(given):
    """Return the scores that Keras computes with the stored weights, and those after another last word."""
    training.start()
    model = writer.build()
    transformer.write_weights(model, writer.load_writer()[1])
    other = given.copy()
    other[:, -1] = (other[:, -1] + 1) % writer.WORDS
    return model.predict(given, verbose=0), model.predict(other, verbose=0)


@pytest.mark.slow
def test_keras_computes_what_numpy_computes_and_no_later_word_changes_a_score(stored):
    given = writer.begin(np.arange(4), np.random.default_rng(0).integers(0, writer.WORDS, (4, transformer.PIECES)))
    scores, after = processes.run("test_lesson_16b:predict_by_keras", seconds=300, arguments={"given": given}).result
    assert np.abs(scores - compute_scores(stored[1], given)).max() < 1e-3
    assert np.array_equal(scores[:, :-1], after[:, :-1]) and not np.allclose(scores[:, -1], after[:, -1])
