"""Lesson 05's own machinery: its greedy ablation, and the forms of its network on real backends."""

import functools
import itertools
import statistics

import numpy as np
import pytest
from on_backend import seen  # noqa: F401  (a fixture)

from helpers.errors import WorkshopError
from helpers.lessons import lesson_05
from helpers.measure.timing import Measurement


def measured(times, spread=0.01):
    """A `prepare` and a `measure` that know the seconds of each form by the names of its options, and what they did."""
    asked = []

    def prepare(**options):
        return lambda: options

    def measure(ways):
        forms = [way() for way in ways.values()]
        asked.append(forms)
        found = []
        for name, options in zip(ways, forms, strict=True):
            seconds = times[frozenset(options)]
            if isinstance(seconds, BaseException):
                raise seconds
            runs = tuple(seconds + d * spread for d in (-1, -0.5, 0, 0.5, 1))
            found.append(Measurement(name, "made up", runs))
        return tuple(found)

    return prepare, measure, asked


def form(*options):
    return frozenset(options)


def test_a_clear_gain_is_kept_and_the_next_is_tried_on_top_beside_it():
    *how, asked = measured({form(): 1.0, form("a"): 0.8, form("a", "b"): 0.79, form("a", "c"): 0.5})
    candidates = {"first": {"a": 1}, "second": {"b": 2}, "third": {"c": 3}}
    kept, trials = lesson_05.greedy_ablation(*how, candidates)
    assert kept == {"a": 1, "c": 3}
    assert asked == [[{}, {"a": 1}], [{"a": 1}, {"a": 1, "b": 2}], [{"a": 1}, {"a": 1, "c": 3}]]
    assert [(trial.name, trial.verdict) for trial in trials] == [
        ("first", "kept"), ("second", "dropped: no clear gain"), ("third", "kept"),
    ]  # fmt: skip
    assert [(trial.before.median, trial.run.median) for trial in trials] == [(1.0, 0.8), (0.8, 0.79), (0.8, 0.5)]


def test_a_machine_that_slows_down_between_two_trials_keeps_and_drops_nothing():
    drift = itertools.count(1)

    def measure(ways):
        now = next(drift)  # every trial is slower than the one before it, whatever it tries
        return tuple(Measurement(name, "made up", tuple(now + d / 100 for d in range(5))) for name in ways)

    kept, trials = lesson_05.greedy_ablation(lambda **options: None, measure, {name: {name: 1} for name in "abc"})
    assert kept == {} and {trial.verdict for trial in trials} == {"dropped: no clear gain"}


def test_what_is_slower_and_what_lies_within_the_spread_is_dropped():
    *how, _ = measured({form(): 1.0, form("slow"): 2.0, form("same"): 0.9}, spread=0.2)
    kept, trials = lesson_05.greedy_ablation(*how, {"slow": {"slow": 1}, "same": {"same": 1}})
    assert kept == {}
    assert [trial.verdict for trial in trials] == ["dropped: slower", "dropped: no clear gain"]


@pytest.mark.parametrize(
    ("error", "reason"), [(ValueError("no such\noperation"), "no such"), (RuntimeError(), "RuntimeError")]
)
def test_what_is_not_possible_is_told_and_the_others_are_tried(error, reason):
    *how, _ = measured({form(): 1.0, form("a"): error, form("b"): 0.5})
    kept, trials = lesson_05.greedy_ablation(*how, {"broken": {"a": 1}, "better": {"b": 1}})
    assert kept == {"b": 1}
    assert trials[0] == lesson_05.Trial("broken", None, None, f"not possible here: {reason}")


def test_an_interrupt_ends_the_trials():
    *how, _ = measured({form(): 1.0, form("a"): KeyboardInterrupt()})
    with pytest.raises(KeyboardInterrupt):
        lesson_05.greedy_ablation(*how, {"any": {"a": 1}})


def test_a_trial_that_would_not_fit_into_the_budget_is_not_begun(monkeypatch):
    clock = iter(range(0, 1000, 10))  # each trial takes 10 s
    monkeypatch.setattr(lesson_05.time, "perf_counter", lambda: next(clock))
    candidates = {name: {name: 1} for name in "abc"}
    *how, asked = measured({form(): 1.0, form("a"): 0.9, form("a", "b"): 0.8, form("a", "b", "c"): 0.7})
    kept, trials = lesson_05.greedy_ablation(*how, candidates, budget=25)
    assert kept == {"a": 1, "b": 1} and len(asked) == 2
    assert trials[-1] == lesson_05.Trial("c", None, None, "not tried: no time left of 25 s")
    assert lesson_05.greedy_ablation(*how, candidates, budget=30)[0] == {"a": 1, "b": 1, "c": 1}


def test_runs_too_short_to_judge_keep_and_drop_nothing():
    *how, asked = measured({form(): 1.0, form("a"): 0.5, form("b"): 2.0})
    kept, trials = lesson_05.greedy_ablation(*how, {"a": {"a": 1}, "b": {"b": 2}}, judge=False)
    assert kept == {} and asked == [[{}, {"a": 1}], [{}, {"b": 2}]]
    assert {trial.verdict for trial in trials} == {lesson_05.TOO_SHORT}


@pytest.mark.parametrize("place", [{"y": 26, "x": 0}, {"y": 0, "x": -1}])
def test_a_place_that_is_not_there_is_named(place):
    with pytest.raises(WorkshopError, match=rf"(?s)y={place['y']}, x={place['x']}\b.*0 to 25"):
        lesson_05.one_place(np.zeros((28, 28)), np.ones((3, 3)), np.zeros((26, 26)), **place)


@pytest.mark.parametrize(
    "quartiles", [statistics.quantiles, functools.partial(statistics.quantiles, method="inclusive")]
)
def test_every_usual_quartile_decides_the_made_up_timings_alike(quartiles):
    for before, after in lesson_05._timings(np.random.default_rng()):
        low_high = [quartiles(seconds, n=4) for seconds in (before, after)]
        spread, gap = max(q[2] - q[0] for q in low_high), statistics.median(after) - statistics.median(before)
        expected = "no claim" if abs(gap) <= spread else "slower" if gap > 0 else "faster"
        assert lesson_05._decide(before, after) == expected, (before, after)


def test_the_recorded_trainings_are_whole():
    assert {len(accuracies) for accuracies in lesson_05.RECORDED.values()} == {12}


def test_filters_that_answer_to_parts_come_before_points_whole_digits_and_silence():
    maps = np.zeros((2, 4, 20, 20))
    maps[:, 0, 3:11, 3:9] = 1  # 48 places of 400, as a whole digit
    maps[:, 1, 3:5, 3:12] = 1  # 18
    maps[:, 2, 3, 3] = 1
    assert lesson_05.part_filters(maps, 1) == [1] and lesson_05.part_filters(maps, 3) == [0, 1, 2]


# ------------------------------------------------------------------------------------------------------- its network


def test_every_form_answers_and_learns_alike_from_the_same_weights(seen):  # noqa: F811
    forms = seen["forms"]
    assert forms["parameters"] == 1_199_882 and forms["policy"] == "float32" and forms["step"] > 1e-3
    assert len(forms["answers"]) == 4 and len(forms["steps"]) == 2
    for name, gap in forms["answers"].items():
        assert gap < (5e-3 if "bfloat16" in name else 1e-6), name
    for name, gap in forms["steps"].items():
        # A pixel that is the largest of four by a rounding error alone may lose to another in another form.
        assert gap < (0.3 if "bfloat16" in name else 0.03) * forms["step"], name


def test_channels_first_changes_every_shape(seen):  # noqa: F811
    assert seen["forms"]["first"] == [[None, 32, 26, 26], [None, 64, 24, 24], [None, 64, 12, 12]]


def test_the_two_layers_compute_what_those_of_keras_compute_on_odd_sizes_too(seen):  # noqa: F811
    assert max(seen["layers_alone"]["same"]) < 1e-6


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("strides", "Im2colConv2D cannot compute with strides=(2, 2)."),
        ("padding", "Im2colConv2D cannot compute with padding='same'."),
        ("first", "Im2colConv2D cannot compute with data_format='channels_first'."),
        ("size", "SliceMaxPooling2D cannot compute with pool_size=(3, 3)."),
    ],
)
def test_what_the_two_layers_cannot_do_is_refused_when_they_are_made(seen, case, message):  # noqa: F811
    kind, text = seen["layers_alone"]["refused"][case]
    assert kind == "WorkshopError" and text.startswith(message) and "Next: " in text


# ------------------------------------------------------------------------------------------------------- its memory


def test_a_training_that_is_over_leaves_no_graph_with_its_weights_in_tensorflow(seen):  # noqa: F811
    assert not seen["graphs"]
