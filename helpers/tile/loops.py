"""Stage 3: turn every statement into loops over flat memory, with the guards that keep each access inside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from helpers.tile.ranges import Affine, Array, Domain, Place, Ranges, solve
from helpers.tile.syntax import LARGEST, Program, Statement


@dataclass(frozen=True)
class Guard:
    """A condition for a point to count: the expression is not negative, or it is 0."""

    expression: Affine
    is_zero: bool = False

    def text(self, spell: Callable[[str], str] = str) -> str:
        """Return it as a condition of C, without minus signs where that can be."""
        plus, minus = _take_positive_part(self.expression), _take_positive_part(self.expression * -1)
        if not self.is_zero and not plus.terms:
            return f"{minus.text(spell)} <= {plus.text(spell)}"
        return f"{plus.text(spell)} {'==' if self.is_zero else '>='} {minus.text(spell)}"

    __str__ = text


def _take_positive_part(e: Affine) -> Affine:
    """Return the terms and the constant that are above 0."""
    return Affine({name: n for name, n in e.terms.items() if n > 0}, max(e.constant, 0))


@dataclass(frozen=True)
class Nest:
    """A statement as loops over flat memory."""

    statement: Statement
    outputs: dict[str, int]  # the coordinates of an output element and their sizes; the last one runs fastest
    solved: dict[str, Affine]  # the indices that follow from the coordinates
    loops: dict[str, range]  # the indices that are left to run over for each element
    guards: tuple[Guard, ...]  # what is still to be asked of each point; what the ranges exclude is not asked again
    output: Place  # in coordinates and loops, as the inputs
    inputs: tuple[Place, ...]

    @property
    def is_full(self) -> bool:
        """Whether it is sure that every element has a valid point."""
        return not self.guards and all(self.loops.values())

    def has_guard(self, name: str) -> bool:
        """Return whether a guard depends on an index."""
        return any(name in guard.expression.terms for guard in self.guards)

    def __str__(self) -> str:
        lines = ["for each element: " + ", ".join(f"{name} < {size}" for name, size in self.outputs.items())]
        lines += [f"where {name} = {value}" for name, value in self.solved.items()]
        lines += [f"run over {r.start} <= {name} < {r.stop}" for name, r in self.loops.items()]
        lines += [f"only if {guard}" for guard in self.guards]
        lines += [self.statement.show(self.output, {place.at: place for place in self.inputs})]
        return "\n    ".join([self.statement.text, *lines])


@dataclass(frozen=True)
class Flat:
    """Every statement as loops over flat memory."""

    arrays: dict[str, Array]
    parts: tuple[Nest, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.parts))

    __repr__ = __str__


def flatten(program: Program, ranges: Ranges) -> Flat:
    """Turn each statement into loops, and each access into an offset: a sum of strides times indices.

    Raises:
        TileError: an assignment `=(...)` with more than one value for an element, a factor on the left that would need
            a division, or offsets beyond 32 bits.
    """
    return Flat(ranges.arrays, tuple(_make_nest(program, domain) for domain in ranges.domains))


def _make_nest(program: Program, domain: Domain) -> Nest:
    """Return the loops of a statement: work-items run over the output; the indices that remain become loops."""
    outputs, solved, guards = _choose_coordinates(program, domain)
    output = replace(domain.output, indices=tuple(Affine({name: 1}) for name in outputs))
    inputs = [replace(place, indices=tuple(e.replace(solved) for e in place.indices)) for place in domain.inputs]
    rest = domain.limits[len(outputs) :]  # those of the output hold for every work-item
    order = dict.fromkeys(name for e, _ in rest for name in e.terms) | domain.ranges
    loops = {name: domain.ranges[name] for name in order if name not in outputs and name not in solved}
    known = {name: range(size) for name, size in outputs.items()} | loops
    for e, size in rest:
        e = e.replace(solved)
        low, high = e.bounds(known)
        if low < 0:
            guards.append(Guard(e))
        if high >= size:
            guards.append(Guard(Affine({}, size - 1) - e))
    guards = [guard for number, guard in enumerate(guards) if guard not in guards[:number]]
    statement = domain.statement
    for e in [place.offset for place in (output, *inputs)] + [guard.expression for guard in guards]:
        _check_counts(program, statement, e, known)
    for name, r in loops.items():
        _check_counts(program, statement, Affine({name: 1}), known)
        if statement.aggregate == "=" and len(r) > 1:
            what = f"`=(...)` needs one value for each element, the index {name} gives {len(r)}."
            raise program.error(statement.output, what, "Combine them with +, *, > or <, or bound the index.")
    return Nest(statement, outputs or {"_item": 1}, solved, loops, tuple(guards), output, tuple(inputs))


def _choose_coordinates(program: Program, domain: Domain) -> tuple[dict[str, int], dict[str, Affine], list[Guard]]:
    """Express indices by the coordinates of the output element.

    An index alone is itself the coordinate. `O[x + k: N]` makes a coordinate out0 = x + k, so x = out0 - k needs no
    loop of its own. PlaidML also solved `O[2 * i: N]`, for even elements alone; here it is refused.

    Returns:
        The coordinates with their sizes, what other indices are, and what is to be asked of each point therefore.
    """
    coordinates: list[str] = []
    for d, e in enumerate(domain.output.indices):
        name = next(iter(e.terms), "")
        coordinates.append(name if e == Affine({name: 1}) and name not in coordinates else f"_out{d}")
    solved: dict[str, Affine] = {}
    guards = []
    for coordinate, e in zip(coordinates, domain.output.indices, strict=True):
        zero = Affine({coordinate: 1}) - e.replace(solved)
        free = [name for name in zero.terms if name not in coordinates]
        if free:
            name = min(free, key=lambda n: (abs(zero.terms[n]) != 1, -len(domain.ranges[n])))
            if abs(zero.terms[name]) != 1:
                what = f"on the left of `=`, the index {name} has a factor; this compiler cannot divide by it."
                raise program.error(domain.statement.output, what, "Write the index alone there, as in O[i: N].")
            solved = solve(solved, zero, name)
        elif zero != Affine():
            guards.append(Guard(zero, is_zero=True))
    return dict(zip(coordinates, domain.output.array.shape, strict=True)), solved, guards


def _check_counts(program: Program, statement: Statement, e: Affine, known: Mapping[str, range]) -> None:
    """Refuse what does not fit OpenCL's int, also on the way to a sum."""
    largest = abs(e.constant)
    for name, factor in e.terms.items():
        largest += abs(factor) * max(abs(known[name].start), abs(known[name].stop))
    if largest > LARGEST:
        raise program.error(
            statement.output,
            f"`{e}` can reach {largest:,}, more than 32 bits can count.",
            "Work on parts of the tensors, or bound the indices with constraints.",
        )
