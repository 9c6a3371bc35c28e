"""helpers.measure.timing: waits for the device, tells the spread, and claims nothing that the spread does not allow."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.measure import timing
from helpers.measure.timing import Measurement


def of(*seconds, label="it", device="some device"):
    return Measurement(label, device, seconds)


def test_every_number_names_its_device_and_its_spread():
    text = str(timing.measure(lambda: None, device="AMD EPYC (PoCL 3.1, CPU)", label="nothing", repeats=5))
    assert text.startswith("nothing: ")
    assert "median of 5 runs" in text
    assert "the middle half spans" in text
    assert text.endswith("on AMD EPYC (PoCL 3.1, CPU)")


def test_warm_up_runs_do_not_count():
    calls = []
    run = timing.measure(lambda: calls.append(1), device="here", repeats=4, warmup=3)
    assert len(calls) == 7
    assert len(run.seconds) == 4


def test_one_run_alone_allows_no_claim():
    assert not timing.is_clear(of(1.0), of(9.0)) and "no claim" in timing.compare(of(1.0), of(9.0))


def test_a_clear_gap_is_stated_with_both_devices():
    slow, fast = of(1.0, 1.01, 1.02, device="A"), of(0.5, 0.5, 0.51, device="B", label="new")
    assert "new is 2 times as fast as it" in timing.compare(slow, fast)
    assert "on A" in timing.compare(slow, fast)
    assert "on B" in timing.compare(slow, fast)
    assert "it takes 2 times as long as new" in timing.compare(fast, slow)


def test_one_device_is_named_once():
    assert "(500 ms beside 1 s on A)" in timing.compare(of(1.0, 1.0, device="A"), of(0.5, 0.5, device="A"))


positive = st.floats(1e-9, 1e3)
runs = st.lists(positive, min_size=3, max_size=20)


@given(runs, runs)
def test_a_claim_needs_a_gap_larger_than_both_spreads(before, after):
    first, second = of(*before), of(*after)
    claimed = "no claim" not in timing.compare(first, second)
    bar = timing.min_spreads(min(len(before), len(after))) * max(first.spread, second.spread)
    assert claimed == (abs(first.median - second.median) > bar)
    assert timing.is_clear(first, second) == timing.is_clear(second, first)


@given(runs, runs, runs, st.booleans())
def test_nothing_is_claimable_that_the_same_work_shows_beside_itself(before, after, again, is_twin_of_both):
    first, second, twin = of(*before), of(*after, label="new"), of(*again)
    one = first if is_twin_of_both else twin
    twins = (one, twin)
    claimed = timing.is_claimable(first, second, twins)
    assert claimed == timing.is_claimable(second, first, twins) == timing.is_claimable(first, second, twins[::-1])
    assert claimed == ("no claim" not in timing.compare(first, second, twins))
    assert not timing.is_claimable(*twins, twins)
    if claimed:
        least = abs(one.median - twin.median) * (timing.APART if timing.is_clear(*twins) else 1)
        assert timing.is_clear(first, second) and abs(first.median - second.median) > least
    if claimed and one is first:  # the twin stands in for the first, on the same side of the second
        assert (first.median > second.median) == (twin.median > second.median)


shares = st.floats(0, 1)


@given(runs, runs, shares, shares)
def test_the_busier_the_machine_the_larger_a_claimed_gap(before, after, less, more):
    first, second = of(*before), of(*after, label="new")
    less, more = sorted((less, more))
    assert timing.is_claimable(first, second, others=0.0) == timing.is_clear(first, second)
    assert timing.is_claimable(first, second, others=less) >= timing.is_claimable(first, second, others=more)
    assert not timing.is_claimable(first, second, others=1.0)
    claimed = timing.is_claimable(first, second, others=more)
    assert claimed == ("no claim" not in timing.compare(first, second, others=more))
    if claimed and more > timing.BUSY:
        assert timing.find_factor(first, second) * (1 - more) > 1


def test_a_processor_that_others_use_alone_explains_every_gap():
    assert timing.describe_slowdown(timing.BUSY) == ""
    assert "2.5 times as long, so only larger gaps are claimed" in " ".join(timing.describe_slowdown(0.6).split())
    for said in (timing.describe_slowdown(1.0), timing.compare(of(1.0, 1.0), of(9.0, 9.0), others=1.0)):
        assert "every" in said and "inf" not in said


@pytest.mark.parametrize(
    ("after", "gain", "says"),
    [
        (0.1, "at least 4 times as fast", "new is at least 4 times as fast as it"),
        (0.36, "at least 1.11 times as fast", "new is at least 1.1 times as fast as it"),
        (0.39, "at least 1.03 times as fast", "new is faster than it"),
        (0.5, "no claim", "a factor of 2.5, and the gap is 2.0"),
        (2.6, "at least 1.04 times as long", "new is slower than it"),
        (5.0, "at least 2 times as long", "new takes at least 2 times as long as it"),
    ],
)
def test_beside_other_programs_a_gap_is_at_least_what_they_cannot_explain(after, gain, says):
    first, second = of(1.0, 1.0, 1.0), of(after, after, after, label="new")
    assert timing.describe_gain(first, second, others=0.6) == gain
    assert says in " ".join(timing.compare(first, second, others=0.6).split())


def steady(median, label="it"):
    """13 runs whose middle half spans 6 % of the median."""
    return of(*(median * (1 + step / 100) for step in range(-6, 7)), label=label)


@pytest.mark.parametrize(
    ("after", "again", "is_claimed"),
    [
        (0.8, 1.0, True),
        (0.8, 1.04, True),
        (0.8, 1.2, False),  # the twins differ clearly
        (0.93, 1.0, True),
        (0.96, 1.0, False),  # the gap is not clear
    ],
)
def test_a_gap_is_claimed_if_twins_show_none_as_large(after, again, is_claimed):
    first, second, twin = steady(1.0), steady(after, "new"), steady(again)
    assert timing.is_claimable(first, second, (first, twin)) == is_claimed
    assert ("no claim" not in timing.compare(first, second, (first, twin))) == is_claimed
    wild = of(*(0.4, 1.6) * 6, 1.3), of(*(0.4, 1.6) * 6, 1.0)  # their gap, 0.3, is not clear, and larger
    assert not timing.is_clear(*wild) and not timing.is_claimable(first, second, wild)


@pytest.mark.parametrize(("again", "is_claimed"), [(0.92, False), (0.935, True)])
def test_a_gap_ten_times_that_of_twins_that_differ_clearly_is_claimed(again, is_claimed):
    first, second, twin = steady(1.0), steady(0.3, "new"), steady(again)
    assert timing.is_clear(first, twin)
    assert timing.is_claimable(first, second, (first, twin)) == is_claimed
    assert ("no claim" not in timing.compare(first, second, (first, twin))) == is_claimed


@pytest.mark.parametrize("runs", [3, 7, 13, 21])
@pytest.mark.parametrize("noise", ["normal", "exponential", "lognormal", "seldom disturbed"])
def test_of_two_timings_of_the_same_work_one_in_a_hundred_is_claimed_to_differ(runs, noise):
    rng = np.random.default_rng(runs)

    def timings():
        shape = (2000, runs)
        draw = {"normal": rng.normal, "exponential": rng.standard_exponential, "lognormal": rng.lognormal}
        if noise in draw:
            return 10 + draw[noise](size=shape)
        return 10 + rng.normal(0, 0.2, shape) + (rng.random(shape) < 0.15) * rng.exponential(3, shape)

    claims = sum(timing.is_clear(of(*before), of(*after)) for before, after in zip(timings(), timings(), strict=True))
    assert claims <= 0.016 * 2000  # 1 %, and three standard deviations of the count
    assert timing.min_spreads(runs) == max(1, 13 / runs)


@given(st.floats(1e-9, 1e6))
def test_a_duration_keeps_its_value_in_a_unit_that_fits(seconds):
    number, unit = timing.duration(seconds).split(" ")
    size = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}[unit]
    assert float(number) * size == pytest.approx(seconds, rel=6e-3)
    assert unit == "s" or float(number) <= 1000


def test_an_opencl_queue_is_waited_for(queue):
    import pyopencl as cl

    from helpers.devices import opencl

    source = """__kernel void slow(__global float *x, const int rounds) {
        float v = x[get_global_id(0)];
        for (int r = 0; r < rounds; r++) v = v * 0.999f + 0.001f;
        x[get_global_id(0)] = v; }"""
    kernel = cl.Kernel(opencl.build(queue.context, source), "slow")
    x = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, size=4 * 4096)
    events = []

    def job():
        events.append(kernel(queue, (4096,), None, x, np.int32(20_000)))

    timing.measure(job, device="here", on=queue, repeats=3, warmup=1)
    assert all(event.command_execution_status == cl.command_execution_status.COMPLETE for event in events)
    last = []  # the same through the event that the job returns, without naming the queue

    def job_with_event():
        last.append(kernel(queue, (4096,), None, x, np.int32(20_000)))
        return last[-1]

    timing.measure(job_with_event, device="here", repeats=3)
    assert last[-1].command_execution_status == cl.command_execution_status.COMPLETE


def test_jax_arrays_are_waited_for():
    jax = pytest.importorskip("jax")
    matrix = jax.numpy.ones((1500, 1500))
    product = jax.jit(lambda m: m @ m @ m)
    product(matrix).block_until_ready()
    kept = []
    timing.measure(lambda: kept.append(product(matrix)) or kept[-1], device="here", repeats=3)
    assert kept[-1].is_ready()


@pytest.mark.parametrize(
    ("candidate", "says"), [(1.03, "new is 3 % slower than it"), (0.96, "new is 4 % faster than it"), (0.5, "2 times")]
)
def test_a_small_gain_is_told_in_percent(candidate, says):
    assert says in timing.compare(of(1.0, 1.0, 1.0), of(candidate, candidate, candidate, label="new"))


def test_a_way_is_woken_just_before_its_timed_run():
    called = []
    ways = {name: lambda name=name: called.append(name) for name in "ab"}
    runs = timing.measure_interleaved(ways, "a device", repeats=3, warmup=1, wake=True)
    assert called == 4 * ["a", "a", "b", "b"]
    assert [len(run.seconds) for run in runs.values()] == [3, 3]
