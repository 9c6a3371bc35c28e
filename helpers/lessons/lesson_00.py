"""Lesson 00, Check your setup: the checks of its exercises, its figures, its machinery."""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from helpers.compute import devices, products
from helpers.compute.devices import Answer, Device
from helpers.compute.host import usable_cpus
from helpers.doctor import monitor
from helpers.doctor.monitor import Samples
from helpers.errors import WorkshopError
from helpers.judge import checks
from helpers.measure.plots import BLUE, GREY, ORANGE, figure, show

CONTROL = {"idle_seconds": 0.7, "busy_seconds": 0.7, "interval": 0.1}  # how each function of exercise 1 is watched
LONGER = {"idle_seconds": 1.0, "busy_seconds": 3.0, "interval": 0.3}  # once more where a busy machine may hide its work
SHORTEST, LONGEST = 0.02, 0.75  # seconds: what "about a tenth of a second" is, on a busy machine too
PATIENCE = 20.0  # seconds after which a function is taken for endless


@checks.verdict
def check_controls(wait: Callable[[], object], fool: Callable[[], object]) -> Iterator[str]:
    """Lesson 00, exercise 1: a wait that does not show, and work without a device's task that does."""
    watcher = monitor.ProcessShare(cpus=1)
    judged = []
    for function, wanted, expected in ((wait, "wait", False), (fool, "fool", True)):
        if not callable(function):
            raise checks.NotYet(f"expected a function, came {function!r}; hand over `{wanted}`, not `{wanted}()`.")
        asked, name = Load.calls, getattr(function, "__name__", wanted)
        with _stopped_when_late(name):
            seconds = _seconds_of_a_call(function, name)
            if Load.calls == asked and not SHORTEST <= seconds <= LONGEST:
                took = f"returned after {seconds:.3f} s" if seconds < SHORTEST else f"lasted {seconds:.1f} s"
                raise checks.NotYet(f"{name}() {took}; it must last about a tenth of a second.")
            calls, verdict = _watched(watcher, function, CONTROL)
            if expected and not verdict.used:
                calls, verdict = _watched(watcher, function, LONGER)
        tried = f"{name}(), called {calls:,} times while the processor was watched,"
        if Load.calls > asked:
            raise checks.NotYet(f"{tried} asked a device for {Load.calls - asked} slices of work; expected none.")
        if verdict.used is not expected:
            wanted = "Used" if expected else "Not shown"
            raise checks.NotYet(f"{tried} expected the verdict `{wanted}`, came: {verdict.sentence}")
        judged.append(f"{name}(): {verdict.sentence.partition(':')[0]}")
    yield "; ".join(judged)


def _seconds_of_a_call(function: Callable[[], object], name: str) -> float:
    """Time the first call; if it was too short or too long, two more, of which the quickest counts."""
    quickest = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        if function() is ...:
            raise checks.NotDone(f"{name}() is as it was handed out.")
        quickest = min(quickest, time.perf_counter() - start)
        if SHORTEST <= quickest <= LONGEST:
            break
    return quickest


def _watched(
    watcher: monitor.Monitor, function: Callable[[], object], how: dict[str, float]
) -> tuple[int, monitor.Verdict]:
    """Watch the processor while a learner's function runs again and again: the calls, and the verdict."""
    calls = 0

    def work() -> None:
        nonlocal calls
        calls += 1
        function()

    verdict = monitor.watch(watcher, work, **how).verdict()
    return calls, verdict


@contextlib.contextmanager
def _stopped_when_late(name: str) -> Iterator[None]:
    """Stop a learner's function that does not return, say what stopped it, and drop what it prints again and again."""
    import _thread
    import threading

    late = threading.Event()

    def stop() -> None:
        late.set()
        _thread.interrupt_main()

    timer = threading.Timer(PATIENCE, stop)
    timer.start()
    try:
        with Path(os.devnull).open("w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):
            yield
    except KeyboardInterrupt:
        if not late.is_set():
            raise
        why = f"{name}() was still running after {PATIENCE:g} s. It is called again and again: let it return soon."
        raise checks.NotYet(why) from None
    except (checks.NotDone, checks.NotYet):
        raise
    except Exception as error:
        raise checks.NotYet(f"{name}() stopped with {type(error).__name__}: {error}") from None
    finally:
        timer.cancel()


@checks.verdict
def check_percentages(learner: Callable[[list, float, int], tuple[float, float]]) -> Iterator[str]:
    """Lesson 00, exercise 2: the share of the time in which a kernel ran, and the share of the possible work."""

    def right(kernels: list, seconds: float, lanes: int) -> tuple[float, float]:
        running = sum(end - start for start, end, _ in kernels)
        work = sum((end - start) * min(items, lanes) for start, end, items in kernels)
        return 100 * running / seconds, 100 * work / (seconds * lanes)

    def cases(rng: np.random.Generator) -> list[tuple]:
        """Sixteenths of a second and powers of two, so that no message shows the rounding of a float."""
        plain = [([(0.0, 1.0, 1)], 1.0, 4), ([(0.0, 0.25, 1), (0.5, 1.0, 8)], 1.0, 4), ([(0.25, 0.75, 3)], 2.0, 4)]
        drawn = []
        for _ in range(20):
            seconds, count = float(rng.choice([0.5, 1.0, 2.0])), int(rng.integers(1, 6))
            ends = (seconds * np.sort(rng.choice(17, 2 * count, replace=False)) / 16).tolist()
            items = rng.choice([1, 7, 64, 1000, 4096, 100_000], count).tolist()
            drawn.append((list(zip(ends[::2], ends[1::2], items, strict=True)), seconds, int(rng.choice([64, 4096]))))
        return [*plain, *drawn, ([], 1.0, 4)]

    yield checks.judge_function(learner, right, cases)


def _quarters(values: list[float]) -> np.ndarray:
    """The 25th and the 75th percentile by every recipe of NumPy and of Python's statistics, a row each."""
    recipes = "inverted_cdf averaged_inverted_cdf closest_observation interpolated_inverted_cdf hazen weibull linear"
    recipes += " median_unbiased normal_unbiased lower higher midpoint nearest"
    rows = [np.percentile(values, [25, 75], method=recipe) for recipe in recipes.split()]
    return np.array([*rows, statistics.quantiles(values, n=4)[::2]])


@checks.verdict
def check_is_used(learner: Callable[[list, list], bool], samples: Samples | None = None) -> Iterator[str]:
    """Lesson 00, exercise 3: is the lower quartile of the busy samples more than 5 above the idle ones' upper one.

    Recipes for percentiles differ a little; every case has the same answer by all of them.

    Args:
        learner: the learner's function.
        samples: what `monitor.watch` saw on the learner's own device; a right function is applied to it, too.
    """

    def gaps(idle: list, busy: list) -> tuple[float, float]:
        """The smallest and the largest gap, whichever recipe was taken."""
        low, high = _quarters(busy)[:, 0], _quarters(idle)[:, 1]
        return min(low) - max(high), max(low) - min(high)

    def right(idle: list, busy: list) -> bool:
        return len(idle) >= 3 and len(busy) >= 3 and bool(gaps(idle, busy)[0] > 5)

    def cases(rng: np.random.Generator) -> list[tuple]:
        plain = [([1, 2, 3], [90, 95, 99]), ([90, 95, 99], [1, 2, 3]), ([1, 70, 99], [60, 70, 80])]
        few = [([], []), ([], [90, 95, 99]), ([1, 2, 3], []), ([1, 2, 3], [90, 95]), ([1, 2], [90, 95, 99])]
        few += [([1, 2], [*range(90, 100)]), ([*range(1, 11)], [90, 95])]  # neither the sum nor the product is small
        close = [([4] * 8, [9] * 8), ([4] * 8, [10] * 8), ([0] * 8, [3] * 8), ([9] * 8, [4] * 8), ([10] * 8, [4] * 8)]
        close += [([4] * 8, [9.25] * 8)]  # 5 if rounded
        skewed = [
            ([0] * 9 + [99], [8] * 10),
            ([0] * 4 + [50] * 4, [40] * 4 + [90] * 4),
            ([0] * 12, [2] * 2 + [90] * 10),
        ]
        near = [([0] * 40, [0] * 9 + [90] * 31), ([0] * 31 + [50] * 9, [20] * 40)]  # the 20th and 80th would differ
        drawn = [(rng.integers(0, 60, 12).tolist(), rng.integers(30, 100, 12).tolist()) for _ in range(60)]
        agreed = [case for case in drawn if gaps(*case)[0] > 5 or gaps(*case)[1] <= 5]
        return plain + few + close + skewed + near + agreed

    yield checks.judge_function(learner, right, cases)
    if samples is not None:
        idle, busy = samples.settled("utilisation", "idle"), samples.settled("utilisation", "busy")
        own = bool(learner(idle, busy))
        yield f"your own device, {len(idle)} idle and {len(busy)} busy samples: {own}"


# ------------------------------------------------------------------------------------------------------ its figures


def idle_and_busy(samples: Samples, device: str) -> None:
    """Show how far a device was used while idle and while the lesson kept it busy.

    Args:
        samples: what `monitor.watch` saw; without a utilisation there is nothing to draw, and it says so.
        device: the name of the device.
    """
    taken = [
        (second, percent, phase)
        for second, percent, phase in zip(samples.times, samples.utilisation, samples.phases, strict=True)
        if percent is not None
    ]
    if not taken:
        print("no figure:", samples.problem or samples.description)
        return
    with figure(7.5, 3.0) as (drawn, axes):
        for phase, colour, marker in (("idle", GREY, "o"), ("busy", BLUE, "s")):
            points = [(second, percent) for second, percent, was in taken if was == phase]
            axes.plot(
                *(zip(*points, strict=True) if points else ((), ())), color=colour, marker=marker, ms=4, label=phase
            )
        axes.set(xlabel="time (s)", ylabel="utilisation (%)", title=device)
        axes.set_ylim(-5, max([115, *(percent for _, percent, _ in taken)]))
        axes.legend(loc="upper left", ncols=2)
    show(drawn, f"{device}: utilisation in percent over time, idle first and then busy. {samples.verdict()}")


def moved_to_cpu(answers: Iterable[Answer], device: Device, watcher: monitor.Monitor) -> None:
    """Show what a monitor sees of a GPU whose work moved to the CPU, and print the verdict.

    On a GPU with a monitor it is measured: the CPU works, the GPU is watched. Elsewhere it is drawn, and the title says
    so.

    Args:
        answers: what `helpers.compute.devices.find` returned.
        device: the device that the lesson uses.
        watcher: what watches it.
    """
    answers = list(answers)
    there = any(one.kind == "cpu" and one.framework in LOADS for answer in answers for one in answer.devices)
    if device.kind != "cpu" and watcher and there:
        work = keep_busy(devices.pick(answers, kind="cpu"))
        samples = monitor.watch(watcher, work, idle_seconds=1 + watcher.lag, busy_seconds=2 + 2 * watcher.lag)
        title = f"{device}, while the CPU does the work"
    else:
        count, nothing = 40, (None,) * 40
        samples = Samples(
            "an imagined tool",
            "an imagined GPU",
            times=tuple(0.1 * n for n in range(count)),
            phases=("idle",) * 15 + ("busy",) * 25,
            utilisation=tuple(1.0 if n % 7 == 3 else 0.0 for n in range(count)),
            power=nothing,
        )
        title = "Drawn, not measured: a GPU, while the CPU does the work"
    idle_and_busy(samples, title)
    print(samples.verdict())


def busy_and_work(percent: Mapping[str, list[float]], rates: Mapping[str, float], device: Device | str) -> None:
    """Draw for each load how busy a monitor called the device, beside the work that was done.

    Args:
        percent: for each load the samples of the utilisation; empty where there is no monitor.
        rates: for each load multiply-adds a second.
        device: the device, or its name. For an OpenCL CPU outlines show what an otherwise idle one would be called.
    """
    cores = usable_cpus() if isinstance(device, Device) and (device.kind, device.framework) == ("cpu", "opencl") else 0
    names, middle = list(rates), {name: statistics.median(values) for name, values in percent.items() if values}
    most = max(rates.values())
    with figure(7.5, 0.42 * len(names) + 1.6, ncols=2, sharey=True) as (drawn, (left, right)):
        said_below = "utilisation (%), median"
        left.barh(range(len(names)), [middle.get(name, 0) for name in names], color=GREY)
        if cores:  # one work-item is computed by one core, thousands by all of them
            said_below += "\ndashed: expected if no other program ran"
            alone = [100 / cores] + [100] * (len(names) - 1)
            left.barh(range(len(names)), alone, color="none", edgecolor="black", ls="--", lw=1)
        right.barh(range(len(names)), [rates[name] / 1e9 for name in names], color=BLUE)
        for place, name in enumerate(names):
            said = f"{middle[name]:.0f} %" if name in middle else "no monitor"
            for axes, value, text in (
                (left, middle.get(name, 0), said),
                (right, rates[name] / 1e9, f"{rates[name] / 1e9:.3g} ({100 * rates[name] / most:.0f} %)"),
            ):
                axes.annotate(text, (value, place), xytext=(5, 0), textcoords="offset points", va="center", fontsize=9)
        left.set(yticks=range(len(names)), yticklabels=names, xlabel=said_below, xlim=(0, 135))
        left.set_title("what the monitor says", fontsize=10)
        right.set(xlabel="billions of multiply-adds a second", xlim=(0, 1.55 * most / 1e9))
        right.set_title("what was computed (share of the most)", fontsize=10)
        left.set_ylim(len(names) - 0.5, -0.5)
        for axes in (left, right):
            axes.grid(axis="y", visible=False)
        drawn.suptitle(f"Busy is not the same as fast: {device}", fontsize=11, x=0.01, ha="left")
    said = {name: f"{middle[name]:.0f} %" if name in middle else "unknown" for name in names}
    words = "; ".join(f"{name}: {said[name]}, {rates[name] / 1e9:.3g} billion" for name in names)
    expected = f" Dashed: {100 / cores:.0f} % expected for the first, 100 % for the others." if cores else ""
    show(drawn, f"Utilisation, and multiply-adds a second, on {device}. {words}.{expected}")


def both_full(lanes: int = 16) -> None:
    """Draw two seconds on an imagined GPU, which a tool that counts time calls the same.

    Args:
        lanes: how many work-items the GPU computes at the same moment.
    """
    cards = {"one work-item": 1, "a work-item for every lane": lanes}
    with figure(7.5, 2.7, ncols=2, sharey=True) as (drawn, panels):
        for axes, (name, used) in zip(panels, cards.items(), strict=True):
            for lane in range(lanes):
                colour = ORANGE if lane < used else "white"
                axes.barh(lane, 1, height=0.8, color=colour, edgecolor=GREY, lw=0.5)
            axes.set_title(f"{name}:\nutilisation 100 %, capacity {100 * used / lanes:.0f} %", fontsize=10)
            axes.set(xlabel="time (s)", xlim=(0, 1), ylim=(-0.7, lanes - 0.3))
            axes.grid(visible=False)
        panels[0].set(ylabel=f"lanes ({lanes})", yticks=[])
        drawn.suptitle("Drawn, not measured: a kernel runs all the time in both", fontsize=11, x=0.01, ha="left")
    alt = f"A GPU with {lanes} lanes for one second. Left: one lane is in use all the time. Right: all of them are."
    show(drawn, f"{alt} A kernel runs all the time in both, so a tool that counts time says 100 % for both.")


# ---------------------------------------------------------------------------------------------------- its machinery


MATRIX = 1536  # rows and columns, float32: 9 MiB, and 3.6 billion multiply-adds for a product
SLICE = 0.1  # seconds that one slice of work should take, so that a load can end in time
CHAINS = 4  # sums that a work-item continues at the same time, in vectors of 16: 64 numbers

# Multiply and add in registers: no memory traffic, all arithmetic. TYPE is float or float16.
MULTIPLY_ADD = """
__kernel void multiply_add(__global TYPE *x, const int rounds) {
    TYPE v[CHAINS];
    for (int c = 0; c < CHAINS; c++) v[c] = x[get_global_id(0)] + c;
    for (int r = 0; r < rounds; r++)
        for (int c = 0; c < CHAINS; c++) v[c] = v[c] * 0.999f + 0.001f;
    for (int c = 0; c < CHAINS; c++) x[get_global_id(0)] += v[c];
}
"""


class Load:
    """Work for a device. Each call does one slice of about a tenth of a second, and waits until it is done.

    Args:
        run: does one slice.
        operations: how many multiply-adds are in a slice.
    """

    calls = 0  # of every load in this process: has somebody asked a device for work?

    def __init__(self, run: Callable[[], None], operations: float) -> None:
        self._run, self._operations = run, operations
        self._done = self._seconds = 0.0

    def __call__(self) -> None:
        """Do one slice."""
        Load.calls += 1
        start = time.perf_counter()
        self._run()
        self._seconds += time.perf_counter() - start
        self._done += self._operations

    @property
    def rate(self) -> float:
        """Multiply-adds a second, over all slices so far."""
        return self._done / self._seconds if self._seconds else 0.0


def loads(device: Device) -> dict[str, Load]:
    """Return loads that leave a device nearly empty or fill it, each under a name that says how; the fullest last.

    Args:
        device: one of those that `helpers.compute.devices.find` lists.

    Raises:
        WorkshopError: the workshop has no load for this framework.
    """
    if device.framework not in LOADS:
        raise WorkshopError(f"There is no load for {device.framework}.", next=f"Choose a device of {', '.join(LOADS)}.")
    return LOADS[device.framework](device)


def keep_busy(device: Device) -> Load:
    """Return the fullest of the `loads`: a call keeps `device` busy for about a tenth of a second.

    Args:
        device: one of those that `helpers.compute.devices.find` lists.

    Raises:
        WorkshopError: the workshop has no load for this framework.
    """
    return list(loads(device).values())[-1]


def _opencl(device: Device) -> dict[str, Load]:
    import pyopencl as cl

    from helpers.compute import opencl

    platform, number = map(int, device.identifier.split(":"))
    chosen = cl.get_platforms()[platform].get_devices()[number]
    context = cl.Context([chosen])
    queue = cl.CommandQueue(context)
    many = 4096 * chosen.max_compute_units
    x = cl.Buffer(context, cl.mem_flags.READ_WRITE, size=64 * many)  # 16 floats for each work-item
    cl.enqueue_fill_buffer(queue, x, np.float32(0), 0, 64 * many)

    def load(items: int, dtype: str, chains: int, numbers: int) -> Load:
        source = f"#define TYPE {dtype}\n#define CHAINS {chains}\n{MULTIPLY_ADD}"
        kernel = cl.Kernel(opencl.build(context, source), "multiply_add")

        def run(rounds: int) -> None:
            kernel(queue, (items,), None, x, np.int32(rounds)).wait()

        rounds = 1
        run(rounds)  # compiles
        while True:  # a fast GPU needs thousands of times the rounds of a laptop's processor, a simulator one
            start = time.perf_counter()
            run(rounds)
            if time.perf_counter() - start > SLICE / 4 or rounds > 10**8:
                break
            rounds *= 4

        def slice_of_work() -> None:
            for _ in range(4):
                run(rounds)

        return Load(slice_of_work, 4.0 * rounds * items * numbers)

    return {
        "1 work-item": load(1, "float", 1, 1),
        f"{many:,} work-items": load(many, "float", 1, 1),
        f"{many:,} work-items,\nvectors of 16": load(many, "float16", CHAINS, 16 * CHAINS),
    }


def _products(product: Callable[[int], Callable[[], None]], largest: int = MATRIX) -> dict[str, Load]:
    """Loads of matrix products: `product` makes for a size a function that multiplies once and waits."""

    def load(size: int) -> Load:
        once = product(size)
        once()  # compiles, and writes log lines if it has any
        start = time.perf_counter()
        once()
        times = max(1, int(SLICE / (time.perf_counter() - start)))

        def slice_of_work() -> None:
            for _ in range(times):
                once()

        return Load(slice_of_work, float(times) * size**3)

    return {f"products of\n{size:,} x {size:,}": load(size) for size in (1, largest)}


def _tensorflow(device: Device) -> dict[str, Load]:
    from helpers.compute.quiet import caught_stderr

    def product(size: int) -> Callable[[], None]:
        with tf.device(device.identifier):
            matrix = tf.random.uniform((size, size))

        def once() -> None:
            with tf.device(device.identifier):
                (matrix @ matrix)[0, 0].numpy()

        return once

    with caught_stderr():
        import tensorflow as tf

        return _products(product)


def _jax(device: Device) -> dict[str, Load]:
    import jax

    kind, number = device.identifier.split(":")
    chosen = jax.devices(kind)[int(number)]
    multiply = jax.jit(lambda m: m @ m)

    def product(size: int) -> Callable[[], None]:
        matrix = jax.device_put(jax.numpy.ones((size, size), "float32"), chosen)

        def once() -> None:
            multiply(matrix).block_until_ready()

        return once

    return _products(product)


def _torch(device: Device) -> dict[str, Load]:
    import torch

    def product(size: int) -> Callable[[], None]:
        matrix = torch.rand(size, size, device=device.identifier)

        def once() -> None:
            (matrix @ matrix)[0, 0].item()

        return once

    return _products(product)


def _onnxruntime(device: Device) -> dict[str, Load]:
    session = products.onnx_session(device.identifier)

    def product(size: int) -> Callable[[], None]:
        matrix = np.ones((size, size), np.float32)

        def once() -> None:
            session.run(None, {"a": matrix, "b": matrix})

        return once

    return _products(product)


def _webgpu(device: Device) -> dict[str, Load]:
    from helpers.compute import webgpu

    opened = webgpu.request_device(webgpu.adapters()[int(device.identifier)])

    def product(size: int) -> Callable[[], None]:
        kernel = webgpu.Kernel(opened, webgpu.MATRIX_PRODUCT)
        matrices = [np.ones((size, size), np.float32)] * 3 + [np.full(4, size, np.uint32)]
        group = kernel.bind({number: webgpu.buffer(opened, matrix) for number, matrix in enumerate(matrices)})

        def once() -> None:
            kernel.submit(group, (-(-size // 16), -(-size // 16)))
            webgpu.wait(opened)

        return once

    return _products(product, 256 if device.kind == "cpu" else MATRIX)  # a software adapter would take 20 s for MATRIX


LOADS = {"opencl": _opencl, "tensorflow": _tensorflow, "jax": _jax, "torch": _torch}
LOADS |= {"onnxruntime": _onnxruntime, "webgpu": _webgpu}
