"""helpers.tile: every operation against NumPy, programs made at random, and every error, on a real OpenCL device.

Under Linux, on a processor, each tensor lies beside a page that may not be touched: the process dies where a kernel
leaves it.
"""

import ctypes
import dataclasses
import math
import mmap
import random
import sys
import types
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pyopencl as cl
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from helpers import tile
from helpers.devices import opencl
from helpers.devices.host import cpu_name
from helpers.errors import WorkshopError

pytestmark = pytest.mark.usefixtures("one_context")

DEVICE = opencl.pick_device()
# Pages can be forbidden to kernels where they run in our own process.
IS_FENCED = sys.platform == "linux" and opencl.kind(DEVICE) == "cpu"

NAMES = "ijkm"
REACH = {1: 90, 2: 90, 3: 26, 4: 12}  # how far from 0 the interpreter looks for points, by the number of indices


# ------------------------------------------------------------------------------------- the meaning, written directly


@dataclass
class Case:
    """A contraction as plain data: index expressions are dictionaries of factors, the constant under ""."""

    output: list[dict]
    sizes: list[int]
    aggregate: str
    combine: str
    inputs: list[tuple[list[dict], tuple[int, ...]]]
    constraints: list[tuple[dict, int]]
    tile: tuple[int, int] | None

    @property
    def indices(self):
        expressions = [
            *self.output,
            *(e for access, _ in self.inputs for e in access),
            *(e for e, _ in self.constraints),
        ]
        return sorted({name for e in expressions for name in e if name})

    @property
    def limits(self):
        """Every pair (expression, size) that means 0 <= expression < size."""
        pairs = [*zip(self.output, self.sizes, strict=True), *self.constraints]
        return pairs + [pair for access, shape in self.inputs for pair in zip(access, shape, strict=True)]

    def source(self, rng):
        """The case in Tile; every size is a letter of an input or a number."""
        headers = []
        for number, (_, shape) in enumerate(self.inputs):
            headers.append(f"{'AB'[number]}[{', '.join(f'S{number}{d}' for d in range(len(shape)))}]")
        reads = [
            f"{'AB'[n]}[{', '.join(written(e, rng) for e in access)}]" for n, (access, _) in enumerate(self.inputs)
        ]
        sizes = f": {', '.join(map(str, self.sizes))}" if self.sizes else ""
        left = f"O[{', '.join(written(e, rng) for e in self.output)}{sizes}]"
        limits = "".join(f", {written(e, rng)} < {size}" for e, size in self.constraints)
        right = f"{self.aggregate}({f' {self.combine} '.join(reads)}){limits}"
        return f"function ({', '.join(headers)}) -> (O) {{ {left} = {right}; }}"


def written(expression, rng):
    """An index expression in Tile, its terms in any order."""
    terms = []
    for name, factor in expression.items():
        if not name:
            terms.append(str(factor))
        else:
            terms.append(name if factor == 1 else f"-{name}" if factor == -1 else f"{factor} * {name}")
    rng.shuffle(terms)
    return " + ".join(terms) if terms else "0"


def interpret(case, arrays):
    """Walk over all points of a box, keep the valid ones, and combine their values element by element."""
    names = case.indices
    reach = REACH.get(len(names), 0)
    grid = np.meshgrid(*[np.arange(-reach, reach + 1)] * len(names), indexing="ij") if names else []
    at = {name: g.ravel() for name, g in zip(names, grid, strict=True)}
    count = len(at[names[0]]) if names else 1

    def value(expression):
        total = np.full(count, expression.get("", 0))
        for name, factor in expression.items():
            if name:
                total = total + factor * at[name]
        return total

    valid = np.ones(count, bool)
    for e, size in case.limits:
        valid &= (value(e) >= 0) & (value(e) < size)
    found = []
    for array, (access, _) in zip(arrays, case.inputs, strict=True):
        found.append(array[tuple(value(e)[valid] for e in access)] * np.ones(valid.sum(), array.dtype))
    values = found[0] if len(found) == 1 else found[0] * found[1] if case.combine == "*" else found[0] + found[1]
    where = (np.zeros(valid.sum(), int), *(value(e)[valid] for e in case.output))
    starts = {"+": 0, "*": 1, ">": -np.inf, "<": np.inf, "=": 0}
    combine = {"+": np.add, "*": np.multiply, ">": np.maximum, "<": np.minimum, "=": np.add}[case.aggregate]
    out = np.full((1, *case.sizes), starts[case.aggregate], np.float64)
    counts = np.zeros((1, *case.sizes), int)
    combine.at(out, where, values.astype(np.float64))
    np.add.at(counts, where, 1)
    assert case.aggregate != "=" or counts.max() <= 1
    return np.where(counts > 0, out, 0)[0].astype(np.float32)


# ------------------------------------------------------------------------------------- programs made at random


def any_expression(rng, names, factors=(-2, -1, 1, 1, 1, 1, 2, 3)):
    chosen = rng.sample(names, min(len(names), rng.choice([0, 1, 1, 1, 1, 1, 2, 2, 2])))
    expression = {name: rng.choice(factors) for name in chosen}
    if not chosen:
        expression[""] = rng.choice([0, 0, 0, 1, 3])
    elif rng.random() < 0.4:
        expression[""] = rng.randint(-3, 3)
    return expression


def any_case(rng):
    """A contraction at random: half of them of any kind, half like products and convolutions, which are blocked."""
    size = lambda: rng.choice([1, 2, 3, 4, 5, 6, 7, 7, 8, 9, 9, 11, 11, 13, 13, 37])  # noqa: E731
    names = list(NAMES[: rng.choice([1, 2, 2, 3, 3, 4])])
    two = rng.random() < 0.6
    if rng.random() < 0.5:
        # On the left a factor is refused if no index beside it could be solved for.
        factors = rng.choice([(-1, 1, 1), (-1, 1, 1), (1, 1, 2)])
        output = [any_expression(rng, names, factors) for _ in range(rng.choice([0, 1, 1, 2, 2, 3]))]
        accesses = [[any_expression(rng, names) for _ in range(rng.choice([0, 1, 1, 2, 2, 3]))] for _ in range(1 + two)]
    else:
        two, names = True, list(NAMES)
        output = [{"i": 1}, {"j": 1}]
        first = [
            {"i": 1} if rng.random() < 0.6 else {"i": rng.choice([1, 2]), "k": 1, "": rng.randint(-2, 1)},
            {"k": 1},
        ]
        second = [{"k": 1}, {"j": 1}]
        if rng.random() < 0.5:
            place = rng.randrange(3)
            first.insert(place, {"m": 1})
            second.insert(rng.randrange(3), {"m": 1} if rng.random() < 0.7 else any_expression(rng, ["k", "m"]))
            if rng.random() < 0.5:
                output.insert(rng.randrange(3), {"m": 1})
        else:
            names = list("ijk")
        for part in (output, first, second):
            if rng.random() < 0.5:
                rng.shuffle(part)
        accesses = [first, second] if rng.random() < 0.5 else [second, first]
    constraints = [(any_expression(rng, names), size()) for _ in range(rng.choice([0, 0, 0, 0, 1, 1, 2]))]
    inputs = [(access, tuple(size() for _ in access)) for access in accesses]
    aggregate = rng.choice("+++*><=")
    tiles = [None, None, (1, 1), (2, 4), (3, 8), (4, 16), (5, 32), (3, 1), (1, 2)]
    return Case(
        output,
        [size() for _ in output],
        aggregate,
        rng.choice("*+") if two else "",
        inputs,
        constraints,
        rng.choice(tiles),
    )


def bounded(case):
    """Whether every index is bounded: whether the inequalities' factors leave no direction free."""
    names = case.indices
    if not names:
        return True
    matrix = np.array([[e.get(name, 0) for name in names] for e, _ in case.limits]).reshape(-1, len(names))
    return np.linalg.matrix_rank(matrix) == len(names)


def build(codes):
    """Build many functions' kernels as one program, which takes a tenth of the time; return the queue and kernels."""
    texts, helpers = [], {}
    for number, code in enumerate(codes):
        helpers |= dict.fromkeys(code.helpers)
        texts += [kernel.source.replace("__kernel void ", f"__kernel void f{number}_") for kernel in code.kernels]
    context = cl.Context([DEVICE])
    program = opencl.build(context, "\n".join([*helpers, *texts]))
    built = [[cl.Kernel(program, f"f{n}_{kernel.name}") for kernel in code.kernels] for n, code in enumerate(codes)]
    return cl.CommandQueue(context), built


def run(queue, code, kernels, memory):
    """Run a function's kernels on its tensors, which lie in memory of ours."""
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
    buffers = {name: cl.Buffer(queue.context, flags, hostbuf=array) for name, array in memory.items()}
    for kernel, built in zip(code.kernels, kernels, strict=True):
        built(queue, kernel.global_size, kernel.local_size, *(buffers[name] for name in kernel.arguments))
    for name, array in memory.items():
        cl.enqueue_copy(queue, array, buffers[name])


def fenced(shape, at_end):
    """Memory for a tensor that begins or ends exactly at a page that may not be touched."""
    size = math.prod(shape)
    pages = -(-4 * size // mmap.PAGESIZE)
    memory = mmap.mmap(-1, (pages + 2) * mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for page in (0, pages + 1):
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(start + page * mmap.PAGESIZE), mmap.PAGESIZE, 0) == 0
    offset = mmap.PAGESIZE + (pages * mmap.PAGESIZE - 4 * size if at_end else 0)
    return np.frombuffer(memory, np.float32, size, offset).reshape(shape)


def run_together(calls):
    """What each function makes of its arrays, which it may not change; every second one in work-groups as on a GPU."""
    codes = []
    for number, (function, arrays) in enumerate(calls):
        stages = function.stages(*arrays)
        group = (8, 8) if number % 2 else stages.tiles.group
        codes.append(tile.emit(stages.flat, dataclasses.replace(stages.tiles, group=group)))
    queue, built = build(codes)
    for number, ((function, arrays), code, kernels) in enumerate(zip(calls, codes, built, strict=True)):
        memory = {}
        for name, array in code.arrays.items():
            memory[name] = fenced(array.shape, number % 3) if IS_FENCED else np.zeros(array.shape, np.float32)
        for tensor, array in zip(function.program.inputs, arrays, strict=True):
            memory[tensor.text][...] = array
        run(queue, code, kernels, memory)
        assert all(
            np.array_equal(memory[tensor.text], array)
            for tensor, array in zip(function.program.inputs, arrays, strict=True)
        )
        outputs = tuple(memory[name] for name in function.program.outputs)
        yield outputs[0] if len(outputs) == 1 else outputs


def why_not(case, function, arrays):
    """Why there is nothing to run of a case, which has to be right, or None."""
    try:
        domain = function.stages(*arrays).ranges.domains[0]
    except tile.TileError as error:
        if "cannot be bounded" in str(error):
            assert not bounded(case), function.program.source
            return "unbounded"
        return next(why for why in ("needs one value", "has a factor") if why in str(error))
    assert bounded(case), function.program.source
    reach = REACH.get(len(case.indices), 0)
    wide = any(r and (r.start < -reach or r.stop - 1 > reach) for r in domain.ranges.values())
    return "too wide to walk" if wide else None


def fuzz(count, seed=0):
    """Run many random programs; `python tests/test_tile.py 1000` does. Returns how many had which kind of kernel."""
    kinds = Counter()
    for start in range(0, count, 25):
        cases, calls = [], []
        for number in range(start, min(start + 25, count)):
            rng = random.Random(seed * 1_000_003 + number)
            case = any_case(rng)
            function = tile.Function(case.source(rng), device=DEVICE, tile=case.tile)
            numbers = np.random.default_rng(rng.randrange(2**32))
            arrays = [numbers.integers(-3, 4, shape).astype(np.float32) for _, shape in case.inputs]
            reason = why_not(case, function, arrays)
            if reason:
                kinds[reason] += 1
            else:
                cases.append(case)
                calls.append((function, arrays))
        for case, (function, arrays), actual in zip(cases, calls, run_together(calls), strict=True):
            expected = interpret(case, arrays)
            assert actual.shape == expected.shape and actual.dtype == expected.dtype, function.program.source
            what = f"{function.program.source} {case.tile} {[array.shape for array in arrays]}"
            np.testing.assert_allclose(actual, expected, 1e-4, 1e-4, err_msg=what)
            block = function.stages(*arrays).tiles.blocks[0]
            kinds["blocked" if block.panels else "strips" if block.columns > 1 else "one by one"] += 1
    return kinds


def test_programs_made_at_random_do_what_they_say():
    kinds = fuzz(25, seed=1)
    strips = opencl.kind(opencl.pick_device()) == "cpu"  # a GPU gets none
    assert kinds["blocked"] >= 3 and kinds["strips"] >= strips and kinds["one by one"] >= 5, kinds


# ------------------------------------------------------------------------------------- the operations

MATMUL = "function (A[M, L], B[L, N]) -> (C) { C[i, j: M, N] = +(A[i, k] * B[k, j]); }"
PADDED = """function (I[N, X, Y, CI], K[KX, KY, CI, CO]) -> (O) {
    O[n, x, y, co: N, X, Y, CO] = +(I[n, x + kx - KX / 2, y + ky - KY / 2, ci] * K[kx, ky, ci, co]);
}"""
SOFTMAX = """function (X[M, N]) -> (P) {
    Largest[i, j: M, 1] = >(X[i, k]), j < 1;
    E = exp(X - Largest);   // never above 1
    Sum[i, j: M, 1] = +(E[i, k]);
    P = E / Sum;
}"""


def convolve(i, k):
    """Padded convolution of (n, x, y, ci) with (kx, ky, ci, co), one shift of the kernel at a time."""
    _, high, wide, _ = i.shape
    out = np.zeros((*i.shape[:3], k.shape[3]))
    i = np.pad(i, ((0, 0), (k.shape[0] // 2,) * 2, (k.shape[1] // 2,) * 2, (0, 0)))
    for x in range(k.shape[0]):
        for y in range(k.shape[1]):
            out += np.einsum("nxyc,cd->nxyd", i[:, x : x + high, y : y + wide], k[x, y])
    return out


OPERATIONS = {  # Tile, the shapes of the inputs, NumPy; m, k, n are random sizes
    "matrix product": (MATMUL, lambda m, k, n: [(m, k), (k, n)], lambda a, b: a @ b),
    "sums, largest, smallest": (
        "function (A[M, L]) -> (S, G, T) { S[j: L] = +(A[i, j]); G[i: M] = >(A[i, j]); T[] = <(A[i, j]); }",
        lambda m, k, n: [(m, k)],
        lambda a: (a.sum(0), a.max(1), a.min()),
    ),
    "pooling": (
        "function (I[N, X, Y, C]) -> (O) {"
        " O[n, x, y, c: N, X / 2, Y / 3, C] = >(I[n, 2 * x + a, 3 * y + b, c]), a < 2, b < 3; }",
        lambda m, k, n: [(2, 2 * m + 1, 3 * k + 2, n)],
        lambda i: i[:, :-1, :-2].reshape(2, i.shape[1] // 2, 2, i.shape[2] // 3, 3, -1).max((2, 4)),
    ),
    "padded convolution": (PADDED, lambda m, k, n: [(2, m, k, 3), (5, 3, 3, n)], convolve),
    "largest of three rows": (
        "function (A[M, N]) -> (O) { O[i, j: M, N] = >(A[i + d - 1, j]), d < 3; }",
        lambda m, k, n: [(m, n)],
        lambda a: np.max([np.pad(a, ((2 - d, d), (0, 0)), constant_values=-np.inf)[1:-1] for d in range(3)], axis=0),
    ),
    "softmax": (
        SOFTMAX,
        lambda m, k, n: [(m, n)],
        lambda x: np.exp(x - x.max(1, keepdims=True)) / np.exp(x - x.max(1, keepdims=True)).sum(1, keepdims=True),
    ),
    "signs, brackets and sizes that are broadcast": (
        "function (A[M, N], B[N], C[], D[M, U]) -> (O, P, Q, R) { O = -(A - (B + C)) * (A - B - D) / (M + D * D);"
        " P = (A < B) + (A > D) * 2 - (A <= B) * (A >= C); Q = (A == A) != (B < C) ? min(A, B) : abs(D - N);"
        " R = (A ? 0 : 7.5) - (A > B ? -A : C > D ? B : 2); }",
        lambda m, k, n: [(m, n), (n,), (), (m, 1)],
        lambda a, b, c, d: (
            -(a - (b + c)) * (a - b - d) / (len(a) + d * d),
            (a < b) + (a > d) * 2.0 - (a <= b) * (a >= c),
            np.where(b < c, abs(d - len(b)), np.minimum(a, b)),
            np.where(a != 0, 0, 7.5) - np.where(a > b, -a, np.where(c > d, b, 2)),
        ),
    ),
    "functions": (
        "function (X) -> (R, E, L, S, T, A, P) { R = max(X, 0.0); E = exp(X); A = abs(X); L = log(A + 1.0);"
        " S = sqrt(A); T = tanh(X) + sin(X) - cos(X); P = pow(A + 0.5, min(X, 1)); }",
        lambda m, k, n: [(m, k, n)],
        lambda x: (
            np.maximum(x, 0),
            np.exp(x),
            np.log(abs(x) + 1),
            np.sqrt(abs(x)),
            np.tanh(x) + np.sin(x) - np.cos(x),
            abs(x),
            (abs(x) + 0.5) ** np.minimum(x, 1),
        ),
    ),
}
SIZES = st.sampled_from([1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 31, 33])


def tensors(shapes, seed=0):
    rng = np.random.default_rng(seed)
    return [np.asarray(rng.normal(size=shape), np.float32) for shape in shapes]


def assert_same(actual, expected, what=""):
    actual, expected = (result if isinstance(result, tuple) else (result,) for result in (actual, expected))
    for result, other in zip(actual, expected, strict=True):
        assert result.dtype == np.float32 and result.shape == np.shape(other), what
        np.testing.assert_allclose(result, other, rtol=1e-3, atol=1e-4, err_msg=what)


@settings(max_examples=2, derandomize=True, database=None, phases=[Phase.explicit, Phase.generate])
@example(13, 7, 37)
@given(SIZES, SIZES, SIZES)
def test_every_operation_is_what_numpy_says(m, k, n):
    calls = []
    for source, shapes, _ in OPERATIONS.values():
        calls.append((tile.Function(source, device=DEVICE), tensors(shapes(m, k, n), seed=m + 100 * k + 10_000 * n)))
    for operation, (_, arrays), actual in zip(OPERATIONS, calls, run_together(calls), strict=True):
        exact = [array.astype(np.float64) for array in arrays]
        assert_same(actual, OPERATIONS[operation][2](*exact), operation)


@pytest.mark.parametrize("tile_size", [None, (1, 1), (5, 4), (13, 48), (64, 1)])
def test_every_tile_gives_the_same(tile_size):
    a, b = tensors([(67, 31), (31, 53)])
    function = tile.Function(MATMUL, device=DEVICE, tile=tile_size)
    assert_same(function(a, b), a.astype(float) @ b)
    block = function.stages(a, b).tiles.blocks[0]
    assert (block.panels is None) == (tile_size == (1, 1))
    if tile_size:
        assert (block.rows, block.columns) == tile_size


@pytest.mark.parametrize("tile_size", [(65, 16), (6, 3), 4, (4, 8, 2)])
def test_a_tile_that_cannot_be_gives_a_message(tile_size):
    with pytest.raises(WorkshopError, match=r"(?s)A tile of .* cannot be\..*columns.*tile=\(6, 16\)"):
        tile.Function(MATMUL, device=DEVICE, tile=tile_size).stages((4, 4), (4, 4))


def test_the_default_tile_depends_on_the_vectors_of_the_device():
    def fake_device(kind, width):
        platform = types.SimpleNamespace(version="OpenCL 3.0 fake", name="fake")
        return types.SimpleNamespace(type=kind, native_vector_width_float=width, name="fake", platform=platform)

    widths = [tile.default_tile(fake_device(cl.device_type.CPU, width)) for width in (0, 1, 4, 8, 16)]
    assert widths == [(6, 8), (6, 8), (6, 8), (6, 16), (8, 32)]
    assert tile.default_tile(fake_device(cl.device_type.GPU, 1)) == (4, 4)


SMALL = {  # what Tile means where NumPy has no word for it: Tile, its inputs, its outputs
    "sizes divide towards zero": ("(I[N]) -> (O) { O[i: N + (1 - N) / 2] = =(I[i]); }", [[1, 2, 3, 4]], [[1, 2, 3]]),
    "numbers of elements are floats": ("(A[N]) -> (Q) { Q = A * (1 / 2) + (A < N); }", [[3, 1]], [[1.5, 1.5]]),
    "the largest of nothing": ("(I[N]) -> (O) { O[i: N + 2] = >(I[i - 1]); }", [[-3.0, -2]], [[0, -3, -2, 0]]),
    "no point at all": (
        "(I[N]) -> (O, P) { O[i: N] = >(I[i + k]), k < 0; P[i: N] = *(I[i]), k < 1, 5 < 3; }",
        [[-3.0, -2]],
        [[0, 0], [0, 0]],
    ),
    "an index of a constraint alone": ("(I[N]) -> (O) { O[i: N] = +(I[i]), k < 3; }", [[1.0, 5]], [[3, 15]]),
    "a single value": ("(X) -> (Y) { Y = X + 1; }", [2.0], [3]),
    "no input": ("() -> (Y) { Y = 2.5 * 2; }", [], [5]),
}


def test_small_examples():
    calls = []
    for source, inputs, _ in SMALL.values():
        arrays = [np.asarray(array, np.float32) for array in inputs]
        calls.append((tile.Function("function " + source, device=DEVICE), arrays))
    for what, actual in zip(SMALL, run_together(calls), strict=True):
        outputs = actual if isinstance(actual, tuple) else (actual,)
        assert [array.tolist() for array in outputs] == SMALL[what][2], what


# ------------------------------------------------------------------------------------- the stages


def test_every_stage_can_be_read():
    stages = tile.Function(SOFTMAX, device=DEVICE).stages((5, 8))
    assert str(stages.program).splitlines()[:4] == [
        "inputs  X[M, N]",
        "outputs P",
        "Largest[i, j] of shape (M, 1) = the largest of X[i, k], where 0 <= j < 1",
        "each element of E = exp(X - Largest)",
    ]
    assert "Largest: float32 5 x 1\nE: float32 5 x 8" in str(stages.ranges)
    assert (
        "    for each element: _at0 < 5, _at1 < 8\n    E[8 * _at0 + _at1] = exp(X[8 * _at0 + _at1] - Largest[_at0])"
        in str(stages.flat)
    )
    assert "E: one element a work-item (element-wise)" in str(stages.tiles)
    assert "E[8 * at0 + at1] = exp(X[8 * at0 + at1] - Largest_[at0]);" in str(stages.code)
    row = tile.Function("function (X[M, N]) -> (R) { R = X < M ? -X : 2 * (X + 1); }", device=DEVICE).stages((5, 8))
    assert str(row.flat).endswith("_item < 40\n    R[_item] = (X[_item] < 5) ? (-X[_item]) : (2 * (X[_item] + 1))")
    turned = tile.Function("function (I[N]) -> (O) { O[i + 1, 2 * i: N, 2 * N] = +(I[i]); }", device=DEVICE)
    assert "where i = _out0 - 1\n    only if _out1 + 2 == 2 * _out0\n" in str(turned.stages((4,)).flat)


def test_functions_and_numpy_are_measured_on_the_same_arrays_and_named_with_their_device():
    ways = {"ours": tile.Function(MATMUL, device=DEVICE), "NumPy": np.matmul}
    arrays = tensors([(16, 16), (16, 16)])
    measured = tile.measure_functions(ways, *arrays, repeats=3)
    assert [(run.label, run.device, len(run.seconds)) for run in measured.values()] == [
        ("ours", opencl.name(DEVICE), 3),
        ("NumPy", cpu_name(), 3),
    ]
    assert ways["ours"].measure(*arrays, repeats=3).label == "C[i, j: M, N] = +(A[i, k] * B[k, j])"


# ------------------------------------------------------------------------------------- the errors

ERRORS = {  # what is wrong: Tile, with the place marked by ^ in front of it, shapes (or None: at once), what is said
    "bracket": ("function (I[N]) -> (O) { O[i: N] = +(I[i^); }", None, "expected `,` or `]`, came `)`."),
    "after the end": ("function (I[N]) -> (O) { O = I; } ^x", None, "expected nothing more, came `x`."),
    "character": ("function (I[N]) -> (O) {\n\tO = I ^$ 2; }", None, "Tile has no character '$'."),
    "no sign": ("function (I[N]) -> (O) { O[i: N] = ^(I[i]); }", None, "For a sum, write = +(...);"),
    "division as in Python": (
        "function (I[N]) -> (O) { O[i: N // 2] = +(I[i]);\n^}",
        None,
        "Text after `//` is a comment",
    ),
    "factor on the left": ("function (I[N]) -> (O) { ^O[2 * i: N] = +(I[i]); }", [(4,)], "the index i has a factor"),
    "constraint by an index": (
        "function (I[N]) -> (O) { O[i: N] = +(I[k]), k < ^i; }",
        None,
        "For k <= i write i - k < N;",
    ),
    "power": ("function (I[N]) -> (O) { O = I *^* 2; }", None, "write A * A"),
    "added to": ("function (I[N]) -> (O) { O[i: N] ^+= I[i]; }", None, "For a sum, write = +(...);"),
    "mean at once": ("function (I[N]) -> (O) { O[] = +(I[i]) ^/ N; }", None, "as in O = S / N;"),
    "no star": ("function (I[N]) -> (O) { O[i: N / 2] = +(I[2^i]); }", None, "as in 2 * x."),
    "three tensors": ("function (I[N]) -> (O) { O[] = +(I[i] * I[i] ^+ I[i]); }", None, "one tensor, or two"),
    "no indices": ("function (I[N]) -> (O) { O = ^+(I); }", None, "O[i: N] = +(...);"),
    "round brackets": ("function (I[N]) -> (O) { O[i: N] = +(I^(i)); }", None, "in square brackets, as in A[i, j]."),
    "small tensor": ("function (I[N]) -> (O) { ^o = I; }", None, "starts with a capital letter, came `o`."),
    "constraint": ("function (I[N]) -> (O) { O[i: N] = +(I[k]), k ^<= i; }", None, "0 <= index expression"),
    "two comparisons": ("function (I[N]) -> (O) { O = I < 1 ^< 2; }", None, "Put brackets around the first"),
    "unknown function": ("function (I[N]) -> (O) { O = ^foo(I); }", None, "Tile has no function foo."),
    "number of arguments": ("function (I[N]) -> (O) { O = ^max(I); }", None, "max takes 2 arguments, 1 came."),
    "unknown name": ("function (I[N]) -> (O) { O = I + ^J; }", None, "unknown name J: expected a tensor or a size."),
    "index outside": ("function (I[N]) -> (O) { O = I + ^i; }", None, "the index i means nothing here"),
    "assigned twice": ("function (I[N]) -> (O) { O = I; ^O = I; }", None, "the name O is assigned twice."),
    "given twice": ("function (I[N], ^I) -> (O) { O = I; }", None, "the name I is given twice."),
    "never written": ("function (I[N]) -> (O, ^P) { O = I; }", None, "the output P is never written."),
    "listed twice": ("function (I[N]) -> (O, ^O) { O = I; }", None, "the output O is listed twice."),
    "unbounded": ("function (I[N]) -> (O) { O[i: N] = +(I[2 * ^k - j]); }", [(4,)], "counts once for every k"),
    "rank of an access": ("function (I[N]) -> (O) { O[i: N] = +(^I[i, k]); }", [(4,)], "2 indices, I has 1 dimension."),
    "shapes disagree": (MATMUL.replace("B[", "^B[", 1), [(2, 3), (4, 5)], "L is 3 in A[M, L] and 4 in B[L, N]."),
    "sizes missing": ("function (I[N]) -> (O) { ^O[i] = +(I[i]); }", [(4,)], "O[i] has 1 indices and 0 sizes."),
    "not positive": ("function (I[N]) -> (O) { O[i: N ^- 4] = +(I[i]); }", [(4,)], "size N - 4 of O is 0 for N = 4."),
    "empty input": ("function (^I[N]) -> (O) { O = I; }", [(0,)], "I[N] is empty"),
    "broadcast": ("function (I[N], J[M]) -> (O) { O = I * ^J; }", [(4,), (5,)], "does not fit the shape (4,)"),
    "two values": ("function (I[N]) -> (O) { ^O[] = =(I[k]); }", [(4,)], "for each element, the index k gives 4."),
    "division of an index": ("function (I[N]) -> (O) { O[i: N] = +(I[i ^/ 2]); }", [(4,)], "Only sizes are divided."),
    "two indices": ("function (I[N]) -> (O) { O[i: N] = +(I[i ^* k]); }", [(4,)], "multiplies two indices"),
    "fraction": ("function (I[N]) -> (O) { O[i: N] = +(I[^0.5 * i]); }", [(4,)], "expected a whole number"),
    "comparison in a size": ("function (I[N]) -> (O) { O[i: (N ^< 2)] = +(I[i]); }", None, "+ - * / alone"),
    "division by zero": ("function (I[N]) -> (O) { O[i: N ^/ 0] = +(I[i]); }", [(4,)], "divides by zero"),
    "large number": ("function (I[N]) -> (O) { O = I + ^1e39; }", [(4,)], "too large for float32"),
    "too many elements": ("function (I[N]) -> (O) { ^O[i, j: N, N] = +(I[i]); }", [(70_000,)], "4,900,000,000 "),
    "too far": ("function (I[N]) -> (O) { ^O[i: N] = +(I[i - 5 * 600000000]); }", [(4,)], "32 bits can count"),
    "few inputs": (MATMUL.replace("B[", "^B[", 1), [(2, 3)], "the input B[L, N] is missing: expected 2, came 1."),
    "many inputs": (MATMUL.replace("(", "^(", 1), [(2, 3)] * 3, "expected 2 inputs, came 3."),
}


@pytest.mark.parametrize("mistake", ERRORS)
def test_every_error_shows_the_place(mistake):
    marked, shapes, fact = ERRORS[mistake]
    at, source = marked.index("^"), marked.replace("^", "")
    with pytest.raises(tile.TileError) as caught:
        tile.Function(source, device=DEVICE).stages(*(shapes or []))
        assert shapes is not None
    line, column = source[:at].count("\n") + 1, at - (source[:at].rfind("\n") + 1) + 1
    assert fact in str(caught.value)
    assert (caught.value.line, caught.value.column) == (line, column)
    first, text, caret = str(caught.value).splitlines()[:3]
    assert first.startswith(f"Line {line}, column {column}: ")
    assert text[4:] in source
    assert text[caret.index("^") :].strip() == source[at:].split("\n")[0][: len(text) - caret.index("^")].strip()


if __name__ == "__main__":
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    print(fuzz(int(sys.argv[1]), seed))
