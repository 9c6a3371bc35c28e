"""Stage 2: find every size, the shape of every tensor, and the range of every index."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from helpers.tile.syntax import LARGEST, Node, Program, Statement

Limit = tuple["Affine", int]  # an expression and a size: 0 <= expression < size


@dataclass(frozen=True)
class Affine:
    """A sum of multiples of indices and a constant: `2*i + d - 1` is Affine({"i": 2, "d": 1}, -1).

    The names of Tile start with a letter; those that the compiler adds start with _.
    """

    terms: Mapping[str, int | Fraction] = field(default_factory=dict)
    constant: int | Fraction = 0

    def __add__(self, other: Affine) -> Affine:
        terms = dict(self.terms)
        for name, factor in other.terms.items():
            terms[name] = terms.get(name, 0) + factor
        return Affine({name: n for name, n in terms.items() if n}, self.constant + other.constant)

    def __mul__(self, factor: int | Fraction) -> Affine:
        return Affine({name: factor * n for name, n in self.terms.items() if factor}, factor * self.constant)

    def __sub__(self, other: Affine) -> Affine:
        return self + other * -1

    def replace(self, values: Mapping[str, Affine]) -> Affine:
        """Return this with expressions in the place of indices."""
        total = Affine({}, self.constant)
        for name, factor in self.terms.items():
            total += values.get(name, Affine({name: 1})) * factor
        return total

    def bounds(self, ranges: Mapping[str, range]) -> tuple[int, int]:
        """Return the smallest and the largest whole value while every index stays in its range."""
        low = high = self.constant
        for name, factor in self.terms.items():
            ends = factor * ranges[name].start, factor * (ranges[name].stop - 1)
            low, high = low + min(ends), high + max(ends)
        return math.ceil(low), math.floor(high)

    def text(self, spell: Callable[[str], str] = str) -> str:
        """Return it as an expression of C, each name as `spell` writes it."""
        words = ""
        for name, factor in sorted([*self.terms.items(), ("", self.constant)], key=lambda term: term[1] < 0):
            if not factor:
                continue
            size = abs(factor)
            term = spell(name) if name and size == 1 else f"{size} * {spell(name)}" if name else str(size)
            words += f" - {term}" if factor < 0 else f" + {term}"
        return words[3:] if words.startswith(" + ") else words.replace(" - ", "-", 1) or "0"

    __str__ = text


@dataclass(frozen=True)
class Array:
    """The shape of a tensor of float32."""

    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        """How many elements lie between neighbors, for each dimension; the last one is contiguous."""
        return tuple(math.prod(self.shape[d + 1 :]) for d in range(len(self.shape)))

    def __str__(self) -> str:
        return f"float32 {' x '.join(map(str, self.shape)) or 'single value'}"


@dataclass(frozen=True)
class Place:
    """The element of a tensor that a point reads or writes."""

    tensor: str
    array: Array
    indices: tuple[Affine, ...]  # one for each dimension
    at: int  # the position of the access in the source

    @cached_property
    def offset(self) -> Affine:
        """The element's position in flat memory: the sum of strides times indices."""
        return sum((e * stride for e, stride in zip(self.indices, self.array.strides, strict=True)), Affine())

    @property
    def names(self) -> set[str]:
        """Every name in the indices."""
        return {name for index in self.indices for name in index.terms}

    def __str__(self) -> str:
        return f"{self.tensor}[{self.offset}]"


@dataclass(frozen=True)
class Domain:
    """The points of a statement; of an element-wise one every element is a point."""

    statement: Statement  # its value with numbers in the place of sizes
    output: Place
    inputs: tuple[Place, ...]  # one for each access of the value
    limits: tuple[Limit, ...]  # what makes a point valid; those of the output come first
    ranges: dict[str, range]  # for each index a range outside which it has no valid point

    def __str__(self) -> str:
        lines = [f"    {r.start} <= {name} < {r.stop}" for name, r in self.ranges.items()]
        return "\n".join([self.statement.text, *lines])


@dataclass(frozen=True)
class Ranges:
    """Every size, every tensor's shape, and for each statement its points."""

    sizes: dict[str, int]
    arrays: dict[str, Array]
    domains: tuple[Domain, ...]

    def __str__(self) -> str:
        sizes = ", ".join(f"{name} = {size}" for name, size in self.sizes.items())
        arrays = [f"{name}: {array}" for name, array in self.arrays.items()]
        return "\n".join([sizes, *arrays, *map(str, self.domains)])

    __repr__ = __str__


def infer(program: Program, shapes: Sequence[tuple[int, ...]]) -> Ranges:
    """Find every size, the shape of every tensor, and the range of every index.

    Each access and each constraint says 0 <= expression < size. From these limits alone follow the ranges: see `bound`
    and `tighten`.

    Args:
        program: what `parse` returned.
        shapes: the shape of each input, in their order.

    Raises:
        TileError: shapes that do not fit the function or each other, an output size that is not positive, an index
            that nothing bounds, or tensors too large to count in 32 bits.
    """
    check_inputs(program, len(shapes))
    found = Ranges({}, {}, ())
    for node, shape in zip(program.inputs, shapes, strict=True):
        _bind(program, node, tuple(shape), found.sizes)
        _add(program, found, node, Array(tuple(shape)))
    for statement in program.statements:
        find = _find_points if statement.aggregate else _find_elements
        domain = find(program, statement, found)
        found = replace(found, domains=(*found.domains, domain))
    return found


def check_inputs(program: Program, actual: int) -> None:
    """Refuse too few or too many inputs."""
    expected = len(program.inputs)
    if actual < expected:
        missing = program.inputs[actual]
        raise program.error(missing, f"the input {missing} is missing: expected {expected}, came {actual}.")
    if actual > expected:
        raise program.error(None, f"expected {expected} inputs, came {actual}.")


def _bind(program: Program, node: Node, shape: tuple[int, ...], sizes: dict[str, int]) -> None:
    """Give each size letter of an input its value."""
    if node.kind == "access" and len(node.parts) != len(shape):
        raise program.error(node, f"{node} has {len(node.parts)} dimensions, the array has {len(shape)}: {shape}.")
    for letter, size in zip(map(str, node.parts), shape, strict=False):
        if sizes.setdefault(letter, size) != size:
            first = next(other for other in program.inputs if letter in map(str, other.parts))
            what = f"{letter} is {sizes[letter]} in {first} and {size} in {node}."
            raise program.error(node, what, f"Give arrays that agree in {letter}.")
    if 0 in shape:
        raise program.error(node, f"{node} is empty: its shape is {shape}.", "Every size must be 1 or more.")


def _add(program: Program, found: Ranges, node: Node, array: Array) -> Array:
    """Note the array of a tensor, unless it is too large."""
    if array.size > LARGEST:
        what = f"{node.text} has {array.size:,} elements, more than offsets of 32 bits can count."
        raise program.error(node, what, f"At most {LARGEST:,} elements; work on parts of it.")
    found.arrays[node.text] = array
    return array


def _find_points(program: Program, statement: Statement, found: Ranges) -> Domain:
    """Return the points of a contraction."""
    output, inputs = statement.output, statement.value.find_all("access")
    shape = _find_output_shape(program, statement, found.sizes)
    arrays = {node.at: found.arrays[node.text] for node in inputs}
    for node in inputs:
        _check_rank(program, node, len(arrays[node.at].shape))
    arrays[output.at] = _add(program, found, output, Array(shape))
    places, limits = [], []
    for node in (output, *inputs):
        indices = tuple(affine(program, part, found.sizes) for part in node.parts)
        places.append(Place(node.text, arrays[node.at], indices, node.at))
        limits += zip(indices, arrays[node.at].shape, strict=True)
    for index, size in statement.constraints:
        limits.append((affine(program, index, found.sizes), _evaluate_size(program, size, found.sizes)))
    ranges = bound(limits)
    for node in (output, *inputs, *(index for index, _ in statement.constraints)):
        _check_bounded(program, node, {*found.sizes, *ranges})
    return Domain(statement, places[0], tuple(places[1:]), tuple(limits), tighten(limits, ranges))


def _find_output_shape(program: Program, statement: Statement, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return the shape of a contraction's output; refuse a size that is missing or not positive."""
    output = statement.output
    if len(output.parts) != len(statement.sizes):
        counts = f"{len(output.parts)} indices and {len(statement.sizes)} sizes"
        raise program.error(output, f"{output} has {counts}.", "Write as many sizes after the colon: O[i, j: M, N].")
    shape = tuple(_evaluate_size(program, size, sizes) for size in statement.sizes)
    for size, node in zip(shape, statement.sizes, strict=True):
        if size < 1:
            letters = sorted({name.text for name in node.find_all("name")})
            given = ", ".join(f"{letter} = {sizes[letter]}" for letter in letters)
            what = f"the size {node} of {statement.name} is {size}{given and f' for {given}'}."
            raise program.error(node, what, "Every size must be 1 or more.")
    return shape


def _check_rank(program: Program, node: Node, rank: int) -> None:
    """Refuse an access that has more or fewer indices than its tensor has dimensions."""
    if len(node.parts) != rank:
        indices = "1 index" if len(node.parts) == 1 else f"{len(node.parts)} indices"
        dimensions = "1 dimension" if rank == 1 else f"{rank} dimensions"
        raise program.error(node, f"{node} has {indices}, {node.text} has {dimensions}.")


def _check_bounded(program: Program, node: Node, known: Container[str]) -> None:
    """Refuse an index of which nothing says how far it goes."""
    for name in node.find_all("name"):
        if name.text not in known:
            raise program.error(
                name,
                f"the index {name} cannot be bounded.",
                f"Nothing says how far {name} goes. Is it a mistake for another index? Or add "
                f"a constraint such as {name} < 10: each element then counts once for every {name}.",
            )


def _evaluate_size(program: Program, size: Node, sizes: Mapping[str, int]) -> int:
    """Return the value of an expression of sizes."""
    return int(affine(program, size, sizes).constant)


def affine(program: Program, node: Node, sizes: Mapping[str, int]) -> Affine:
    """Turn an index expression into a sum of multiples of indices.

    Division is that of whole numbers, towards zero as in C, and is for sizes alone.

    Raises:
        TileError: it is not such a sum: an index times an index, a division of an index.
    """
    if node.kind == "number":
        return Affine({}, int(node.text))
    if node.kind == "name":
        return Affine({}, sizes[node.text]) if node.text in sizes else Affine({node.text: 1})
    *first, right = (affine(program, part, sizes) for part in node.parts)
    left = first[0] if first else Affine()  # -x is 0 - x
    if node.text in ("+", "-"):
        return left + right if node.text == "+" else left - right
    if node.text == "*":
        if left.terms and right.terms:
            raise program.error(node, f"`{node}` multiplies two indices.", "Multiply an index by a number.")
        return left * right.constant if left.terms else right * left.constant
    if left.terms or right.terms:
        raise program.error(node, f"`{node}` divides by or through an index.", "Only sizes are divided.")
    if right.constant == 0:
        raise program.error(node, f"`{node}` divides by zero.")
    return Affine({}, int(Fraction(left.constant, right.constant)))


def solve(solved: Mapping[str, Affine], zero: Affine, name: str) -> dict[str, Affine]:
    """Return the solutions and one more: that for `name` of the equation `zero` = 0."""
    value = Affine({name: 1}) - zero * Fraction(1, zero.terms[name])
    return {**{other: e.replace({name: value}) for other, e in solved.items()}, name: value}


def bound(limits: Sequence[Limit]) -> dict[str, range]:
    """Bound each index by Gauss's elimination; an index that is missing in the answer is unbounded.

    The value of each limit's expression is an unknown with a known range. So each limit is an equation,
    expression = value, which is solved for an index; an index is bounded if its solution holds values alone.
    """
    values: dict[str, range] = {}
    solved: dict[str, Affine] = {}
    for number, (e, size) in enumerate(limits):
        value = f"_value{number}"
        values[value] = range(size)
        zero = e.replace(solved) - Affine({value: 1})
        name = next((name for name in zero.terms if name not in values), None)
        solved = solve(solved, zero, name) if name else solved
    ends = {name: e.bounds(values) for name, e in solved.items() if e.terms.keys() <= values.keys()}
    return {name: range(low, high + 1) for name, (low, high) in ends.items()}


def tighten(limits: Sequence[Limit], bounds: Mapping[str, range]) -> dict[str, range]:
    """Narrow the ranges: what the other indices leave of a limit bounds each of its indices in turn."""
    ranges = dict(bounds)
    for _ in range(100):
        before = dict(ranges)
        for e, size in limits:
            terms = {**e.terms, "": e.constant} if e.constant else e.terms  # the factor of an index that is always 1
            for name in e.terms:
                others = {other: ranges.get(other, range(1, 2)) for other in terms if other != name}
                allowed = narrow(name, terms, size, others)
                ranges[name] = range(max(ranges[name].start, allowed.start), min(ranges[name].stop, allowed.stop))
                if not ranges[name]:
                    return dict.fromkeys(ranges, range(0))
        if ranges == before:
            break
    return ranges


def narrow(name: str, terms: Mapping[str, int | Fraction], size: int, ranges: Mapping[str, range]) -> range:
    """Return which values the limit 0 <= sum of factors times indices < size leaves to one of its indices.

    The least and the most that the others can add decide. Lesson 03, exercise 2, builds it for
    factors above 0.

    Args:
        name: the index.
        terms: the factor of each index, its own too.
        size: the sum stays below it.
        ranges: of the other indices.
    """
    low, high = Affine({other: factor for other, factor in terms.items() if other != name}).bounds(ranges)
    factor = terms[name]
    least, most = (-high, size - 1 - low) if factor > 0 else (low - size + 1, high)  # of |factor| * name
    return range(-(-least // abs(factor)), most // abs(factor) + 1)


def _find_elements(program: Program, statement: Statement, found: Ranges) -> Domain:
    """Return the points of an element-wise statement: sizes are aligned at the right, and 1 fits every size.

    Where all tensors are as large as the result, or a single value, each is one long row, whatever its shape.
    """
    shape: tuple[int, ...] = ()
    inputs = [name for name in statement.value.find_all("name") if name.text in found.arrays]
    arrays = {node.at: found.arrays[node.text] for node in inputs}
    for node in inputs:
        try:
            shape = np.broadcast_shapes(shape, arrays[node.at].shape)
        except ValueError:
            what = f"{node} of shape {arrays[node.at].shape} does not fit the shape {shape} before it."
            hint = "Sizes are compared from the right; they must be equal, or one of them 1."
            raise program.error(node, what, hint) from None
    arrays[statement.output.at] = _add(program, found, statement.output, Array(shape))
    ranges = {f"_at{d}": range(size) for d, size in enumerate(shape)}
    if all(array.shape == shape or array.size == 1 for array in arrays.values()):
        arrays = {at: Array((array.size,)) for at, array in arrays.items()}
        ranges = {"_item": range(math.prod(shape))}
    places = []
    for node in (statement.output, *inputs):
        aligned = zip(list(ranges)[::-1], arrays[node.at].shape[::-1], strict=False)
        indices = [Affine({name: 1} if size > 1 or node is statement.output else {}) for name, size in aligned]
        places.append(Place(node.text, arrays[node.at], tuple(indices[::-1]), node.at))
    statement = replace(statement, value=statement.value.fill(found.sizes))
    return Domain(statement, places[0], tuple(places[1:]), (), ranges)
