"""Lesson 01, Add vectors with OpenCL: its checks and its figures."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING
from unittest import mock

import numpy as np

from helpers.devices import opencl
from helpers.devices.kernel_text import without_comments
from helpers.judge import canaries, checks, kernel_checks, opencl_recorder
from helpers.judge.checks import NotDone, NotYet
from helpers.judge.trace import Trace
from helpers.measure.plots import BLUE, GREEN, GREY, PINK, RED, SKY, figure, show

if TYPE_CHECKING:
    import pyopencl as cl
    from matplotlib.axes import Axes

H100 = ("NVIDIA H100 (published)", 132, 128)  # its compute units and the lanes of each; docs of NVIDIA's Hopper
UNITS_A_ROW = 22  # compute units drawn side by side
GROUP_COLORS = (SKY, GREEN, PINK)  # none that could be taken for RED, which marks what lies outside
NO_LOOP = (
    "No loop is needed: the device starts the kernel once for each element, and `get_global_id(0)` tells which one."
)
ROUNDS = 8  # of loops that a work-item may go: a loop over three neighbors is right, one over all elements is not
PRECISION = 2e-6  # some ten times what three float32 operations lose, a fifth of what 0.33333f loses
NEARBY = 3  # how many elements beyond either end are drawn

# The solution of exercise 2, which is launched unless the learner has a right one.
ADD = """
__kernel void add(__global const float *a, __global const float *b, __global float *c, const int n) {
    int i = get_global_id(0);
    if (i < n) {
        c[i] = a[i] + b[i];
    }
}
"""


# ------------------------------------------------------------------------------------------------------- its checks


@checks.print_verdict
def check_add(source: str) -> Iterator[str]:
    """Lesson 01, exercise 1: `c[i] = a[i] + b[i]` for as many work-items as elements."""
    yield checks.judge_in_subprocess(judge_add, source=source)


def judge_add(source: str) -> str:
    """Judge the kernel of exercise 1, which knows no n: by traces of launches without surplus work-items."""
    kernel = kernel_checks.build(source, "add", about_loops=NO_LOOP)
    kernel_checks.expect_parameters(kernel, ("float[]", "float[]", "float[]"))
    _refuse_shared_loop(kernel)
    for n, group in [(8, 4), (3, 1), (192, 64), (320, 64)]:  # the last is beyond an index of 8 bits
        launch = f"{n} elements, {n} work-items in groups of {group}"
        a, b = kernel_checks.make_generator().normal(size=(2, n)).astype(np.float32)
        traced = kernel_checks.record(kernel, launch, n, group, [a, b, np.full(n, np.nan, np.float32)])
        kernel_checks.expect_writes(traced, launch, kernel)
        kernel_checks.refuse_faults(traced, launch)
        kernel_checks.refuse_overwork(traced, launch, most=1)
        kernel_checks.refuse_loops(traced, launch, ROUNDS, NO_LOOP)
        for given, before, after in zip("ab", (a, b), traced.arrays, strict=False):
            if not np.array_equal(before, after):
                raise NotYet(f"{launch}: the kernel changed its input {given}; it may only write c.")
        _compare_sums(a, b, traced.arrays[2], launch)
    n = canaries.SHORT + kernel_checks.LOCAL_SIZE  # beyond what an index of 16 bits can reach
    a, b = kernel_checks.make_generator().normal(size=(2, n)).astype(np.float32)
    bits = kernel_checks.run_guarded(kernel, {"a": a, "b": b}, {}, n, n, kernel_checks.LOCAL_SIZE, canaries.OUTSIDE)
    _compare_sums(a, b, bits.view(np.float32), f"{n:,} work-items in groups of {kernel_checks.LOCAL_SIZE}")
    return f"5 launches of as many work-items as elements, 3 to {n:,}, on {opencl.name(kernel.device)}"


def _refuse_shared_loop(kernel: opencl.Kernel, *count: np.int32) -> None:
    """Refuse a kernel whose work-items go round a loop and write elements of each other.

    It is Python's loop, written into the kernel. Alone, the message about the race would not say so.

    Args:
        kernel: takes two inputs and an output of 8 floats.
        count: the 8 elements, if the kernel has a parameter for their number.
    """
    launch = "8 elements, 8 work-items in groups of 4"
    traced = kernel_checks.record(kernel, launch, 8, 4, [*np.ones((3, 8), np.float32), *count])
    if max(traced.loop_rounds, default=0) > 1 and not traced.outside:
        for race in traced.races():
            raise NotYet(f"{launch}: {race}. {NO_LOOP}")


def _compare_sums(a: np.ndarray, b: np.ndarray, c: np.ndarray, launch: str) -> None:
    """Refuse the first element of c that is not a + b; what the launch left unwritten is not a number."""
    for i in np.flatnonzero(~np.isclose(c, a + b, rtol=1e-5, atol=1e-5))[:1]:
        actual = "nothing, or what depends on what c held before" if np.isnan(c[i]) else f"{c[i]:.6g}"
        given = f"a[{i}] = {a[i]:.6g}, b[{i}] = {b[i]:.6g}"
        raise NotYet(f"{launch}, element {i} ({given}): expected {a[i] + b[i]:.6g}, came {actual}.")


@checks.print_verdict
def check_guard(source: str) -> Iterator[str]:
    """Lesson 01, exercise 2: the same kernel with a guard, for whole work-groups."""
    yield checks.keep_right("add", source, checks.judge_in_subprocess(judge_guard, source=source))


def judge_guard(source: str) -> str:
    """Judge the kernel of exercise 2; called in a subprocess."""
    kernel = kernel_checks.build(source, "add", about_loops=NO_LOOP)
    kernel_checks.expect_parameters(kernel, ("float[]", "float[]", "float[]", "int"))
    _refuse_shared_loop(kernel, np.int32(8))
    return _judge_shared_work(kernel, 2, lambda a, b: a + b, "01.2", most=1)


def _judge_shared_work(
    kernel: opencl.Kernel, inputs: int, reference: Callable[..., np.ndarray], exercise: str, most: int, radius: int = 0
) -> str:
    """Judge a kernel's results, and that its work-items share the work; return what was tried.

    Args:
        kernel: takes the inputs, the output, and `const int n`.
        inputs: how many arrays of floats it reads.
        reference: given them, returns the right output, float32.
        exercise: such as "01.2".
        most: how many elements a work-item may write.
        radius: how many neighbors on each side an output depends on.
    """
    closely = functools.partial(_judge_closely, kernel, inputs, reference, most)
    return kernel_checks.judge_kernel(
        kernel, ("float[]",) * inputs, reference, radius, exercise=exercise, before_longest=closely
    )


def _judge_closely(kernel: opencl.Kernel, inputs: int, reference: Callable[..., np.ndarray], most: int) -> None:
    """Refuse a kernel with the right results whose work-items do the work of others, or that is less exact than float.

    The arguments are those of `_judge_shared_work`.
    """
    n, group = 137, kernel_checks.LOCAL_SIZE
    items = -(-n // group) * group
    launch = kernel_checks.describe_launch({"n": n}, [items], [group])
    given = list(kernel_checks.make_generator().uniform(1, 2, (inputs, n)).astype(np.float32))
    traced = kernel_checks.record(kernel, launch, items, group, [*given, np.zeros(n, np.float32), np.int32(n)])
    kernel_checks.refuse_overwork(traced, launch, most)
    kernel_checks.refuse_loops(traced, launch, ROUNDS, NO_LOOP)
    expected, actual = reference(*given), traced.arrays[-1]
    for i in np.flatnonzero(~np.isclose(actual, expected, rtol=PRECISION, atol=0))[:1]:
        rounded = re.search(r"\b0?\.3{3,}f?\b", without_comments(kernel.source))
        hint = f" `{rounded.group()}` is not a third: divide by `3.0f`." if rounded else ""
        raise NotYet(f"{launch}, element {i}: expected {expected[i]:.8g}, came {actual[i]:.8g}.{hint}")


@checks.print_verdict
def check_launch(launch: Callable[..., object]) -> Iterator[str]:
    """Lesson 01, exercise 3: the launch of a kernel for any number of elements and any size of groups; none is run."""
    import pyopencl as cl

    sizes = [(10, 4), (12, 4), (3, 4), (1, 64), (64, 64), (65, 64), (100, 7), (50_000, 64)]
    buffers = ("a_buffer", "b_buffer", "c_buffer")  # what stands for the three
    own_queue = getattr(launch, "__globals__", {}).get("queue")
    for number, (n, group) in enumerate(sizes):
        kernel = KernelStandIn()
        where = f"for {n:,} elements in groups of {group}"
        with mock.patch.object(cl, "enqueue_nd_range_kernel", kernel.enqueue):
            try:
                checks.answer(launch, kernel, *buffers, n, group, who=f"{where} your code")
            except NotYet as error:
                if "Kernel.set_arg" in str(error):  # the stand-in never says so, a kernel of the notebook does
                    raise NotYet(f"{where} your code launches another kernel than its argument `kernel`.") from None
                raise
        if not kernel.launches:
            raise (NotYet if number else NotDone)(f"{where} your code never launches `kernel`.")
        if len(kernel.launches) > 1:
            raise NotYet(f"{where} your code launches the kernel {len(kernel.launches)} times; one launch starts all.")
        queue, items, local, given = kernel.launches[0]
        if len(given) != 4:
            raise NotYet(f"{where}: expected the queue, two sizes and 4 arguments of the kernel's own.")
        *given, count = given
        count = count[()] if isinstance(count, np.ndarray) and count.ndim == 0 else count  # an array of one int is one
        if given[:2] == ["b_buffer", "a_buffer"]:  # a + b is b + a
            given[:2] = buffers[:2]
        for what, actual, expected in (
            ("first argument", type(queue).__name__, "CommandQueue"),
            ("work-items", _normalize_sizes(items), (-(-n // group) * group,)),
            ("size of a group", _normalize_sizes(local), (group,)),
            ("last argument", f"{type(count).__name__}({count})", f"int32({n})"),
            ("buffers", tuple(given), buffers),
        ):
            if actual != expected:
                raise NotYet(f"{where}: {what} in your launch: expected {expected}, came {actual}.")
        if isinstance(own_queue, cl.CommandQueue) and queue != own_queue:
            raise NotYet(f"{where}: your launch uses a queue of its own, for which a copy on `queue` does not wait.")
    yield f"{len(sizes)} sizes"


class KernelStandIn:
    """Stands in for a `cl.Kernel` of three buffers and one int: it notes each launch and runs nothing."""

    def __init__(self) -> None:
        self.launches: list[tuple[object, object, object, list]] = []  # the queue, both sizes, the kernel's arguments
        self._arguments: dict[int, object] = {}
        self._types: list = []

    def __call__(
        self, queue: object, items: object, group: object, *arguments: object, g_times_l: bool = False, **others: object
    ) -> cl.Event | None:
        """Note a launch, as `cl.Kernel` takes it, and return an event of the queue."""
        self.set_args(*arguments)
        return self.enqueue(queue, self, items, group, g_times_l=g_times_l, **others)

    def set_arg(self, index: int, value: object) -> None:
        """Set one argument."""
        self._arguments[index] = value

    def set_args(self, *arguments: object) -> None:
        """Set all arguments."""
        self._arguments = dict(enumerate(arguments))

    def set_arg_types(self, types: Sequence) -> None:
        """Give the NumPy type of each argument, None for a buffer."""
        self._types = list(types)

    set_scalar_arg_dtypes = set_arg_types

    def enqueue(
        self, queue: object, kernel: object, items: object, group: object, g_times_l: bool = False, **others: object
    ) -> cl.Event | None:
        """Note a launch, as `cl.enqueue_nd_range_kernel` takes it.

        Args:
            queue: where it goes.
            kernel: this object.
            items: how many work-items in each dimension, or how many groups if `g_times_l`.
            group: work-items of a group in each dimension.
            g_times_l: whether `items` counts groups.
            others: `global_offset`, which must be 0, `wait_for`, and `allow_empty_ndrange`.
        """
        import pyopencl as cl

        offset = others.get("global_offset", others.get("global_work_offset"))
        if offset not in (None, (0,), [0]):
            raise NotYet("your launch has an offset, so that no work-item has the global id 0; leave it out.")
        if g_times_l and isinstance(items, Sequence) and isinstance(group, Sequence):
            items = tuple(count * size for count, size in zip(items, group, strict=True))
        given = [self._arguments[index] for index in sorted(self._arguments)]
        for index, kind in enumerate(self._types[: len(given)]):
            given[index] = given[index] if kind is None else np.dtype(kind).type(given[index])
        self.launches.append((queue, items, group, given))
        return cl.enqueue_marker(queue) if isinstance(queue, cl.CommandQueue) else None


def _normalize_sizes(sizes: object) -> object:
    """Return a tuple or list of whole numbers as a tuple, anything else as text, because 12.0 equals 12."""
    if isinstance(sizes, tuple | list) and all(isinstance(size, int | np.integer) for size in sizes):
        return tuple(sizes)
    return repr(sizes)


@checks.print_verdict
def check_smooth(source: str) -> Iterator[str]:
    """Lesson 01, exercise 4: the mean of three neighbors; the first and the last element stay unchanged."""
    yield checks.judge_in_subprocess(judge_smooth, source=source)


def judge_smooth(source: str) -> str:
    """Judge the kernel of exercise 4; called in a subprocess."""
    kernel = kernel_checks.build(source, "smooth", about_loops=NO_LOOP)
    return _judge_shared_work(kernel, 1, smooth, "01.4", most=2, radius=1)


def smooth(x: np.ndarray) -> np.ndarray:
    """Return the mean of each element of x and its two neighbors, the ends unchanged; float32 of shape (n,)."""
    if len(x) == 1:
        return x.copy()
    return np.concatenate([x[:1], (x[:-2] + x[1:-1] + x[2:]) / 3, x[-1:]])


# ------------------------------------------------------------------------------------------------------- its figures


def draw_units(device: cl.Device, groups: int) -> None:
    """Draw the compute units of a device and of an NVIDIA H100, and what each unit gets of a launch.

    On a processor, the lanes of a unit are the floats of one vector, as the driver reports them; OpenCL does not tell
    how many lanes a GPU's unit has.

    Args:
        device: any OpenCL device.
        groups: how many work-groups the launch has.
    """
    lanes = device.native_vector_width_float if opencl.kind(device) == "cpu" else 0
    drawn_devices = ((opencl.name(device), device.max_compute_units, lanes), H100)
    rows = [-(-units // UNITS_A_ROW) for _, units, _ in drawn_devices]
    words = []
    with figure(7.5, 1.5 + 0.36 * sum(rows), nrows=2, height_ratios=[row + 0.5 for row in rows]) as (drawn, axes):
        drawn.suptitle("Drawn from reported and published numbers", fontsize=10)
        for panel, (name, units, count), row in zip(axes, drawn_devices, rows, strict=True):
            _draw_unit_squares(panel, units, count)
            panel.set(xlim=(0, UNITS_A_ROW), ylim=(row, 0), xticks=[], yticks=[], aspect="equal", anchor="W")
            fewest, most = groups // units, -(-groups // units)
            share = f"{fewest}" if fewest == most else f"{fewest} or {most}"
            total = f"{units} units of {count} lanes = {units * count:,} lanes" if count else f"{units} units"
            panel.set_title(f"{name}: {total}", fontsize=10)
            panel.set_xlabel(
                f"Shared evenly, {groups:,} groups give each unit {share} (computed)", fontsize=10, loc="left"
            )
            words.append(f"{name}: {total}; {groups} groups are {share} for each unit")
    show(drawn, f"A square is a compute unit, a dot in it a lane. {'. '.join(words)}.")


def _draw_unit_squares(panel: Axes, units: int, lanes: int) -> None:
    """Draw a square for each unit, and in it a dot for each lane."""
    from matplotlib.patches import Rectangle

    across = 16 if lanes > 16 else 4
    down = -(-lanes // across)
    for unit in range(units):
        x, y = unit % UNITS_A_ROW, unit // UNITS_A_ROW
        panel.add_patch(Rectangle((x + 0.04, y + 0.04), 0.92, 0.92, facecolor="white", edgecolor="black", lw=0.8))
        dots = [(x + (k % across + 1) / (across + 1), y + (k // across + 1) / (down + 1)) for k in range(lanes)]
        if dots:
            panel.plot(*zip(*dots, strict=True), "s", color=BLUE, ms=1.1 if lanes > 16 else 3, mew=0)
    panel.grid(False)
    panel.spines[:].set_visible(False)


def draw_launch(source: str, name: str, items: int, group: int, arguments: Sequence[np.ndarray | np.generic]) -> Trace:
    """Run a kernel with the recorder, draw which work-item touched which element, and return what was recorded.

    Arrays that are only read are above the work-items, arrays that are written below them.

    Args:
        source: OpenCL C.
        name: the kernel's name in it.
        items: how many work-items are started; about 20 are legible.
        group: work-items of a work-group.
        arguments: for each parameter of the kernel an array, or a number of NumPy's such as `np.int32(10)`.
    """
    recorded = opencl_recorder.record(opencl.Kernel(source, name), items, group, arguments)
    title = f"{items} work-items of the kernel {name}: what each reads and writes"
    touches = recorded.touches
    written = {touch.array for touch in touches if touch.writes}
    above = [array for array in recorded.lengths if array not in written]
    below = [array for array in recorded.lengths if array in written]
    rows = {array: row for row, array in enumerate([*above, None, *below])}
    middle = rows[None]
    end = max(items, *recorded.lengths.values()) + NEARBY
    near = [touch for touch in touches if -NEARBY <= touch.index < end]
    indices = [0, items - 1, *(touch.index for touch in near), *(n - 1 for n in recorded.lengths.values())]
    first, last = min(indices), max(indices)
    with figure(max(7.5, 0.42 * (last - first + 1) + 1.6), 0.8 * len(rows) + 0.9) as (drawn, axes):
        for touch in near:
            row = rows[touch.array]
            aside = 0.22 * max(abs(row - middle) - 1, 0)  # an arrow from a farther array passes the nearer one's number
            ends = [(touch.index - aside, row), (touch.item - aside, middle)]
            color = RED if not touch.inside else BLUE if touch.writes else GREY
            _draw_arrow(axes, *(reversed(ends) if touch.writes else ends), color)
            if not touch.inside:
                _draw_cell(axes, touch.index, row, "white", "×", RED)
        for item in range(items):
            color = GROUP_COLORS[recorded.group_ids[item, 0] % len(GROUP_COLORS)]
            ids = f"{recorded.global_ids[item, 0]}", f"{recorded.local_ids[item, 0]}"
            _draw_cell(axes, item, middle, color, ids[0], small=ids[1])
        for array, length in recorded.lengths.items():
            for element in range(length):
                _draw_cell(axes, element, rows[array], "white", f"{element}")
        labels = {row: f"array {array}" if array else "work-items" for array, row in rows.items()}
        axes.set_yticks(list(labels), list(labels.values()))
        axes.set(xlim=(first - 0.8, last + 0.8), ylim=(len(rows) - 0.5, -0.5), xticks=[], title=title)
        axes.set_xlabel(
            "work-items: one color for each work-group, large the global id, small the local id; arrays: the index",
            fontsize=8.5,
        )
        axes.grid(False)
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
    bad = len(recorded.outside)
    show(drawn, f"{title}. {items} work-items and the elements that each touched; {bad} accesses lie outside an array.")
    far = [f"{touch}, far outside" for touch in touches if touch not in near]
    for access in [*recorded.unseen, *far[:3]]:
        print("not drawn:", access)
    return recorded


def _draw_cell(axes: Axes, x: float, y: float, color: str, text: str, edge: str = "black", small: str = "") -> None:
    """Draw a box around (x, y) with a text and, if it has one, a small number."""
    from matplotlib.patches import Rectangle

    line = "--" if edge == RED else "-"
    axes.add_patch(Rectangle((x - 0.4, y - 0.3), 0.8, 0.6, facecolor=color, edgecolor=edge, lw=1, ls=line, zorder=1))
    axes.text(x - 0.1 if small else x, y, text, ha="center", va="center", fontsize=10, color=edge, zorder=4)
    axes.text(x + 0.26, y + 0.17, small, ha="center", va="center", fontsize=7, color=edge, zorder=4)


def _draw_arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], color: str) -> None:
    down = 0.3 if end[1] > start[1] else -0.3
    tip = (end[0], end[1] - down)
    line = "--" if color == RED else "-"
    look = {"arrowstyle": "-|>", "color": color, "lw": 1.3, "ls": line, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", xy=tip, xytext=(start[0], start[1] + down), arrowprops=look, zorder=3)
