"""Lesson 14, Compute on any GPU with WebGPU: the checks of its exercises, its tables, its timing, its figure."""

from __future__ import annotations

import math
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from helpers.compute import opencl, webgpu
from helpers.compute.host import cpu_name
from helpers.errors import WorkshopError
from helpers.judge import checks
from helpers.lessons import lesson_14_judge as judge
from helpers.lessons import lesson_14_web
from helpers.measure import timing
from helpers.measure.plots import BLUE, GREY, ORANGE, show, speeds
from helpers.measure.tables import Table
from helpers.measure.timing import Measurement

if TYPE_CHECKING:
    import wgpu

SECONDS = 60.0  # for a whole verdict


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
    """Draw the speed of every product with the middle half of its runs, and the ceiling as a line."""
    labels = list(bench.runs)
    kinds = {"WebGPU": ORANGE, "OpenCL": BLUE, "NumPy": GREY}
    ways, colours = {}, {}
    for label, run in bench.runs.items():
        low, high = run.quartiles
        name = f"{label}\n{run.device}"
        ways[name] = tuple(2 * bench.size**3 / seconds / 1e9 for seconds in (high, run.median, low))
        colours[name] = kinds[label.split()[0]]
    title = f"One product of two {bench.size} x {bench.size} matrices, float32"
    line = ("arithmetic alone, in OpenCL", ceiling[0]) if ceiling else None
    show(*speeds(ways, title, "speed in GFLOP/s", logarithmic=True, colours=colours, line=line))
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


# ---------------------------------------------------------------------------------------------- what a race is


def played(order: Iterable[int], barriers: bool) -> int:
    """Play the six rounds of the sum of 64 ones in Python; return what element 0 holds at the end.

    Args:
        order: of the 64 invocations: each runs as far as it can, then comes the next one.
        barriers: whether each waits for all others after a round.
    """
    near, order, steps = np.ones(judge.GROUP, int), list(order), (32, 16, 8, 4, 2, 1)
    turns = [(me, step) for step in steps for me in order] if barriers else [(me, s) for me in order for s in steps]
    for me, step in turns:
        if me < step:
            near[me] += near[me + step]
    return int(near[0])


def orders() -> Table:
    """Return a table: what the sum of 64 ones is in several orders, with barriers and without."""
    named = {
        "63 first, then 62, ... 0 last": range(judge.GROUP - 1, -1, -1),
        "0 first, then 1, ... 63 last": range(judge.GROUP),
        "1 first, then 2, ... 63, and 0 last": [*range(1, judge.GROUP), 0],
    }
    rows = [(words, played(order, True), played(order, False)) for words, order in named.items()]
    return Table(rows, ("who runs first", "sum of 64 ones with barriers", "without"))


# ---------------------------------------------------------------------------------------------- exercises


@checks.verdict
def check_saxpy(source: str) -> Iterator[str]:
    """Lesson 14, exercise 1: saxpy in WGSL."""
    yield judged(judge.judge_saxpy, source)


@checks.verdict
def check_dense(source: str) -> Iterator[str]:
    """Lesson 14, exercise 2: a dense layer with ReLU in WGSL. A right one reads the digits in the browser."""
    right = judged(judge.judge_dense, source)
    lesson_14_web.own_kernels["dense"] = source
    yield right


@checks.verdict
def check_sums(source: str) -> Iterator[str]:
    """Lesson 14, exercise 3: the sum of each workgroup, in workgroup memory."""
    yield judged(judge.judge_sums, source)


def judged(of_source: Callable[[str], str], source: object) -> str:
    """Let a judge run in a subprocess; without an adapter nothing is judged."""
    if webgpu.pick_adapter() is None:
        raise checks.NotJudged(webgpu.missing())
    if isinstance(source, str) and not source.strip():
        raise checks.NotDone("there is no kernel yet.")
    return checks.judge_in_subprocess(of_source, SECONDS, source=source)
