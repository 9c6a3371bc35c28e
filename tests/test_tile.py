"""helpers.tile: every operation against NumPy, programs made at random, and every error, on a real OpenCL device."""

import random
import sys
from dataclasses import dataclass

import numpy as np

from helpers import tile

NAMES = "ijkm"
REACH = {1: 90, 2: 90, 3: 32, 4: 14}  # how far from 0 the interpreter looks for points, by the number of indices


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
    dtype: str

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
    where = tuple(value(e)[valid] for e in case.output)
    starts = {"+": 0, "*": 1, ">": -(2**31), "<": 2**31 - 1, "=": 0}
    combine = {"+": np.add, "*": np.multiply, ">": np.maximum, "<": np.minimum, "=": np.add}[case.aggregate]
    wide = np.int64 if case.dtype == "int32" else np.float64
    out = np.full(tuple(case.sizes), starts[case.aggregate], wide)
    counts = np.zeros(tuple(case.sizes), int)
    combine.at(out, where, values.astype(wide))
    np.add.at(counts, where, 1)
    return np.where(counts > 0, out, 0).astype(case.dtype), counts


# ------------------------------------------------------------------------------------- programs made at random


def any_expression(rng, names, most=2):
    chosen = rng.sample(names, min(len(names), rng.choice([0, 1, 1, 1, 2, 2][: 4 + most])))
    expression = {name: rng.choice([-2, -1, 1, 1, 1, 2, 3]) for name in chosen}
    if not chosen or rng.random() < 0.4:
        expression[""] = rng.randint(-3, 3)
    return expression


def any_case(rng):
    """A contraction at random: half of them of any kind, half like products and convolutions, which are blocked."""
    size = lambda: rng.choice([1, 2, 3, 4, 5, 6, 7, 11])  # noqa: E731
    names = list(NAMES[: rng.choice([1, 2, 2, 3, 3, 4])])
    two = rng.random() < 0.6
    if rng.random() < 0.5:
        output = [any_expression(rng, names) for _ in range(rng.choice([0, 1, 1, 2, 2, 3]))]
        accesses = [[any_expression(rng, names) for _ in range(rng.choice([0, 1, 2, 2, 3]))] for _ in range(1 + two)]
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
        for one in (output, first, second):
            if rng.random() < 0.5:
                rng.shuffle(one)
        accesses = [first, second] if rng.random() < 0.5 else [second, first]
    constraints = [(any_expression(rng, names), size()) for _ in range(rng.choice([0, 0, 0, 1, 2]))]
    inputs = [(access, tuple(size() for _ in access)) for access in accesses]
    aggregate = rng.choice("+++*><=")
    tiles = [None, None, (1, 1), (2, 4), (3, 8), (4, 16), (5, 32), (3, 1), (1, 2)]
    return Case(output, [size() for _ in output], aggregate, rng.choice("*+") if two else "", inputs, constraints,
                rng.choice(tiles), rng.choice(["int32", "int32", "float32"]))  # fmt: skip


def bounded(case):
    """Whether every index is bounded: whether the inequalities' factors leave no direction free."""
    names = case.indices
    matrix = np.array([[e.get(name, 0) for name in names] for e, _ in case.limits]).reshape(-1, len(names))
    return not names or np.linalg.matrix_rank(matrix) == len(names)


def run_case(case, rng):
    """Compile and run one case, compare it with the interpreter, and return what became of it."""
    source = case.source(rng)
    numbers = np.random.default_rng(rng.randrange(2**32))
    arrays = [numbers.integers(-3, 4, shape).astype(case.dtype) for _, shape in case.inputs]
    function = tile.Function(source, tile=case.tile)
    try:
        stages = function.stages(*arrays)
    except tile.TileError as error:
        if "cannot be bounded" in str(error):
            assert not bounded(case), source
            return "unbounded"
        assert "needs one value" in str(error), (source, error)
        return "assignment"
    assert bounded(case), source
    reach = REACH.get(len(case.indices), 0)
    ranges = stages.ranges.domains[0].ranges.values()
    if any(r and (r.start < -reach or r.stop - 1 > reach) for r in ranges):
        return "too wide to walk"
    expected, counts = interpret(case, arrays)
    if case.aggregate == "=":
        assert counts.max() <= 1, source
    came = function(*arrays)
    assert came.shape == expected.shape and came.dtype == expected.dtype, source
    if case.dtype == "int32":
        assert np.array_equal(came, expected), (source, case.tile, [a.shape for a in arrays], came, expected)
    else:
        np.testing.assert_allclose(came, expected, rtol=1e-4, atol=1e-4, err_msg=f"{source} {case.tile}")
    block = "blocked" if stages.tiles.blocks[0] else "one by one"
    return f"{block}, {'empty' if not counts.any() else 'some elements unreached' if not counts.all() else 'full'}"


def fuzz(cases, seed=0):
    """Run many random programs; `python tests/test_tile.py 1000` does. Returns how many ended how."""
    ends = {}
    for number in range(cases):
        rng = random.Random(seed * 1_000_003 + number)
        case = any_case(rng)
        try:
            end = run_case(case, rng)
        except BaseException:
            print("seed", seed, "case", number, case, file=sys.stderr)
            raise
        ends[end] = ends.get(end, 0) + 1
    return ends


def test_programs_made_at_random_do_what_they_say():
    assert sum(fuzz(40).values()) == 40


if __name__ == "__main__":
    print(fuzz(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
