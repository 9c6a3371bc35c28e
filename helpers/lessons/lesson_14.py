"""Lesson 14, Compute on any GPU with WebGPU: the checks of its exercises, its tables, its timing, its figure."""

from __future__ import annotations

import math
import re
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from helpers import checks, opencl, timing, webgpu
from helpers.errors import WorkshopError
from helpers.lessons import lesson_14_races as races
from helpers.lessons import lesson_14_web
from helpers.machine.host import cpu_name
from helpers.plots import BLUE, GREY, ORANGE, figure, show
from helpers.tables import Table
from helpers.timing import Measurement

if TYPE_CHECKING:
    import wgpu

GROUP = 64  # invocations of a workgroup in the exercises
BEYOND = 150  # elements of each buffer that lie beyond those that a kernel is told of
FILLS = (0x7FC0BEEF, 0x0DA24260)  # what the output holds before: a NaN, and 1e-30; what keeps both was never written
SPOILT = np.float32(np.nan)  # what the inputs hold beyond their ends
SEEN = (64, 33, 5)  # the sizes at which races are looked for
ROUNDS = 20_000  # of all loops of one invocation together, in small launches; more are taken for endless
LAST_BINDING = 15  # where the count of those rounds is reported
SECONDS = 60.0  # for a whole verdict
BUILTINS = ("global_invocation_id", "local_invocation_id", "local_invocation_index", "subgroup_invocation_id")


# ---------------------------------------------------------------------------------------------- names

NAMES = (  # one idea a row
    ("one run of the kernel", "work-item", "thread", "thread", "work-item", "thread", "invocation"),
    ("those that share near memory", "work-group", "block", "block", "work-group", "threadgroup", "workgroup"),
    ("those that run in step", "sub-group", "warp", "warp, wavefront", "sub-group", "SIMD-group", "subgroup"),
    ("all of them", "NDRange", "grid", "grid", "ND-range", "grid", "dispatch"),
    ("near memory of a group", "local", "shared", "shared (LDS)", "local", "threadgroup", "workgroup"),
    ("memory of the whole device", "global", "global", "global", "global", "device", "storage"),
    (
        "wait for your group", "barrier", "__syncthreads", "__syncthreads", "group_barrier", "threadgroup_barrier",
        "workgroupBarrier",
    ),
    (
        "my number among all", "get_global_id", "blockIdx * blockDim + threadIdx", "as CUDA", "get_global_id",
        "thread_position_in_grid", "global_invocation_id",
    ),
    ("commands wait in a", "command queue", "stream", "stream", "queue", "command queue", "queue"),
    ("written in", "OpenCL C", "C++", "C++", "C++", "C++", "WGSL"),
    ("made by", "Khronos", "NVIDIA", "AMD", "Khronos", "Apple", "W3C"),
)  # fmt: skip


def names() -> Table:
    """The same ideas in six ways of programming a GPU.

    Read in: HIP's table of terms (github.com/ROCm/HIP, docs/reference/terms.md: CUDA, HIP, OpenCL), Intel's *CUDA to
    SYCL term mapping* (SYCLomatic), Apple's *Creating threads and threadgroups*, and the WGSL specification (w3.org).
    """
    return Table(NAMES, ("idea", "OpenCL", "CUDA", "HIP", "SYCL", "Metal", "WebGPU (WGSL)"))


# What a browser gives unless a page asks for more (the table of limits in the WebGPU specification, w3.org/TR/webgpu).
DEFAULTS = {
    "max-compute-invocations-per-workgroup": 256,
    "max-compute-workgroup-size-x": 256,
    "max-compute-workgroup-storage-size": 16_384,
    "max-compute-workgroups-per-dimension": 65_535,
    "max-storage-buffer-binding-size": 134_217_728,
    "max-buffer-size": 268_435_456,
}
MEANINGS = {
    "max-compute-invocations-per-workgroup": "invocations in a workgroup",
    "max-compute-workgroup-size-x": "of them in x",
    "max-compute-workgroup-storage-size": "bytes of workgroup memory",
    "max-compute-workgroups-per-dimension": "workgroups of a dispatch, in x",
    "max-storage-buffer-binding-size": "bytes of a bound buffer",
    "max-buffer-size": "bytes of a buffer",
}


def limits(adapter: wgpu.GPUAdapter) -> Table:
    """What a page gets unless it asks, and what this adapter can give."""
    rows = [(MEANINGS[one], f"{least:,}", f"{adapter.limits[one]:,}") for one, least in DEFAULTS.items()]
    return Table(rows, ("limit", "without asking, in a browser", "this adapter at most"))


def refusal(attempt: Callable[[], object]) -> str:
    """Return what WebGPU says against `attempt()`, its own functions left out; or that it did not object."""
    import wgpu

    try:
        attempt()
    except WorkshopError as error:
        return error.why or error.what
    except (wgpu.GPUError, RuntimeError) as error:
        lines = [line.rstrip() for line in str(error).splitlines() if line.strip()]
        noise = ("Validation Error", "Caused by:", "In wgpu")
        kept = [line for line in lines if not line.strip().startswith(noise)]
        place = next((number for number, line in enumerate(kept) if line.lstrip().startswith("=")), len(kept))
        return textwrap.dedent("\n".join(kept[: place + 2]))
    return "WebGPU did not object."


def compare_writes(prediction: str | None, result: np.ndarray, own: int) -> None:
    """Print what became of the writes beyond the end of a buffer, and whether that was predicted.

    Args:
        prediction: "crash", "dropped", or "elsewhere in the buffer".
        result: the buffer after invocation i wrote i + 1 into element i + own, for more i than there are elements.
        own: elements that nobody should have touched.
    """
    word, told = where_it_went(result, own)
    print(told)
    checks.compare_prediction(prediction, word)
    if isinstance(prediction, str):
        print("as predicted" if prediction.strip().lower() == word else "not as predicted")


def where_it_went(result: np.ndarray, own: int) -> tuple[str, str]:
    """Return what became of the writes beyond the end of a buffer: as a prediction says it, and in a sentence."""
    right, elsewhere = np.arange(1, len(result) - own + 1, dtype=result.dtype), "elsewhere in the buffer"
    if (result[:own] != 0).any():
        return elsewhere, "They went to the front of the buffer."
    if (result[own:] == right).all():
        return "dropped", "Every element holds what its own invocation wrote: the writes beyond the end were dropped."
    changed = np.flatnonzero(result[own:] != right) + own
    return elsewhere, f"They hit elements inside the buffer, that of somebody else: {', '.join(map(str, changed[:5]))}."


# ---------------------------------------------------------------------------------------------- time


class Matrices:
    """Two random matrices, and what was measured with them.

    Args:
        size: rows and columns, a multiple of 16.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.a, self.b = np.random.default_rng(0).standard_normal((2, size, size), dtype=np.float32)
        self.runs: dict[str, Measurement] = {}

    def prepared(self, device: wgpu.GPUDevice, source: str) -> tuple[webgpu.Kernel, wgpu.GPUBindGroup, tuple]:
        """Return a compiled product kernel, its buffers, and its workgroups."""
        kernel = webgpu.Kernel(device, source)
        arrays = [self.a, self.b, np.zeros_like(self.a), np.full(4, self.size, np.uint32)]
        group = kernel.bind({number: webgpu.buffer(device, array) for number, array in enumerate(arrays)})
        return kernel, group, (math.ceil(self.size / 16), math.ceil(self.size / 16))

    def moments(self, device: wgpu.GPUDevice, source: str) -> dict[str, float]:
        """Print the seconds of each part of a product, the first time and once more with all clocks; return them."""
        start = time.perf_counter()
        kernel, group, workgroups = self.prepared(device, source)
        seconds = {"build the pipeline, fill the buffers": time.perf_counter() - start}
        start = time.perf_counter()
        kernel.submit(group, workgroups)
        webgpu.wait(device)
        seconds["first dispatch, until the fence"] = time.perf_counter() - start
        start = time.perf_counter()
        kernel.submit(group, workgroups)
        seconds["second dispatch, until the call returned"] = time.perf_counter() - start
        webgpu.wait(device)
        webgpu.timed(kernel, group, workgroups)  # what timestamps need is made at their first use
        start = time.perf_counter()
        alone = webgpu.timed(kernel, group, workgroups)
        if alone is None:
            kernel.submit(group, workgroups)
            webgpu.wait(device)
        seconds["a later dispatch, until the fence"] = time.perf_counter() - start
        if alone is not None:
            seconds["the same one, between the device's own timestamps"] = alone
        start = time.perf_counter()
        webgpu.wait(device)
        seconds["the fence alone, nothing to do"] = time.perf_counter() - start
        print("\n".join(f"{timing.duration(value):>8}  {what}" for what, value in seconds.items()))
        return seconds

    def measure_webgpu(self, label: str, device: wgpu.GPUDevice, adapter_name: str, source: str, repeats: int) -> None:
        """Time a product whose buffers lie on the device: by its timestamps where it has them, else by the fence."""
        kernel, group, workgroups = self.prepared(device, source)
        seconds = []
        for _ in range(1 + repeats):
            start = time.perf_counter()
            alone = webgpu.timed(kernel, group, workgroups)
            if alone is None:
                kernel.submit(group, workgroups)
            webgpu.wait(device)
            seconds.append(time.perf_counter() - start if alone is None else alone)
        self.runs[label] = Measurement(label, adapter_name, tuple(seconds[1:]))

    def measure_numpy(self, repeats: int) -> None:
        """Time NumPy's product."""
        run = timing.measure(lambda: self.a @ self.b, label="NumPy", device=cpu_name(), repeats=repeats)
        self.runs["NumPy"] = run
        time.sleep(timing.SETTLE)

    def measure_opencl(self, sources: Mapping[str, str], repeats: int) -> str:
        """Time lesson 02's products in OpenCL and its ceiling; return why not, where there is no device.

        Args:
            sources: for each label OpenCL C with one kernel (a, b, c, m, n, k), work-items in x for columns.
            repeats: of each.
        """
        try:
            import pyopencl as cl

            device = opencl.pick_device()
        except (ImportError, WorkshopError) as error:
            return f"OpenCL is left out: {str(error).splitlines()[0]}"
        context = cl.Context([device])
        queue = cl.CommandQueue(context)
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        buffers = [cl.Buffer(context, flags, hostbuf=array) for array in (self.a, self.b, np.zeros_like(self.a))]
        sizes = [np.int32(self.size)] * 3
        for label, source in sources.items():
            kernel = opencl.build(context, source).all_kernels()[0]
            self.runs[label] = timing.measure(
                lambda kernel=kernel: kernel(queue, (self.size, self.size), (16, 16), *buffers, *sizes),
                label=label, device=opencl.name(device), on=queue, repeats=repeats, warmup=1,
            )  # fmt: skip
        return ""

    def gflops(self, label: str) -> float:
        """The speed of what was measured: 2 size**3 operations, in 10**9 a second."""
        return 2 * self.size**3 / self.runs[label].median / 1e9


PEAK = """
__kernel void peak(__global VECTOR *out, float factor) {
    VECTOR sums[8] = {0}, total = 0;
    for (int i = 0; i < 1000; i++) {
        #pragma unroll
        for (int chain = 0; chain < 8; chain++) {
            sums[chain] = sums[chain] * factor + (VECTOR)(chain + 1);
        }
    }
    for (int chain = 0; chain < 8; chain++) {
        total += sums[chain];
    }
    out[get_global_id(0)] = total;
}
"""


def peak(repeats: int) -> tuple[float, str] | None:
    """Return lesson 02's ceiling of arithmetic in GFLOP/s and its device; None without OpenCL.

    It multiplies and adds in registers alone, in 8 chains of vectors; the best width of several counts.
    """
    try:
        import pyopencl as cl

        device = opencl.pick_device()
    except (ImportError, WorkshopError):
        return None
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    items, speeds = 2**12, []
    out = cl.Buffer(context, cl.mem_flags.READ_WRITE, 64 * items)
    for width in (4, 8, 16):
        kernel = cl.Kernel(opencl.build(context, f"#define VECTOR float{width}\n{PEAK}"), "peak")
        run = timing.measure(
            lambda kernel=kernel: kernel(queue, (items,), None, out, np.float32(0.5)),
            device=opencl.name(device), on=queue, repeats=3 * repeats, warmup=10,
        )  # fmt: skip
        speeds.append(2 * 8 * width * 1000 * items / min(run.seconds) / 1e9)
    return max(speeds), opencl.name(device)


OPENCL_NAIVE = """
__kernel void naive(__global const float *a, __global const float *b, __global float *c, int m, int n, int k) {
    int column = get_global_id(0), row = get_global_id(1);
    float sum = 0;
    for (int i = 0; i < k; i++) {
        sum += a[row * k + i] * b[i * n + column];
    }
    c[row * n + column] = sum;
}
"""
OPENCL_TILED = """
__kernel void tiled(__global const float *a, __global const float *b, __global float *c, int m, int n, int k) {
    __local float a_tile[16][16], b_tile[16][16];
    int x = get_local_id(0), y = get_local_id(1), column = get_global_id(0), row = get_global_id(1);
    float sum = 0;
    for (int start = 0; start < k; start += 16) {
        a_tile[y][x] = row < m && start + x < k ? a[row * k + start + x] : 0;
        b_tile[y][x] = start + y < k && column < n ? b[(start + y) * n + column] : 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int i = 0; i < 16; i++) {
            sum += a_tile[y][i] * b_tile[i][x];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (row < m && column < n) {
        c[row * n + column] = sum;
    }
}
"""
OPENCL_PRODUCTS = {"OpenCL naive": OPENCL_NAIVE, "OpenCL tiled": OPENCL_TILED}
OPENCL_ADD = """\
    __global const float *a,
    __global const float *b,
    __global float *c,
    const int n
__kernel
void add(...) {
    int i = get_global_id(0);
    if (i < n) {
        c[i] = a[i] + b[i];
    }
}"""  # line by line as lesson 14's WGSL


def draw_speeds(bench: Matrices, ceiling: tuple[float, str] | None) -> None:
    """Draw the speed of every product as a point with the middle half of its runs, and the ceiling as a line."""
    labels = list(bench.runs)
    looks = {"WebGPU": (ORANGE, "s"), "OpenCL": (BLUE, "o"), "NumPy": (GREY, "D")}
    words, speeds = [], []
    with figure(7.5, 0.55 * len(labels) + 1.5) as (drawn, axes):
        for place, label in enumerate(labels):
            speed = bench.gflops(label)
            low, high = (2 * bench.size**3 / seconds / 1e9 for seconds in reversed(bench.runs[label].quartiles))
            colour, marker = looks[label.split()[0]]
            axes.plot([low, high], [place, place], color="black", lw=2)
            axes.plot(speed, place, color=colour, marker=marker, ms=9)
            axes.annotate(f"{speed:.3g}", (speed, place), xytext=(0, 8), textcoords="offset points", ha="center",
                          fontsize=9)  # fmt: skip
            words.append(f"{label}: {speed:.3g} GFLOP/s on {bench.runs[label].device}")
            speeds += [low, high]
        if ceiling:
            axes.axvline(ceiling[0], color="black", ls="--", lw=1)
            axes.annotate(f"arithmetic alone, in OpenCL: {ceiling[0]:.3g}", (ceiling[0], len(labels) - 0.55),
                          xytext=(-5, 0), textcoords="offset points", ha="right", fontsize=9)  # fmt: skip
            words.append(f"ceiling of arithmetic, in OpenCL on {ceiling[1]}: {ceiling[0]:.3g} GFLOP/s")
            speeds.append(ceiling[0])
        names = [f"{label}\n{bench.runs[label].device}" for label in labels]
        axes.set(yticks=range(len(labels)), xscale="log", xlabel="speed (GFLOP/s), logarithmic",
                 xlim=(min(speeds) / 2, 2 * max(speeds)), ylim=(len(labels) - 0.4, -0.7))  # fmt: skip
        axes.set_yticklabels(names, fontsize=8)
        title = f"One product of two {bench.size} x {bench.size} matrices, float32"
        drawn.suptitle(title, fontsize=11, x=0.01, ha="left")
    show(drawn, f"{title}. {'; '.join(words)}.")
    above = [label for label in labels if ceiling and bench.gflops(label) > ceiling[0]]
    if any(bench.runs[label].device in (ceiling[1], cpu_name()) for label in above):
        print(f"Faster than the ceiling: {', '.join(above)}. It was measured too low, perhaps by a busy machine.")


def compare_tiled(prediction: object, bench: Matrices, left_out: str) -> None:
    """Print a prediction beside the tiled WebGPU kernel's speed in percent of OpenCL's, or what is missing for that."""
    if left_out:
        print(left_out)
    if {"WebGPU tiled", "OpenCL tiled"} <= set(bench.runs):
        percent = 100 * bench.gflops("WebGPU tiled") / bench.gflops("OpenCL tiled")
        checks.compare_prediction(prediction, percent, "percent")
        print(timing.compare(bench.runs["WebGPU naive"], bench.runs["WebGPU tiled"]))


# ---------------------------------------------------------------------------------------------- exercises


class Case(NamedTuple):
    """One launch of a learner's kernel."""

    words: str  # what is computed, for the message
    arrays: dict[int, np.ndarray]  # by binding, without the output
    output: int  # the binding of the output
    expected: np.ndarray  # what it must hold, one-dimensional float32
    groups: int  # workgroups
    each: int = GROUP  # results of one workgroup
    slips: Mapping[str, np.ndarray] = MappingProxyType({})  # what comes after a known slip, by the sentence about it


def _padded(values: np.ndarray) -> np.ndarray:
    """The values, and behind them numbers that spoil every result."""
    return np.concatenate([values.ravel(), np.full(BEYOND, SPOILT, np.float32)])


@checks.verdict
def check_saxpy(source: str) -> Iterator[str]:
    """Lesson 14, exercise 1: saxpy in WGSL."""
    yield judged(judge_saxpy, source)


@checks.verdict
def check_dense(source: str) -> Iterator[str]:
    """Lesson 14, exercise 2: a dense layer with ReLU in WGSL. A right one reads the digits in the browser."""
    right = judged(judge_dense, source)
    lesson_14_web.own_kernels["dense"] = source
    yield right


@checks.verdict
def check_sums(source: str) -> Iterator[str]:
    """Lesson 14, exercise 3: the sum of each workgroup, in workgroup memory."""
    yield judged(judge_sums, source)


def judged(judge: Callable[[str], str], source: object) -> str:
    """Let a judge run in a subprocess; without an adapter nothing is judged."""
    if webgpu.pick_adapter() is None:
        raise checks.NotJudged(webgpu.missing())
    if not isinstance(source, str):
        raise checks.NotDone(f"expected a string with WGSL, came {source!r:.30}.")
    if not source.strip():
        raise checks.NotDone("there is no kernel yet.")
    return checks.judge_in_subprocess(judge, SECONDS, source=source)


def judge_saxpy(source: str) -> str:
    """Judge `out[i] = alpha * x[i] + y[i]`; bindings: x, y, out, uniform {n: u32, alpha: f32}."""
    rng = np.random.default_rng()

    def case(n: int) -> Case:
        x, y = rng.standard_normal((2, n), dtype=np.float32)
        alpha = np.float32(rng.choice((-1, 1)) * rng.uniform(1.5, 3))
        told = np.array([n, alpha.view(np.uint32)], np.uint32)
        return Case(f"n = {n}", {0: _padded(x), 1: _padded(y), 3: told}, 2, alpha * x + y, max(1, math.ceil(n / GROUP)))

    sizes = [5, 1, 3, 63, 64, 65, 257, 1000, int(rng.integers(300, 3000)), 70_001]
    wanted = {0: "read-only-storage", 1: "read-only-storage", 2: "storage", 3: "uniform"}
    cases = [case(n) for n in sizes]
    return judge_kernel(source, wanted, cases, lambda device: _one_writer(device, source, cases))


def judge_dense(source: str) -> str:
    """Judge a dense layer; bindings: inputs, weights, bias, outputs, uniform vec4<u32>(n, in, out, relu)."""
    rng = np.random.default_rng()

    def case(n: int, wide: int, out: int, relu: int) -> Case:
        inputs = rng.standard_normal((n, wide), dtype=np.float32)
        weights = rng.standard_normal((wide, out), dtype=np.float32)
        bias = rng.standard_normal(out, dtype=np.float32)
        expected = inputs.astype(float) @ weights + bias
        expected = np.maximum(expected, 0) if relu else expected
        told = np.array([n, wide, out, relu], np.uint32)
        arrays = {0: _padded(inputs), 1: _padded(weights), 2: _padded(bias), 4: told}
        words = f"n = {n}, {wide} numbers in, {out} out, relu = {relu}"
        return Case(words, arrays, 3, expected.ravel().astype(np.float32), math.ceil(n * out / GROUP))

    shapes = [
        (2, 3, 4),
        (1, 1, 1),
        (3, 5, 2),
        (2, 64, 64),
        (65, 10, 3),
        (7, 33, 10),
        (1, 784, 128),
        (130, 20, 10),
        (300, 8, 250),
    ]
    cases = [case(*shape, relu) for shape in shapes for relu in (0, 1)]
    wanted = dict.fromkeys((0, 1, 2), "read-only-storage") | {3: "storage", 4: "uniform"}
    return judge_kernel(source, wanted, cases, lambda device: _one_writer(device, source, cases))


def judge_sums(source: str) -> str:
    """Judge the sums of workgroups; bindings: x, partial (one for each workgroup), uniform n: u32."""
    rng = np.random.default_rng()

    def case(n: int) -> Case:
        x = rng.uniform(0.5, 1.5, n).astype(np.float32)
        groups = math.ceil(n / GROUP)
        ends = range(0, n, GROUP)
        expected = np.array([x[start : start + GROUP].sum(dtype=float) for start in ends], np.float32)
        arrays = {0: _padded(x), 2: np.array([n], np.uint32)}
        slips = {
            f"It is the sum of {which}: a round is missing.": np.array(
                [x[start : start + GROUP][kept].sum() for start in ends]
            )
            for which, kept in {"every second element": np.s_[::2], "the first 32 elements": np.s_[:32]}.items()
        }
        return Case(f"n = {n}", arrays, 1, expected, groups, 1, slips)

    sizes = [130, 5, 1, 2, 33, 63, 64, 65, 128, 1000, int(rng.integers(300, 3000)), 70_001]
    cases = [case(n) for n in sizes for _ in range(2)]
    wanted = {0: "read-only-storage", 1: "storage", 2: "uniform"}

    def look(device: wgpu.GPUDevice) -> str:
        _uniform_barriers(source)
        return _look_for_races(device, source, [next(case for case in cases if case.words == f"n = {n}") for n in SEEN])

    tried = judge_kernel(source, wanted, cases, look)
    _shared_memory(source)
    return tried


def _one_writer(device: wgpu.GPUDevice, source: str, cases: Sequence[Case]) -> str:
    """Refuse a kernel of which several invocations of one workgroup write, or one writes and another reads, a result.

    Args:
        device: runs the rewritten kernel.
        source: the learner's WGSL.
        cases: the launches; those of one workgroup are looked at.

    Returns:
        Nothing to add to the verdict.
    """
    try:
        recorded, kernel = races.compiled(device, source, cases[0].output)
    except races.NotFollowed:
        return ""
    for case in cases:
        if case.groups == 1:
            found = recorded.look(_launch(kernel, case, FILLS[0], {races.BINDING: races.empty_record()})[races.BINDING])
            if found.races:
                raise checks.NotYet(
                    f"{case.words}: {found.races[0]}. Each element is written by one invocation, and the invocations "
                    "without an element must write nothing."
                )
    return ""


def _look_for_races(device: wgpu.GPUDevice, source: str, cases: Sequence[Case]) -> str:
    """Refuse races, and accesses outside of what there is; return what is worth a word in a right answer.

    Args:
        device: runs the rewritten kernel.
        source: the learner's WGSL.
        cases: launches of one workgroup.
    """
    try:
        recorded, kernel = races.compiled(device, source, cases[0].output)
    except races.NotFollowed as why:
        return f"; races were not looked for: {why}"
    remarks: dict[str, None] = {}
    for case in cases:
        written = _launch(kernel, case, FILLS[0], {races.BINDING: races.empty_record()})
        found = recorded.look(written[races.BINDING])
        outside = f"{found.read_outside[0]}, which does not exist" if found.read_outside else ""
        if found.races:
            helps = "Is a barrier missing, after the copy or after a round?"
            if not any(f" {name}[" in found.races[0] for name in recorded.arrays[: recorded.of_group]):
                helps = "One invocation of each workgroup is enough to write the sum."
            elif outside:
                helps = f"And {outside}. Which invocations have something to add in this round?"
            elif "storageBarrier" in webgpu.without_comments(source):
                helps = "storageBarrier() orders storage buffers alone."
            raise checks.NotYet(
                f"{case.words}: {found.races[0]}. That is a race: the result depends on who comes first. (Is it "
                f"right on this adapter? Then by luck.) {helps}"
            )
        if found.written_outside:
            raise checks.NotYet(f"{case.words}: {found.written_outside[0]}, which does not exist.")
        if found.unwritten:
            raise checks.NotYet(
                f"{case.words}: {found.unwritten[0].replace('work-item', 'invocation')}. Write the 0 yourself: WGSL "
                "promises it in fresh workgroup memory, and not every implementation keeps that."
            )
        results = written[case.output][: case.expected.size].view(np.float32)
        if outside and not np.allclose(results, case.expected, rtol=1e-4):  # it got some other element instead
            raise checks.NotYet(
                f"{case.words}: {outside}. WGSL may give any element for it, and the sum depends on it."
            )
        if outside:
            remarks[f"{outside}; the sum does not depend on it"] = None
        if found.unchanged:
            remarks["some invocations write back what others read: an `if` would spare that"] = None
        if found.most > races.ALONE:
            remarks["one invocation adds nearly all; six rounds were asked, in which many add at once"] = None
    return "".join(f"; {one}" for one in {"no race seen": None} | remarks)


def judge_kernel(
    source: str, wanted: Mapping[int, str], cases: Sequence[Case],
    look_first: Callable[[wgpu.GPUDevice], str] = lambda device: "",
) -> str:  # fmt: skip
    """Judge a kernel on cases that change with every call, its output between canaries.

    First every loop is counted, in the small cases: one without end has its verdict before it can stop a GPU.

    Args:
        source: the learner's WGSL.
        wanted: how each binding is declared.
        cases: the launches; the smallest first.
        look_first: a look at a kernel that compiles and ends, on this device; what it returns joins the verdict.

    Returns:
        What was tried, for the verdict.
    """
    adapter = webgpu.pick_adapter()
    device = webgpu.request_device(adapter)
    try:
        kernel = webgpu.Kernel(device, source)
    except webgpu.KernelError as error:
        what = error.what.replace("The kernel does", "the kernel does")
        raise checks.NotYet("\n".join(filter(None, (what, error.why, hint(error.why))))) from None
    for number, how in wanted.items():
        declared = kernel.bindings.get(number)
        if declared != how:
            came = f"it is declared as {declared}" if declared else "there is none"
            raise checks.NotYet(f"expected @binding({number}) of group 0 to be {how}; {came}.")
    if more := sorted(set(kernel.bindings) - set(wanted)):
        raise checks.NotYet(f"@binding({more[0]}) is declared, and nothing is bound there.")
    plain = webgpu.without_comments(source)
    constants = dict(re.findall(r"\bconst\s+(\w+)[\s:ui32]*=\s*(\d+)[ui]?\s*;", plain))
    size = re.search(r"@workgroup_size\s*\(([^)]*)\)", plain)
    parts = [constants.get(part, part) for part in re.findall(r"\w+", size[1])] if size else []
    if [part.rstrip("ui") for part in parts] + ["1"] * (3 - len(parts)) != [str(GROUP), "1", "1"]:
        raise checks.NotYet(f"expected @workgroup_size({GROUP}), came @workgroup_size({size[1] if size else ''}).")
    _expect_ends(device, source, [case for case in cases if case.expected.size <= 5 * GROUP][:6])
    seen = look_first(device)
    two = next(case for case in cases if case.groups == 2)
    for case in cases:
        _judge_case(kernel, case)
        if case is two:
            _expect_own_results(kernel, case)
    sizes = f"{len(cases)} launches of up to {max(case.expected.size for case in cases):,} results"
    return f"{sizes}, on {webgpu.name(adapter)}{seen}"


def _launch(kernel: webgpu.Kernel, case: Case, fill: int, more: Mapping[int, np.ndarray] | None = None) -> dict:
    """Run a kernel with its output filled and between canaries; return what its writable arrays hold, by binding."""
    out = np.full(case.expected.size + BEYOND, fill, np.uint32)
    arrays = {**case.arrays, case.output: out, **(more or {})}
    buffers = {number: webgpu.buffer(kernel.device, array) for number, array in arrays.items()}
    kernel.submit(kernel.bind(buffers), case.groups)
    written = {
        number: webgpu.read(kernel.device, buffers[number], arrays[number]) for number in (case.output, *(more or {}))
    }
    for one in buffers.values():
        one.destroy()
    return written


def counted(source: str) -> str:
    """Return WGSL whose loops end after ROUNDS rounds and then say so in a buffer of their own."""
    plain = webgpu.without_comments(source)
    places = []
    for found in re.finditer(r"\b(for|while|loop)\b", plain):
        start = found.end()
        if found[1] == "for":
            start = opencl.closing_bracket(plain, plain.index("(", start)) + 1
        if "{" in plain[start:]:
            places.append(plain.index("{", start) + 1)
    stop = " if (ws_rounds >= WS_MOST) { ws_late[0] = 1u; break; } ws_rounds += 1u; ".replace("WS_MOST", f"{ROUNDS}u")
    for place in reversed(places):
        plain = plain[:place] + stop + plain[place:]
    late = f"@group(0) @binding({LAST_BINDING}) var<storage, read_write> ws_late: array<u32>;"
    return f"{plain}\nvar<private> ws_rounds: u32 = 0u;\n{late}\n"


def _expect_ends(device: wgpu.GPUDevice, source: str, cases: Sequence[Case]) -> None:
    """Refuse a kernel with a loop that does not end, without running that loop to its end."""
    if not re.search(r"\b(for|while|loop)\b", webgpu.without_comments(source)):
        return
    try:
        kernel = webgpu.Kernel(device, counted(source))
    except (webgpu.KernelError, ValueError):
        return  # written in a way that this does not follow; the time-out is left
    for case in cases:
        late = _launch(kernel, case, FILLS[0], {LAST_BINDING: np.zeros(1, np.uint32)})[LAST_BINDING]
        if late[0]:
            raise checks.NotYet(f"{case.words}: a loop goes round more than {ROUNDS:,} times; it may never end.")


def _expect_own_results(kernel: webgpu.Kernel, case: Case) -> None:
    """Refuse a kernel whose first workgroup does the work of the second: it writes where others write, too."""
    bits = _launch(kernel, case._replace(groups=1), FILLS[0])[case.output]
    if (touched := np.flatnonzero(bits[case.each :] != FILLS[0])).size:
        own = f"results 0 to {case.each - 1}" if case.each > 1 else "result 0"
        raise checks.NotYet(
            f"{case.words}, the first workgroup alone: it wrote result {case.each + touched[0]}. Only {own} belong"
            f"{'s' * (case.each == 1)} to it: here each invocation writes one result at most, its own."
        )


def _judge_case(kernel: webgpu.Kernel, case: Case) -> None:
    runs = [_launch(kernel, case, fill)[case.output] for fill in FILLS]
    n = case.expected.size
    unwritten = (runs[0] == FILLS[0]) & (runs[1] == FILLS[1])
    if unwritten[:n].all() and n > 2:
        raise checks.NotDone(f"the kernel writes no result ({case.words}).")
    launched = f"{case.words}, {case.groups:,} workgroup{'s' * (case.groups > 1)} of {GROUP}"
    for bits, fill in zip(runs, FILLS, strict=True):
        beyond = np.flatnonzero(bits[n:] != fill)
        if beyond.size:
            whose = "the result of a workgroup has the workgroup's number, `group.x`."
            if case.each > 1:
                whose = "the invocations without an element of their own must write nothing."
            raise checks.NotYet(
                f"{launched}: element {n + beyond[0]} of the output was written, and there are {n} results. The buffer "
                f"is longer than that: {whose}"
            )
    # float32 sums in any order; a device may multiply and add in one step.
    scale = 1e-5 * math.sqrt(max(array.size for array in case.arrays.values()))
    outputs = [bits[:n].view(np.float32) for bits in runs]
    for actual in outputs:
        wrong = np.flatnonzero(~np.isclose(actual, case.expected, rtol=1e-4, atol=min(scale, 1e-3)))
        if not wrong.size:
            continue
        i = int(wrong[0])
        where = f"{launched}, result {i}: expected {case.expected[i]:.6g}"
        if unwritten[i]:
            raise checks.NotYet(f"{where}, came nothing: it was never written.")
        again = [_launch(kernel, case, fill)[case.output][:n].view(np.float32)[i] for fill in FILLS * 3]
        if not all(np.isclose(again[k::2], again[k], equal_nan=True).all() for k in (0, 1)):
            raise checks.NotYet(f"{where}, came {actual[i]:.6g}; it differs from run to run.")
        if not np.isclose(again[0], again[1], equal_nan=True):
            raise checks.NotYet(f"{where}, came {actual[i]:.6g}; it depends on what the output held before.")
        slip = next((f" {words}" for words, values in case.slips.items() if np.allclose(actual, values, 1e-4)), "")
        hint = " (What lies beyond the ends of the inputs is nan.)" if np.isnan(actual[i]) else slip
        raise checks.NotYet(f"{where}, came {actual[i]:.6g}.{hint}")


# What beginners write, by a part of what wgpu's compiler says against it, and what WGSL wants instead.
CONVERTS = "WGSL converts no variables: write `f32(i)` for a whole number, `0.0` for a zero."
HINTS = (
    ("valid destination for a store", "Is this buffer declared `read` or `uniform`? Such a buffer cannot be written."),
    ("Accessing with index", "Is the index a vector? Take one number of it: id.x."),
    ("Vector { size: Tri", "Is it `id`? It holds three numbers: take one of them, `id.x`."),
    ("Abstract types may only appear", "A number with a point beside a whole number? Beside a `u32` write `1u`."),
    (r"cannot convert elements of `f32` to `[ui]32`|kind: Sint.*kind: Float",
     "`var sum = 0;` makes a whole number: write `0.0`, or `f32(i)` for a variable."),
    (r"kind: Uint.*kind: Float|kind: Float.*kind: (Uint|Sint)|cannot convert elements of `[ui]32` to `f32`", CONVERTS),
    (r"allowed type: \S*f\d\d", CONVERTS),
    ("kind: Bool|is not a boolean|to be a boolean", "A condition is a comparison: `i > 0u`."),
    ("kind: Sint|expected to be `i32`, but got `u32`",
     "A signed and an unsigned whole number stand side by side: write `32u`, or `u32(i)`."),
    (r"expected assignment or increment/decrement|expected operation|identifier: `(float|int|uint|double)`",
     "No type stands before a name: `let i = ...;`, or `var i = ...;` for what changes. Types: `f32`, `u32`."),
    ("Unexpected runtime-expression", "`const` holds what is known before the run; name other values by `let`."),
    ("with `var` instead of `let`|increment/decrement operation requires",
     "`let` names a value for good; what changes is a `var`."),
    (r"expected `\{`", "WGSL wants braces, also around one statement: `if (...) { return; }`."),
    (r'found "\?"', "WGSL has no `? :`; write `select(no, yes, condition)`."),
    (r'expected `\)`, found "="', "A comparison is written `==`."),
    (r"found \"(\w+|\})\"", "Does the statement before end with a semicolon?"),
    ("identifier: `(get_global_id|barrier|get_local_id|workgroupbarrier)`",
     "In WGSL it is `id.x`, and `workgroupBarrier();`."),
    ("identifier: `(relu|ReLU|fmax)`", "In WGSL it is `max(a, b)`."),
)  # fmt: skip


def hint(why: str) -> str:
    """Return a line that helps with what the compiler complains about, empty if nothing is known about it."""
    said = why.partition("\n")[0]
    return next((helps for part, helps in HINTS if re.search(part, said)), "")


# ---------------------------------------------------------------------------------------------- a look at the source


class Block(NamedTuple):
    """A block of a kernel between braces."""

    head: str  # what stands before it, such as `if (local.x < step)`
    differs: bool  # whether only some invocations of a workgroup may come here


ASSIGNMENT = re.compile(r"\b(\w+)(?:\s*:\s*[\w<>, ]+?)?\s*(?:(?:[-+*/%|&^]|<<|>>)?=(?!=)|\+\+|--)([^;{]*)")


def _uniform_barriers(source: str) -> None:
    """Refuse a barrier that only some invocations may reach: WGSL forbids it, wgpu 0.32 does not look.

    A small version of the uniformity analysis of the WGSL specification: what depends on an invocation's own number, or
    on memory that others write, differs between invocations; a block under such a condition holds no barrier, and
    after a `return` or `break` under one there is none. It follows names, not functions.
    """
    plain = webgpu.without_comments(source)
    if not re.search(r"\b(workgroup|storage)Barrier\b", plain):
        return
    differs = {one for builtin in BUILTINS for one in re.findall(rf"@builtin\(\s*{builtin}\s*\)\s*(\w+)", plain)}
    differs |= set(re.findall(r"var\s*<\s*(?:workgroup|private|storage\s*,\s*read_write)\s*>\s*(\w+)", plain))
    seen: set[str] = set()
    while seen != differs:  # a name that differs makes others differ, also those of the loop's next round
        seen = set(differs)
        differs |= {name for name, value in ASSIGNMENT.findall(plain) if set(re.findall(r"\w+", value)) & differs}
        refusals = _walk(plain, differs)
    if refusals:
        raise checks.NotYet(refusals[0])


def _walk(plain: str, differs: set[str]) -> list[str]:
    """Return why a barrier is refused, for each; add the names that are assigned where only some come to `differs`."""
    blocks: list[Block] = []
    refusals = []
    closed, gone, start, depth = Block("", False), 0, 0, 0
    for found in re.finditer(r"[(){};]|\b(?:(?:workgroup|storage)Barrier|return|break|continue)\b", plain):
        mark, inside = found[0], bool(blocks) and blocks[-1].differs
        depth += (mark == "(") - (mark == ")")
        if inside and mark == ";":
            differs |= {name for name, _ in ASSIGNMENT.findall(plain[start : found.start()])}
        if mark == "{":
            head = " ".join(plain[start : found.start()].split())
            own = re.match(r"(?:else|if|while|for|switch)\b", head) and set(re.findall(r"\w+", head)) & differs
            otherwise = head.startswith("else") and closed.differs
            blocks.append(Block(head, inside or bool(own) or otherwise))
        elif mark == "}" and blocks:
            closed = blocks.pop()
            gone = min(gone, len(blocks))
        elif mark in ("return", "break", "continue") and inside:
            loops = [n for n, block in enumerate(blocks, 1) if re.match(r"(?:for|while|loop)\b", block.head)]
            gone = max(gone, loops[-1] if loops and mark != "return" else 1)
        elif mark.endswith("Barrier") and (inside or gone):
            line = plain.count("\n", 0, found.start()) + 1
            where = [block.head for block in blocks if block.differs]
            why = f"it stands in `{where[0]}`" if where else "some of them may have left before it"
            refusals.append(
                f"line {line}: not all invocations of the workgroup reach this {mark}(): {why}. WGSL forbids that, and "
                "browsers refuse such a kernel."
            )
        if mark in "{}" or (mark == ";" and depth == 0):
            start = found.end()
    return refusals


STORE = re.compile(r"\b(\w+)\s*(?:\[[^;={]*\])?(?:\s*:\s*[\w<>, ]+?)?\s*(?:[-+*/%|&^]|<<|>>)?=(?!=)([^;{]*)")


def _shared_memory(source: str) -> None:
    """Refuse a sum that is right without workgroup memory, or right by luck without barriers that it needs."""
    plain = webgpu.without_comments(source)
    shared = set(re.findall(r"var\s*<\s*workgroup\s*>\s*(\w+)", plain))
    result = re.search(r"@binding\(\s*1u?\s*\)[^;]*?>\s*(\w+)\s*:", plain)
    behind, seen = {result[1]} if result else set(), set()
    while seen != behind:  # all that the result is made of
        seen = set(behind)
        behind |= {word for name, value in STORE.findall(plain) if name in behind for word in re.findall(r"\w+", value)}
    if not shared & behind:
        raise checks.NotYet("the sums are right, but not made of what lies in workgroup memory, `var<workgroup>`.")
    if not re.search(r"\bworkgroupBarrier\b|\bworkgroupUniformLoad\b", plain):
        raise checks.NotYet(
            "the sums came out right on this adapter, by luck: no workgroupBarrier() stands between a write to "
            "workgroup memory and another invocation's read."
        )
