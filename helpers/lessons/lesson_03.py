"""Serve lesson 03, Write mathematics, not kernels: the checks of its exercises, its figure, its machinery."""

from __future__ import annotations

import contextlib
import functools
import math
import re
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from helpers import tile
from helpers.devices import opencl
from helpers.devices.host import cpu_name
from helpers.devices.kernel_text import KernelError
from helpers.judge import checks
from helpers.measure import plots, records, timing
from helpers.measure.plots import BLUE, GREEN, GREY, ORANGE, SKY
from helpers.measure.tables import Table
from helpers.measure.timing import Measurement, compare, duration
from helpers.tile.blocks import default_tile
from helpers.tile.syntax import FUNCTIONS, Node

if TYPE_CHECKING:
    from types import FrameType

    from matplotlib.figure import Figure

# An expression as exercise 2 has it: a name, a number, or a sign or a function with the parts that it works on.
Tree = str | float | tuple

CUMULATIVE = "function (I[N]) -> (O) { O[i: N] = +(I[k]), i - k < N; }"
THREE = "function (A[N], B[N], C[N]) -> (O) { P = A * B; Q = P + C; O = max(Q, 0.0); }"  # exercise 2 fuses them
COPY = "{G[i,j:M,N]=+(A[i,j]);}"  # exercise 1 as the learner finds it, without spaces
# The solution of exercise 3: it is timed where the learner's is not right.
SUMS = """
function (I[B, R]) -> (O) {
    T[b: B] = +(I[b, k]);
    F[b: B] = +(T[c]), b - c - 1 < B;
    P[b, r: B, R] = +(I[b, k]), r - k < R;
    O[b, r: B, R] = +(P[b, r] + F[b]);
}
"""
STEPS = 300_000  # of Python, its bytecodes, that a rule may execute for one tree
ROWS = 128  # of exercise 3, and their length
FEWER = 10  # at most one such part of the given line's points


@checks.print_verdict
def check_gram(source: str) -> Iterator[str]:
    """Judge exercise 1 of lesson 03: the product of every two columns."""

    def cases(rng: np.random.Generator) -> list[tuple]:
        return [
            (np.array([[1, 2], [3, 4]], np.float32),),
            *_make_matrices(rng, [(1, 5), (7, 1), (200, 3), (3, 200)], 70),
        ]

    if isinstance(source, str) and re.sub(r"//[^\n]*|\s", "", source).endswith(COPY):
        raise checks.NotDone("the line still copies A, as it did before you changed it.")
    ideas = {
        "each row meets each row": lambda a: a @ a.T,
        "each column meets only itself": lambda a: np.repeat((a * a).sum(0)[:, None], a.shape[1], 1),
    }
    yield judge_tile("gram", source, lambda a: a.T @ a, cases, ideas)


def judge_tile(
    name: str,
    source: str,
    reference: Callable[..., np.ndarray],
    cases: Callable[[np.random.Generator], Iterable[tuple]],
    ideas: Mapping[str, Callable[..., np.ndarray]],
) -> str:
    """Judge a function in the Tile language against NumPy on cases that change with each call.

    Args:
        name: of the learner's text, for messages.
        source: the Tile function, with one output.
        reference: returns the right output for the same arrays.
        cases: given a random generator, returns tuples of float32 arrays of whole numbers, small ones first.
        ideas: what a wrong answer may compute, by what it does wrong.

    Returns:
        What was tried, for the verdict.
    """
    if not isinstance(source, str):
        raise checks.NotDone(f"expected a text in Tile, came {checks.short(source)}.")
    if re.search(r"{\s*}", re.sub(r"//[^\n]*", "", source)):
        raise checks.NotDone("there is no statement yet (what stands behind // is a comment).")
    try:
        learner = tile.Function(source)
    except tile.TileError as error:
        raise checks.NotYet(str(error)) from None

    def run(*arrays: np.ndarray) -> object:
        try:
            return learner(*arrays)
        except tile.TileError as error:
            raise checks.NotYet(f"with an array of shape {arrays[0].shape}, {error}") from None
        except KernelError as error:  # what the compiler of this workshop wrote is no fault of the learner's
            raise checks.CannotTell(str(error)) from None

    run.__name__ = name  # messages say gram([[1, 2], [3, 4]])
    try:
        return checks.judge_function(run, reference, cases)
    except checks.NotYet as problem:
        arrays = [*cases(np.random.default_rng(0))][-1]
        try:
            actual = np.asarray(learner(*arrays))
        except (tile.TileError, KernelError):  # it also stops here; the first message says where it stopped first
            raise problem from None
        found = [idea for idea, compute in ideas.items() if np.array_equal(actual, compute(*arrays))]
        sentence = str(problem).removesuffix(".") + "."
        raise checks.NotYet(f"{sentence} That is the result if {found[0]}." if found else str(problem)) from None


def _make_matrices(rng: np.random.Generator, shapes: list[tuple[int, int]], most: int) -> list[tuple[np.ndarray]]:
    """Return arrays of whole numbers, which a message shows in few digits, of these shapes and of three random ones.

    The random shapes have fewer than `most` rows and columns.
    """
    shapes = [(1, 1), (2, 3), *shapes, *((int(m), int(n)) for m, n in rng.integers(2, most, (3, 2)))]
    return [(rng.integers(-9, 10, shape).astype(np.float32),) for shape in shapes]


def substitute(tree: Tree, name: str, value: Tree) -> Tree:
    """Return a tree with `value` wherever it has `name`: the solution of exercise 2."""
    if tree == name:
        return value
    if isinstance(tree, tuple):
        return (tree[0], *(substitute(part, name, value) for part in tree[1:]))
    return tree


@checks.print_verdict
def check_substitute(rule: Callable[[Tree, str, Tree], Tree]) -> Iterator[str]:
    """Judge exercise 2 of lesson 03: the step of a compiler that puts one statement into another."""

    @functools.wraps(rule)
    def limited(tree: Tree, name: str, value: Tree) -> Tree:
        who = getattr(rule, "__name__", "the rule")
        with _limit_steps(STEPS, who):
            try:
                return _freeze(rule(tree, name, value))
            except RecursionError:
                if substitute(value, name, 0.0) == value:  # it doesn't hold the name
                    raise
                raise checks.NotYet(
                    f"{who}({tree!r}, {name!r}, {value!r}) called itself too often. The value holds the name here: put "
                    "it in once."
                ) from None

    def cases(rng: np.random.Generator) -> list[tuple]:
        product = ("*", "A", "B")
        return [
            (("+", "P", "C"), "P", product),
            (("+", "C", "P"), "P", product),
            ("P", "P", product),
            (("max", ("+", "Q", "C"), 0.0), "Q", product),
            (("*", "P", ("-", "P")), "P", ("+", "A", 1.0)),
            (("+", "P", "C"), "P", ("*", "P", "A")),  # the value has the name: it is put in once
            (("?", (">", "P", "P2"), ("exp", "P"), "PP"), "P", "C"),
            (("max", "C", 0.0), "P", product),
            ("C", "P", 2.0),
            *((_grow_tree(rng, 5), name, _grow_tree(rng, 2)) for name in ("P", "P1", "A", "B", "C")),
        ]

    tried = checks.judge_function(limited, substitute, cases)
    fused = fuse(THREE, limited)
    kernels = [len(tile.Function(source).stages((8,), (8,), (8,)).code.kernels) for source in (THREE, fused)]
    yield checks.keep_right("fused", fused, tried)  # the text: the name of a rule that calls itself may change
    yield f"{kernels[0]} kernels become {kernels[1]}: {fused.partition('{ ')[2].rstrip('} ')}"


@contextlib.contextmanager
def _limit_steps(most: int, name: str) -> Generator[None]:
    """Stop Python code that never ends by its work, not by its time.

    Args:
        most: bytecodes that the code may execute.
        name: of the learner's function.

    Raises:
        NotYet: it has executed more.
    """
    left = most

    def count(frame: FrameType, event: str, argument: object) -> Callable:
        nonlocal left
        frame.f_trace_opcodes = True  # `while True: pass` has no further lines
        left -= event == "opcode"
        if left < 0:
            raise checks.NotYet(f"{name} had not ended after {most:,} steps of Python for one tree.")
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        yield
    finally:
        sys.settrace(before)


def _freeze(tree: Tree) -> Tree:
    """Return a tree with tuples in place of lists, which are as right."""
    return tuple(map(_freeze, tree)) if isinstance(tree, list | tuple) else tree


def _grow_tree(rng: np.random.Generator, depth: int) -> Tree:
    """Return a random tree of names and numbers with at most `depth` signs one within the other."""
    if depth == 0 or rng.random() < 0.2:
        return [*"PABC", "P1", 0.5][rng.integers(6)]
    sign = ("+", "-", "*", "max", "min", "exp")[rng.integers(6)]
    return (sign, *(_grow_tree(rng, depth - 1) for _ in range(FUNCTIONS.get(sign, 2))))


def fuse(source: str, rule: Callable[[Tree, str, Tree], Tree]) -> str:
    """Return a Tile function with one statement for each output.

    Args:
        source: a Tile function whose statements are all element-wise.
        rule: puts a tree in the place of a name, as `substitute` does.
    """
    program, made = tile.parse(source), {}
    for statement in program.statements:
        tree = _make_tree(statement.value)
        for name, value in made.items():  # each of these is already made of inputs alone
            tree = _freeze(rule(tree, name, value))
        made[statement.name] = tree
    statements = " ".join(f"{name} = {_make_node(made[name])};" for name in program.outputs)
    return f"{source.partition('{')[0]}{{ {statements} }}"


def _make_tree(node: Node) -> Tree:
    """Return what the compiler read as tuples, names and numbers."""
    if node.kind in ("name", "number"):
        return node.text if node.kind == "name" else float(node.text)
    return (node.text, *map(_make_tree, node.parts))


def _make_node(tree: Tree) -> Node:
    """Return tuples, names and numbers as the compiler's own tree, which prints itself as Tile."""
    if isinstance(tree, tuple | list):
        sign, *parts = tree
        return Node("call" if sign in FUNCTIONS else "operator", sign, 0, tuple(map(_make_node, parts)))
    return Node("name" if isinstance(tree, str) else "number", str(tree), 0)


@checks.print_verdict
def check_sums(source: str) -> Iterator[str]:
    """Judge exercise 3 of lesson 03: the sum up to each element, with far fewer points than one statement visits."""

    def right(values: np.ndarray) -> np.ndarray:
        return np.cumsum(values, dtype=np.float64).reshape(values.shape)

    def cases(rng: np.random.Generator) -> list[tuple]:
        first = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
        return [(first,), *_make_matrices(rng, [(1, 6), (5, 1), (200, 3), (3, 200)], 40)]

    ideas = {
        "row b counts among the rows before it": lambda values: right(values) + values.sum(1, keepdims=True),
        "the rows before are left out": lambda values: np.cumsum(values, axis=1),
    }
    tried = judge_tile("sums", source, right, cases, ideas)
    asked, given = count_points(source, (ROWS, ROWS)), count_points(CUMULATIVE, (ROWS * ROWS,))
    if FEWER * asked > given:
        raise checks.NotYet(
            f"the results are right, but for {ROWS} rows of {ROWS} your kernels visit {asked:,} points. The one "
            f"line above visits {given:,}: visit at most 1/{FEWER} of them."
        )
    yield tried
    yield f"{asked:,} points for {ROWS} rows of {ROWS}, and the one line visits {given:,}"


def count_points(source: str, *shapes: tuple[int, ...]) -> int:
    """Return how many points the kernels of a Tile function visit, valid or not: all turns of all loops."""
    program = tile.parse(source)
    nests = tile.flatten(program, tile.infer(program, shapes)).parts
    return sum(math.prod([*nest.outputs.values(), *map(len, nest.loops.values())]) for nest in nests)


# ------------------------------------------------------------------------------------------------------ its cells


def claim_ratio(before: Measurement, after: Measurement, others: float) -> str:
    """Print which of two is faster, and return how many times as fast or as long the second is, or "no claim".

    Args:
        before: what was timed.
        after: what was timed beside it.
        others: what share of the cores other programs used meanwhile, 0 to 1.
    """
    if busy := timing.describe_slowdown(others):
        print(busy)
    print(compare(before, after, others=others))
    return timing.describe_gain(before, after, others=others)


def draw_blocks(runs: Mapping[str, Measurement], blocks: Mapping[str, tuple[int, int]], n: int, others: float) -> None:
    """Draw the speed of a product for each block, with what was counted, and compare two of them each.

    Args:
        runs: what was timed, by label; that of NumPy is "NumPy".
        blocks: rows and columns of the blocks among them.
        n: rows and columns of the matrices.
        others: what share of the cores other programs used meanwhile, 0 to 1.
    """
    work, colors = 2e-9 * n**3, {}
    blocks = {**blocks, "the compiler's": default_tile(opencl.pick_device())}
    speeds: dict[str, tuple[float, float, float]] = {}
    for label, run in runs.items():
        low, high = sorted(work / seconds for seconds in run.quartiles)
        name = _describe_block(label, blocks)
        speeds[name] = (low, work / run.median, high)
        colors[name] = {"1 x 16": ORANGE, "4 x 16": GREEN, "NumPy": GREY, "yours": SKY}.get(label, BLUE)
        records.add_run(run, "GFLOP/s", work, f"{n:,} x {n:,}", label)
    title = f"The same product in blocks, on {runs['4 x 16'].device}; NumPy on {runs['NumPy'].device}"
    is_busy = others > timing.BUSY
    if is_busy:
        title = f"Trust the lines below, not these bars: others used {100 * others:.0f} % of the processor"
    drawn, alt = plots.draw_speeds(speeds, title, "speed of the product, GFLOP/s", colors=colors)
    if is_busy:
        _hollow_bars(drawn)
    plots.show(drawn, alt)
    for first, second in (("1 x 16", "1 x 64"), ("1 x 64", "4 x 16"), ("yours", "the compiler's")):
        print(compare(runs[first], runs[second], others=others))
    if is_busy:  # as for the products of lesson_02b_race.describe_race
        print("the compiler's against NumPy: no claim. NumPy's threads wait for each other, and can lose more.")
    else:
        print(compare(runs["NumPy"], runs["the compiler's"]))


def _hollow_bars(drawn: Figure) -> None:
    """Draw hatched outlines in place of bars, so that no one takes them for a result."""
    for bar in drawn.axes[0].patches:
        bar.set(edgecolor=bar.get_facecolor(), facecolor="white", hatch="//")


def _describe_block(label: str, blocks: Mapping[str, tuple[int, int]]) -> str:
    """Return the label with the block's shape, and below it what is counted of it."""
    if label not in blocks:
        return label
    rows, columns = blocks[label]
    shape = "" if label == f"{rows} x {columns}" else f", {rows} x {columns}"
    return f"{label}{shape}\n{1 / rows + 1 / columns:.2f} loaded, vectors of {min(columns, tile.WIDEST)}"


def tabulate_sums(asked: Mapping[int, int], statements: str) -> Table:
    """Return a table of the cumulative sum: the one line, exercise 3 with rows of several lengths, and NumPy.

    Args:
        asked: for each length of the rows how many points the statements visit.
        statements: of exercise 3, right ones.
    """
    program, one_line = tile.Function(statements), tile.Function(CUMULATIVE)
    numbers = np.random.default_rng(0).standard_normal(ROWS * ROWS, dtype=np.float32)
    counted = {"the one line": f"{count_points(CUMULATIVE, (numbers.size,)):,} points"}
    with timing.Load() as load:
        by_numpy = timing.measure(lambda: np.cumsum(numbers), device=cpu_name())
        runs = {"the one line": one_line.measure(numbers, repeats=5)}
        for length, points in asked.items():
            counted[f"rows of {length:,}"] = f"{points:,} points"
            runs[f"rows of {length:,}"] = program.measure(numbers.reshape(-1, length))
    rows = []
    for name, run in {**runs, "NumPy": by_numpy}.items():
        is_apart = min(run.seconds) > max(by_numpy.seconds) or timing.is_clear(run, by_numpy)
        beside = _describe_share(run, by_numpy, load.others) if is_apart else "no claim"
        count = counted.get(name, f"{numbers.size:,} numbers")
        rows.append((name, count, duration(run.median), duration(run.spread), "1" if name == "NumPy" else beside))
    below = [f"NumPy on {by_numpy.device}, the rest on {opencl.name(program.device)}."]
    if busy := timing.describe_slowdown(load.others):
        below.append(busy)
    return Table(rows, ("", "counted", "time", "spread", "times as long as NumPy"), below)


def _describe_share(run: Measurement, by_numpy: Measurement, others: float) -> str:
    """Return how many times as long as NumPy a run takes, or the bound that other programs leave of it.

    Args:
        run: what was timed.
        by_numpy: what was timed beside it.
        others: what share of the cores other programs used meanwhile, 0 to 1.
    """
    least = timing.find_factor(run, by_numpy) / timing.find_slowdown(others)
    if least <= 1:
        return "no claim"
    is_slower = run.median > by_numpy.median
    bound = "" if not others > timing.BUSY else "at least " if is_slower else "at most "
    return f"{bound}{float(f'{least if is_slower else 1 / least:.2g}'):,g}"
