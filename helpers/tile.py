"""Compile Tile, the language in which PlaidML wrote mathematics, to OpenCL C (lesson 03).

A Tile function says what each element of a result is, and nothing of loops, work-items or memory:

    function (A[M, L], B[L, N]) -> (C) { C[i, j: M, N] = +(A[i, k] * B[k, j]); }

Five stages turn it into kernels, and each returns something that can be printed:

    parse        text                   -> a tree of statements
    infer        the tree and shapes    -> every size, and the range of every index
    flatten      ranges                 -> loops, guards, and every access as an offset into flat memory
    choose_tile  loops and a device     -> which block of the result one work-item keeps in its registers
    emit         loops and blocks       -> OpenCL C

`Function` runs all five and the kernels. The rules of the language are those of PlaidML 0.x: a contraction combines the
values at all *valid points*. A point is one whole number for each index; it is valid if no access leaves its tensor and
if every constraint `e < size` holds, which always means 0 <= e < size. An element that no valid point reaches is 0.
Maximum and minimum pass over NaN, as OpenCL's fmax and fmin do; whole numbers divide towards zero, and by zero to 0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from helpers import opencl, timing
from helpers.errors import WorkshopError

if TYPE_CHECKING:
    import pyopencl as cl

LARGEST = 2**31 - 1  # offsets and indices are counted in OpenCL's 32-bit int
LONGEST = 100  # operators, brackets and calls in one expression


class TileError(WorkshopError):
    """A mistake in a Tile function or in what it was called with, with the place in the source that it concerns.

    Attributes:
        line: its line, counted from 1.
        column: its column, counted from 1.
    """

    def __init__(self, source: str, at: int, what: str, next: str = "") -> None:
        self.line = source.count("\n", 0, at) + 1
        self.column = at - source.rfind("\n", 0, at)
        start = max(0, self.column - 80)  # of a very long line the part around the caret
        text = source.split("\n")[self.line - 1][start : start + 160]
        indent = "".join("\t" if letter == "\t" else " " for letter in text[: self.column - 1 - start])
        what = f"Line {self.line}, column {self.column}: {what}\n    {text}\n    {indent}^"
        super().__init__(what, next=next)


# ---------------------------------------------------------------------------------------------- parse: the tree


@dataclass(frozen=True)
class Expression:
    """A node of an expression's tree.

    Attributes:
        kind: `number`, `name`, `operator` or `call`.
        text: the number, the name, the operator's sign or the function's name.
        parts: what the operator or the function works on.
        at: where it stands in the source.
    """

    kind: str
    text: str
    parts: tuple[Expression, ...]
    at: int

    def __str__(self) -> str:
        parts = [f"({part})" if part.kind == "operator" and self.kind != "call" else str(part) for part in self.parts]
        if self.kind == "call":
            return f"{self.text}({', '.join(parts)})"
        if len(parts) == 3:
            return f"{parts[0]} ? {parts[1]} : {parts[2]}"
        return f" {self.text} ".join(parts) if len(parts) == 2 else self.text + "".join(parts)


@dataclass(frozen=True)
class Access:
    """A tensor with an expression for each of its dimensions, such as `B[k, j]`."""

    tensor: str
    indices: tuple[Expression, ...]
    at: int

    def __str__(self) -> str:
        return f"{self.tensor}[{', '.join(map(str, self.indices))}]"


@dataclass(frozen=True)
class Contraction:
    """A statement that combines many values into each element: `C[i, j: M, N] = +(A[i, k] * B[k, j]);`.

    Attributes:
        output: the left side.
        sizes: the sizes of the output, after the colon.
        aggregate: how values become one: `+` sum, `*` product, `>` largest, `<` smallest, `=` the only one.
        combine: how two inputs become a value: `*` or `+`; empty for one input.
        inputs: the one or two accesses in the brackets.
        constraints: pairs of an index expression and the size that it stays below.
        text: the statement as it is written.
        at: where it stands in the source.
    """

    output: Access
    sizes: tuple[Expression, ...]
    aggregate: str
    combine: str
    inputs: tuple[Access, ...]
    constraints: tuple[tuple[Expression, Expression], ...]
    text: str
    at: int

    @property
    def name(self) -> str:
        """The tensor that it makes."""
        return self.output.tensor

    @property
    def accesses(self) -> tuple[Access, ...]:
        """The output and the inputs."""
        return (self.output, *self.inputs)

    def __str__(self) -> str:
        value = f" {self.combine} ".join(map(str, self.inputs))
        sizes = f" of shape ({', '.join(map(str, self.sizes))})"
        limits = "".join(f", where 0 <= {index} < {size}" for index, size in self.constraints)
        return f"{self.output}{sizes} = the {AGGREGATES[self.aggregate].words} {value}{limits}"


@dataclass(frozen=True)
class Elementwise:
    """A statement that computes each element from those in the same place: `R = max(X, 0.0);`."""

    name: str
    value: Expression
    text: str
    at: int

    def __str__(self) -> str:
        return f"{self.name} = for each element, {self.value}"


@dataclass(frozen=True)
class Input:
    """An input with a letter for each of its sizes; `sizes` is None where the function does not name them."""

    name: str
    sizes: tuple[str, ...] | None
    at: int

    def __str__(self) -> str:
        return self.name if self.sizes is None else f"{self.name}[{', '.join(self.sizes)}]"


@dataclass(frozen=True)
class Program:
    """A Tile function as a tree."""

    source: str
    inputs: tuple[Input, ...]
    outputs: tuple[str, ...]
    statements: tuple[Contraction | Elementwise, ...]

    def __str__(self) -> str:
        inputs, outputs = ", ".join(map(str, self.inputs)), ", ".join(self.outputs)
        return "\n".join([f"inputs  {inputs}", f"outputs {outputs}", *map(str, self.statements)])

    __repr__ = __str__

    def error(self, at: int, what: str, next: str = "") -> TileError:
        """Return the error to raise for the place `at`."""
        return TileError(self.source, at, what, next)


@dataclass(frozen=True)
class Aggregate:
    """How many values become one: in words, and in C as a variable, its first value and the step for each value."""

    words: str
    variable: str
    start: str
    step: str


AGGREGATES = {
    "+": Aggregate("sum of", "sum", "0", "{0} += {1};"),
    "*": Aggregate("product of", "product", "1", "{0} *= {1};"),
    ">": Aggregate("largest of", "largest", "-INFINITY", "{0} = fmax({0}, {1});"),
    "<": Aggregate("smallest of", "smallest", "INFINITY", "{0} = fmin({0}, {1});"),
    "=": Aggregate("only", "value", "0", "{0} = {1};"),
}
FLOAT_FUNCTIONS = {"exp": 1, "log": 1, "sqrt": 1, "tanh": 1, "sin": 1, "cos": 1, "pow": 2}  # and how many parts
FUNCTIONS = {**FLOAT_FUNCTIONS, "abs": 1, "max": 2, "min": 2}
COMPARISONS = ("==", "!=", "<", ">", "<=", ">=")
PRECEDENCE = {"==": 1, "!=": 1, "<": 2, ">": 2, "<=": 2, ">=": 2, "+": 3, "-": 3, "*": 4, "/": 4}

TOKEN = re.compile(
    r"(?P<space>\s+|//[^\n]*)|(?P<number>(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][-+]?\d+)?|\d+)"
    r"|(?P<name>[A-Za-z]\w*)|(?P<symbol>->|<=|>=|==|!=|[-+*/<>=?:;,(){}\[\]])",
    re.ASCII,
)


@dataclass(frozen=True)
class Token:
    """A word of the language: its kind (`number`, `name`, `symbol` or `end`), its text and where it stands."""

    kind: str
    text: str
    at: int


def tokens(source: str) -> list[Token]:
    """Cut the source into words; spaces and `// comments` fall away."""
    found, at = [], 0
    while at < len(source):
        match = TOKEN.match(source, at)
        if not match:
            raise TileError(source, at, f"Tile has no character {source[at]!r}.")
        if match.lastgroup != "space":
            found.append(Token(str(match.lastgroup), match[0], at))
        at = match.end()
    end = found[-1].at + len(found[-1].text) if found else 0
    return [*found, Token("end", "the end of the source", end)]


def parse(source: str) -> Program:
    """Read a Tile function.

    The parser descends: one method for each rule of the grammar, which looks at the next word and calls the methods of
    the rules inside it. Nothing is ever read twice.

    Raises:
        TileError: the source is not a Tile function, or a name in it is unknown or given twice.
    """
    program = _Parser(source).function()
    _check_names(program)
    return program


class _Parser:
    """The grammar of Tile, rule by rule."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.words = tokens(source)
        self.position = 0
        self.length = 0  # operators, brackets and calls of the expression that is being read

    @property
    def word(self) -> Token:
        return self.words[self.position]

    def take(self) -> Token:
        self.position += 1
        return self.words[self.position - 1]

    def accept(self, *texts: str) -> Token | None:
        """Take the next word if it is one of `texts`."""
        return self.take() if self.word.kind != "end" and self.word.text in texts else None

    def expect(self, *texts: str) -> Token:
        return self.accept(*texts) or self.fail(" or ".join(f"`{text}`" for text in texts))

    def fail(self, expected: str, next: str = "") -> Token:
        came = self.word.text if self.word.kind == "end" else f"`{self.word.text}`"
        raise TileError(self.source, self.word.at, f"expected {expected}, came {came}.", next)

    def capital(self, what: str) -> Token:
        """Take a name that starts with a capital letter."""
        if self.word.kind == "name" and self.word.text[0].isupper():
            return self.take()
        return self.fail(f"the name of {what}, which starts with a capital letter")

    def listed(self, rule: Callable, *closing: str) -> tuple:
        """Take what `rule` reads, with commas between, up to a closing sign, which stays."""
        found = []
        while self.word.text not in closing:
            if found:
                self.expect(",", *closing)
            found.append(rule())
        return tuple(found)

    def function(self) -> Program:
        """function (inputs) -> (outputs) { statements }."""
        self.expect("function")
        self.expect("(")
        inputs = self.listed(self.input, ")")
        self.expect(")")
        self.expect("->")
        self.expect("(")
        outputs = self.listed(lambda: self.capital("an output"), ")")
        self.expect(")")
        self.expect("{")
        statements = []
        while not self.accept("}"):
            if self.word.kind == "end":
                self.fail("a statement or `}`")
            statements.append(self.statement())
        if self.word.kind != "end":
            self.fail("nothing after the function's `}`")
        written = {statement.name for statement in statements}
        for number, word in enumerate(outputs):
            if word.text not in written:
                hint = f"Add a statement that makes it: {word.text} = ...;"
                raise TileError(self.source, word.at, f"the output {word.text} is never written.", hint)
            if word.text in (one.text for one in outputs[:number]):
                raise TileError(self.source, word.at, f"the output {word.text} is listed twice.")
        return Program(self.source, inputs, tuple(word.text for word in outputs), tuple(statements))

    def input(self) -> Input:
        """NAME, or NAME[SIZE, ...]."""
        name = self.capital("an input")
        sizes = None
        if self.accept("["):
            sizes = tuple(word.text for word in self.listed(lambda: self.capital("a size"), "]"))
            self.expect("]")
        return Input(name.text, sizes, name.at)

    def statement(self) -> Contraction | Elementwise:
        """A contraction if indices follow the name, else an element-wise statement."""
        name = self.capital("a tensor")
        if self.accept("["):
            return self.contraction(name)
        if self.word.text != "=":
            self.fail("`=`, or `[` and the indices of a contraction")
        self.take()
        if self.word.text in AGGREGATES:
            hint = f"A contraction names the indices and sizes of its output: {name.text}[i: N] = +(...);"
            self.fail("an expression", hint)
        value = self.expression()
        end = self.expect(";")
        return Elementwise(name.text, value, self.text(name, end), name.at)

    def contraction(self, name: Token) -> Contraction:
        """NAME[indices: sizes] = sign(access), constraints;."""
        indices = self.listed(self.plain, ":", "]")
        sizes = self.listed(self.plain, "]") if self.accept(":") else ()
        self.expect("]")
        self.expect("=")
        aggregate = self.accept(*AGGREGATES)
        if not aggregate:
            self.fail("how to combine the values: `+`, `*`, `>`, `<` or `=`", "For a sum, write = +(...);")
        self.expect("(")
        inputs = [self.access()]
        combine = self.accept("*", "+")
        if combine:
            inputs.append(self.access())
        if not self.accept(")"):
            expected = "`)`" if combine else "`*`, `+` or `)`"
            self.fail(expected, "A contraction takes one tensor, or two with * or + between them.")
        constraints = []
        while not self.accept(";"):
            self.expect(",", ";")
            constraints.append(self.constraint())
        output = Access(name.text, indices, name.at)
        text = self.text(name, self.words[self.position - 1])
        sign = combine.text if combine else ""
        return Contraction(output, sizes, aggregate.text, sign, tuple(inputs), tuple(constraints), text, name.at)

    def access(self) -> Access:
        """NAME[indices]."""
        name = self.capital("a tensor")
        self.expect("[")
        indices = self.listed(self.plain, "]")
        self.expect("]")
        return Access(name.text, indices, name.at)

    def constraint(self) -> tuple[Expression, Expression]:
        """index expression < size."""
        index = self.plain()
        if not self.accept("<"):
            self.fail("`<`", "A constraint reads `index expression < size`, and 0 <= index expression comes with it.")
        return index, self.plain()

    def text(self, first: Token, last: Token) -> str:
        """The source between two words on one line, without its comments."""
        return " ".join(re.sub(r"//[^\n]*", "", self.source[first.at : last.at + len(last.text)]).split())

    def expression(self) -> Expression:
        """comparison ? expression : expression."""
        self.length = 0
        return self.conditional()

    def conditional(self) -> Expression:
        condition = self.binary(1)
        sign = self.accept("?")
        if not sign:
            return condition
        one = self.conditional()
        self.expect(":")
        return self.operator(sign, condition, one, self.conditional())

    def plain(self) -> Expression:
        """An expression of + - * / alone, for indices and sizes."""
        self.length = 0
        return self.binary(3)

    def binary(self, weakest: int) -> Expression:
        """Operators that bind at least as strongly as `weakest`; of two equal ones the left is done first."""
        left = self.unary()
        while PRECEDENCE.get(self.word.text, 0) >= weakest and self.word.kind == "symbol":
            sign = self.take()
            strength = PRECEDENCE[sign.text]
            left = self.operator(sign, left, self.binary(strength + 1))
            if sign.text in COMPARISONS and PRECEDENCE.get(self.word.text) == strength:
                self.fail("no second comparison", "Put brackets around the first one.")
        return left

    def operator(self, sign: Token, *parts: Expression) -> Expression:
        self.count(sign)
        return Expression("operator", sign.text, parts, sign.at)

    def count(self, word: Token) -> None:
        self.length += 1
        if self.length > LONGEST:
            raise TileError(self.source, word.at, f"an expression of more than {LONGEST} operators and brackets.",
                            "Split it into several statements.")  # fmt: skip

    def unary(self) -> Expression:
        sign = self.accept("-")
        if sign:
            self.count(sign)
            return Expression("operator", "-", (self.unary(),), sign.at)
        return self.primary()

    def primary(self) -> Expression:
        """A number, a name, a function's call, or an expression in brackets."""
        word = self.word
        if word.kind == "number":
            self.take()
            return Expression("number", word.text, (), word.at)
        if self.accept("("):
            self.count(word)
            inside = self.conditional()
            self.expect(")")
            return inside
        if word.kind != "name":
            self.fail("a number, a name or `(`")
        self.take()
        if not self.accept("("):
            return Expression("name", word.text, (), word.at)
        self.count(word)
        if word.text not in FUNCTIONS:
            raise TileError(self.source, word.at, f"Tile has no function {word.text}.",
                            f"It has {', '.join(FUNCTIONS)}.")  # fmt: skip
        parts = self.listed(self.conditional, ")")
        self.expect(")")
        if len(parts) != FUNCTIONS[word.text]:
            raise TileError(self.source, word.at,
                            f"{word.text} takes {FUNCTIONS[word.text]} arguments, {len(parts)} came.")  # fmt: skip
        return Expression("call", word.text, parts, word.at)


def _names(expression: Expression) -> list[Expression]:
    """Every name in an expression."""
    if expression.kind == "name":
        return [expression]
    return [name for part in expression.parts for name in _names(part)]


def _check_names(program: Program) -> None:
    """Refuse names that are unknown, given twice, or used where their kind has no place."""
    sizes = {size for one in program.inputs for size in one.sizes or ()}
    tensors: set[str] = set()
    for one in program.inputs:
        if one.name in tensors | sizes:
            raise program.error(one.at, f"the name {one.name} is given twice.", "Choose another name.")
        tensors.add(one.name)
    for statement in program.statements:
        if isinstance(statement, Elementwise):
            _check_known(program, [statement.value], tensors | sizes, "a tensor or a size", indices=False)
        else:
            for access in statement.inputs:
                if access.tensor not in tensors:
                    raise program.error(access.at, f"unknown tensor {access.tensor}.", _list("Tensors so far", tensors))
            indices = [e for access in statement.accesses for e in access.indices]
            _check_known(program, [*indices, *(e for e, _ in statement.constraints)], sizes, "a size", indices=True)
            limits = [*statement.sizes, *(size for _, size in statement.constraints)]
            _check_known(program, limits, sizes, "a size", indices=False)
        name = statement.name
        if name in tensors | sizes:
            raise program.error(statement.at, f"the name {name} is assigned twice.",
                                "A tensor is made once and never changed: choose a new name.")  # fmt: skip
        tensors.add(name)


def _check_known(program: Program, expressions: list[Expression], known: set[str], what: str, indices: bool) -> None:
    for name in (name for expression in expressions for name in _names(expression)):
        if name.text[0].islower() and not indices:
            hint = "Indices (small letters) live in the brackets and constraints of one contraction."
            raise program.error(name.at, f"the index {name.text} means nothing here: expected {what}.", hint)
        if name.text[0].isupper() and name.text not in known:
            raise program.error(name.at, f"unknown name {name.text}: expected {what}.", _list("Known here", known))


def _list(what: str, names: set[str]) -> str:
    return f"{what}: {', '.join(sorted(names)) or 'none'}."


# ---------------------------------------------------------------------------------------------- infer: the ranges


@dataclass(frozen=True)
class Linear:
    """A sum of whole multiples of indices and a constant: `2*i + d - 1` is Linear({"i": 2, "d": 1}, -1)."""

    terms: Mapping[str, int]
    constant: int = 0

    def plus(self, other: Linear, factor: int = 1) -> Linear:
        """Return this plus `factor` times the other."""
        names = dict.fromkeys([*self.terms, *other.terms])
        terms = {name: self.terms.get(name, 0) + factor * other.terms.get(name, 0) for name in names}
        return Linear({name: n for name, n in terms.items() if n}, self.constant + factor * other.constant)

    def replace(self, name: str, other: Linear) -> Linear:
        """Return this with `other` in the place of `name`."""
        factor = self.terms.get(name, 0)
        return self.plus(Linear({name: 1}), -factor).plus(other, factor) if factor else self

    def bounds(self, ranges: Mapping[str, range]) -> tuple[int, int]:
        """Return the smallest and the largest value while every index stays in its range."""
        low = high = self.constant
        for name, factor in self.terms.items():
            ends = factor * ranges[name].start, factor * (ranges[name].stop - 1)
            low, high = low + min(ends), high + max(ends)
        return low, high

    def text(self, spelling: Callable[[str], str] = str) -> str:
        """Return it as an expression of C, each name as `spelling` writes it."""
        words = ""
        for name, factor in sorted(self.terms.items(), key=lambda term: term[1] < 0):
            sign = " - " if factor < 0 else " + "
            words += sign + (f"{abs(factor)} * " if abs(factor) != 1 else "") + spelling(name)
        if self.constant or not words:
            constant = f" {'-' if self.constant < 0 else '+'} {abs(self.constant)}"
            words = constant + words if words.startswith(" - ") else words + constant
        return words[3:] if words.startswith(" + ") else "-" + words[3:]

    __str__ = text


@dataclass(frozen=True)
class Array:
    """The shape of a tensor and its type, `float` or `int` (both of 32 bits)."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        """How many elements lie between neighbours, for each dimension; the last one is contiguous."""
        return tuple(math.prod(self.shape[d + 1 :]) for d in range(len(self.shape)))

    def __str__(self) -> str:
        return f"{self.dtype}32 {' x '.join(map(str, self.shape)) or 'single value'}"


@dataclass(frozen=True)
class Domain:
    """The points of a contraction.

    Attributes:
        statement: the contraction.
        accesses: the index expressions of the output, then of each input, one for each dimension.
        arrays: the shapes of the output, then of each input.
        constraints: pairs of an index expression and the size that it stays below.
        ranges: for each index a range outside which it has no valid point.
    """

    statement: Contraction
    accesses: tuple[tuple[Linear, ...], ...]
    arrays: tuple[Array, ...]
    constraints: tuple[tuple[Linear, int], ...]
    ranges: dict[str, range]

    @property
    def inequalities(self) -> list[tuple[Linear, int]]:
        """Everything that makes a point valid: pairs (e, size) that mean 0 <= e < size."""
        pairs = zip(self.accesses, self.arrays, strict=True)
        inside = [pair for access, array in pairs for pair in zip(access, array.shape, strict=True)]
        return [*inside, *self.constraints]

    def __str__(self) -> str:
        lines = [f"    {r.start} <= {name} < {r.stop}" for name, r in self.ranges.items()]
        return "\n".join([self.statement.text, *lines])


@dataclass(frozen=True)
class Ranges:
    """Every size, every tensor's shape, and for each statement its points (None where it is element-wise)."""

    program: Program
    sizes: dict[str, int]
    arrays: dict[str, Array]
    domains: tuple[Domain | None, ...]

    def __str__(self) -> str:
        sizes = [f"{name} = {size}" for name, size in self.sizes.items()]
        arrays = [f"{name}: {array}" for name, array in self.arrays.items()]
        return "\n".join([", ".join(sizes), *arrays, *(str(domain) for domain in self.domains if domain)])

    __repr__ = __str__


def infer(program: Program, shapes: Sequence[tuple[int, ...]], dtypes: Sequence[str] = ()) -> Ranges:
    """Find every size, the shape of every tensor, and the range of every index.

    Each access and each constraint says 0 <= expression < size. From these inequalities alone follow the ranges: first
    by elimination, as one solves equations (an index is bounded if and only if it is a sum of multiples of such
    expressions), then narrowed down, one inequality at a time, until nothing changes.

    Args:
        program: what `parse` returned.
        shapes: the shape of each input, in their order.
        dtypes: the type of each input, "float" or "int"; all "float" if empty.

    Raises:
        TileError: shapes that do not fit the function or each other, an output size that is not positive, an index
            that nothing bounds, or tensors too large to count in 32 bits.
    """
    sizes, arrays = _bind(program, shapes, dtypes or ["float"] * len(program.inputs))
    domains: list[Domain | None] = []
    for statement in program.statements:
        if isinstance(statement, Elementwise):
            array, domain = _broadcast(program, statement, arrays, sizes), None
        else:
            domain = _domain(program, statement, arrays, sizes)
            array = domain.arrays[0]
        _check_size(program, statement.at, statement.name, array)
        arrays[statement.name] = array
        domains.append(domain)
    return Ranges(program, sizes, arrays, tuple(domains))


def _bind(program: Program, shapes: Sequence[tuple[int, ...]], dtypes: Sequence[str]) -> tuple[dict, dict]:
    """Give each size letter its value and each input its shape."""
    if len(shapes) != len(program.inputs):
        wanted = ", ".join(map(str, program.inputs)) or "none"
        at = program.inputs[0].at if program.inputs else 0
        raise program.error(at, f"{len(program.inputs)} inputs expected ({wanted}), {len(shapes)} came.")
    sizes: dict[str, int] = {}
    origin: dict[str, str] = {}
    arrays = {}
    for one, shape, dtype in zip(program.inputs, shapes, dtypes, strict=True):
        shape = tuple(shape)
        if one.sizes is not None and len(one.sizes) != len(shape):
            raise program.error(one.at, f"{one} has {len(one.sizes)} dimensions, the array has {len(shape)}: {shape}.")
        for letter, size in zip(one.sizes or (), shape, strict=False):
            if sizes.setdefault(letter, size) != size:
                raise program.error(one.at, f"{letter} is {sizes[letter]} in {origin[letter]} and {size} in {one}.",
                                    f"Give arrays that agree in {letter}.")  # fmt: skip
            origin.setdefault(letter, str(one))
        if 0 in shape:
            raise program.error(one.at, f"{one} is empty: its shape is {shape}.", "Every size must be 1 or more.")
        arrays[one.name] = Array(shape, dtype)
        _check_size(program, one.at, one.name, arrays[one.name])
    return sizes, arrays


def _check_size(program: Program, at: int, name: str, array: Array) -> None:
    if array.size > LARGEST:
        raise program.error(at, f"{name} has {array.size:,} elements, more than offsets of 32 bits can count.",
                            f"At most {LARGEST:,} elements; work on parts of it.")  # fmt: skip


def _whole(program: Program, expression: Expression, sizes: Mapping[str, int]) -> int:
    """The value of an expression of sizes."""
    return linear(program, expression, sizes).constant


def linear(program: Program, expression: Expression, sizes: Mapping[str, int]) -> Linear:
    """Turn an index expression into a sum of multiples of indices.

    Division is that of whole numbers, towards zero as in C, and is for sizes alone.

    Raises:
        TileError: it is not such a sum (an index times an index, a division of an index, a fraction).
    """
    if expression.kind == "name":
        name = expression.text
        return Linear({}, sizes[name]) if name in sizes else Linear({name: 1})
    if expression.kind == "number" and expression.text.isdecimal():
        return Linear({}, int(expression.text))
    if expression.kind != "operator" or expression.text not in ("+", "-", "*", "/"):
        what = f"expected a whole number, an index, a size or + - * /, came `{expression}`."
        raise program.error(expression.at, what)
    parts = [linear(program, part, sizes) for part in expression.parts]
    if len(parts) == 1:
        return Linear({}).plus(parts[0], -1)
    one, two = parts
    if expression.text in "+-":
        return one.plus(two, 1 if expression.text == "+" else -1)
    if expression.text == "*" and one.terms and two.terms:
        raise program.error(expression.at, f"`{expression}` multiplies two indices.", "Multiply an index by a number.")
    if expression.text == "*":
        return Linear({}).plus(one, two.constant) if one.terms else Linear({}).plus(two, one.constant)
    if one.terms or two.terms:
        raise program.error(expression.at, f"`{expression}` divides by or through an index.", "Only sizes are divided.")
    if two.constant == 0:
        raise program.error(expression.at, f"`{expression}` divides by zero.")
    quotient = abs(one.constant) // abs(two.constant)
    return Linear({}, quotient if (one.constant < 0) == (two.constant < 0) else -quotient)


def _domain(program: Program, statement: Contraction, arrays: Mapping[str, Array], sizes: Mapping[str, int]) -> Domain:
    """The points of one contraction."""
    output = statement.output
    if len(output.indices) != len(statement.sizes):
        counts = f"{len(output.indices)} indices and {len(statement.sizes)} sizes"
        raise program.error(output.at, f"{output} has {counts}.", "Write as many sizes after the colon: O[i, j: M, N].")
    shape = tuple(_whole(program, size, sizes) for size in statement.sizes)
    for size, expression in zip(shape, statement.sizes, strict=True):
        if size < 1:
            raise program.error(expression.at, f"the size {expression} of {output.tensor} is {size}.",
                                "Every size must be 1 or more.")  # fmt: skip
    for access in statement.inputs:
        rank = len(arrays[access.tensor].shape)
        if len(access.indices) != rank:
            counts = f"{len(access.indices)} indices, {access.tensor} has {rank} dimensions"
            raise program.error(access.at, f"{access} has {counts}.")
    given = [arrays[access.tensor] for access in statement.inputs]
    accesses = tuple(tuple(linear(program, e, sizes) for e in access.indices) for access in statement.accesses)
    limits = tuple((linear(program, e, sizes), _whole(program, size, sizes)) for e, size in statement.constraints)
    all_arrays = (Array(shape, _promote(*(array.dtype for array in given))), *given)
    domain = Domain(statement, accesses, all_arrays, limits, {})
    bounds = eliminate(domain.inequalities)
    for name in dict.fromkeys(name for e, _ in domain.inequalities for name in e.terms):
        if name not in bounds:
            raise program.error(_first(statement, name), f"the index {name} cannot be bounded.",
                                f"Add a constraint such as {name} < 10 after the bracket.")  # fmt: skip
    return Domain(statement, accesses, all_arrays, limits, tighten(domain.inequalities, bounds))


def _first(statement: Contraction, index: str) -> int:
    """Where an index stands first."""
    expressions = [e for access in statement.accesses for e in access.indices]
    expressions += [e for e, _ in statement.constraints]
    return next(name.at for e in expressions for name in _names(e) if name.text == index)


def eliminate(inequalities: Sequence[tuple[Linear, int]]) -> dict[str, range]:
    """Bound each index by Gauss's elimination; an index that is missing in the answer is unbounded.

    A row is a sum of multiples of indices, and which multiples of which expressions add up to it. A row that is left
    with a single index bounds that index, because every expression lies between 0 and its size.
    """
    rows = [
        ({name: Fraction(n) for name, n in e.terms.items()}, {k: Fraction(1)}) for k, (e, _) in enumerate(inequalities)
    ]
    done = 0
    for name in dict.fromkeys(name for e, _ in inequalities for name in e.terms):
        pivot = next((r for r in range(done, len(rows)) if name in rows[r][0]), None)
        if pivot is not None:
            rows[done], rows[pivot] = rows[pivot], rows[done]
            for r, row in enumerate(rows):
                if r != done and name in row[0]:
                    factor = -row[0][name] / rows[done][0][name]
                    rows[r] = _added(row[0], rows[done][0], factor), _added(row[1], rows[done][1], factor)
            done += 1
    bounds = {}
    for terms, origin in rows[:done]:
        if len(terms) == 1:
            name, factor = next(iter(terms.items()))
            low = high = Fraction(0)
            for k, multiple in origin.items():  # the expression without its constant lies between these ends
                e, size = inequalities[k]
                ends = [multiple / factor * end for end in (-e.constant, size - 1 - e.constant)]
                low, high = low + min(ends), high + max(ends)
            bounds[name] = range(math.ceil(low), math.floor(high) + 1)
    return bounds


def _added(one: Mapping, two: Mapping, factor: Fraction) -> dict:
    """One sum of multiples plus `factor` times the other."""
    total = {name: one.get(name, 0) + factor * two.get(name, 0) for name in {**one, **two}}
    return {name: n for name, n in total.items() if n}


def tighten(inequalities: Sequence[tuple[Linear, int]], bounds: Mapping[str, range]) -> dict[str, range]:
    """Narrow the ranges: what the other indices leave of an inequality bounds each of its indices in turn."""
    ranges = dict(bounds)
    for _ in range(100):
        before = dict(ranges)
        for e, size in inequalities:
            for name, factor in e.terms.items():
                low, high = e.plus(Linear({name: 1}), -factor).bounds(ranges)
                ends = (-high, size - 1 - low) if factor > 0 else (low - size + 1, high)  # of |factor| * name
                start = max(ranges[name].start, -(-ends[0] // abs(factor)))
                ranges[name] = range(start, min(ranges[name].stop, ends[1] // abs(factor) + 1))
                if not ranges[name]:
                    return dict.fromkeys(ranges, range(0))
        if ranges == before:
            break
    return ranges


def _promote(*dtypes: str) -> str:
    return "float" if "float" in dtypes else "int"


def _broadcast(
    program: Program, statement: Elementwise, arrays: Mapping[str, Array], sizes: Mapping[str, int]
) -> Array:
    """The shape and type of an element-wise statement: sizes are aligned at the right, and 1 fits every size."""
    shape: tuple[int, ...] = ()
    for name in _names(statement.value):
        other = arrays[name.text].shape if name.text in arrays else ()
        rank = max(len(shape), len(other))
        pairs = list(zip((1,) * (rank - len(shape)) + shape, (1,) * (rank - len(other)) + other, strict=True))
        if any(one != two and 1 not in (one, two) for one, two in pairs):
            raise program.error(name.at, f"{name.text} of shape {other} does not fit the shape {shape} before it.",
                                "Sizes are compared from the right; they must be equal, or one of them 1.")  # fmt: skip
        shape = tuple(max(pair) for pair in pairs)
    return Array(shape, _type(program, statement.value, arrays))


def _type(program: Program, expression: Expression, arrays: Mapping[str, Array]) -> str:
    """The type of an element-wise expression; sizes, whole numbers and comparisons are int."""
    parts = [_type(program, part, arrays) for part in expression.parts]
    if expression.kind == "number" and expression.text.isdecimal():
        if int(expression.text) > LARGEST:
            raise program.error(expression.at, f"{expression.text} is too large for int32.", "Write it as 1e10.")
        return "int"
    if expression.kind == "number":
        if float(expression.text) > float(np.finfo(np.float32).max):
            raise program.error(expression.at, f"{expression.text} is too large for float32.")
        return "float"
    if expression.kind == "name":
        return arrays[expression.text].dtype if expression.text in arrays else "int"
    if expression.text in FLOAT_FUNCTIONS:
        return "float"
    if expression.text in COMPARISONS:
        return "int"
    return _promote(*(parts[1:] if expression.text == "?" else parts))


# ---------------------------------------------------------------------------------------------- flatten: loops, offsets


@dataclass(frozen=True)
class Guard:
    """A condition for a point to count: the expression is not negative, or it is a multiple of `divisor`."""

    expression: Linear
    divisor: int = 0

    def text(self, spelling: Callable[[str], str] = str) -> str:
        """Return it as a condition of C, without minus signs where that can be."""
        if self.divisor:
            return f"({self.expression.text(spelling)}) % {self.divisor} == 0"
        terms, constant = self.expression.terms, self.expression.constant
        larger = Linear({name: n for name, n in terms.items() if n > 0}, max(constant, 0))
        smaller = Linear({name: -n for name, n in terms.items() if n < 0}, max(-constant, 0))
        if not larger.terms:
            return f"{smaller.text(spelling)} <= {larger.text(spelling)}"
        return f"{larger.text(spelling)} >= {smaller.text(spelling)}"

    __str__ = text


@dataclass(frozen=True)
class Solved:
    """An index that follows from the others: numerator / divisor."""

    name: str
    numerator: Linear
    divisor: int

    def text(self, spelling: Callable[[str], str] = str) -> str:
        """Return its value as an expression of C."""
        return f"({self.numerator.text(spelling)}) / {self.divisor}"


@dataclass(frozen=True)
class Nest:
    """A contraction as loops over flat memory.

    Attributes:
        domain: its points.
        outputs: the coordinates of an output element and their sizes, one for each dimension.
        loops: the indices that are left to run over for each element, and their ranges.
        notes: for each index that follows from a coordinate, the equation.
        solved: indices that follow from a coordinate by a division.
        guards: what is still to be asked of each point; what the ranges exclude is not asked again.
        accesses: the index expressions, output first, in coordinates and loops.
        offsets: for each access the position in flat memory.
    """

    domain: Domain
    outputs: dict[str, int]
    loops: dict[str, range]
    notes: tuple[str, ...]
    solved: tuple[Solved, ...]
    guards: tuple[Guard, ...]
    accesses: tuple[tuple[Linear, ...], ...]
    offsets: tuple[Linear, ...]

    def __str__(self) -> str:
        statement = self.domain.statement
        lines = [statement.text, "    for each element: " + ", ".join(f"{n} < {s}" for n, s in self.outputs.items())]
        lines += [f"    where {note}" for note in self.notes]
        lines += [f"    run over {r.start} <= {name} < {r.stop}" for name, r in self.loops.items()]
        lines += [f"    only if {guard}" for guard in self.guards]
        names = [access.tensor for access in statement.accesses]
        reads = [f"{name}[{offset}]" for name, offset in zip(names, self.offsets, strict=True)]
        value = f" {statement.combine} ".join(reads[1:])
        return "\n".join([*lines, f"    {reads[0]} = the {AGGREGATES[statement.aggregate].words} {value}"])


@dataclass(frozen=True)
class Map:
    """An element-wise statement as a loop over the flat result: which element of each tensor belongs to which item."""

    statement: Elementwise
    array: Array
    operands: dict[str, Array]
    outputs: dict[str, int]
    offsets: dict[str, Linear]

    def __str__(self) -> str:
        reads = [f"    {name}[{offset}]" for name, offset in self.offsets.items()]
        return "\n".join([self.statement.text, f"    for each element: item < {self.array.size}", *reads])


@dataclass(frozen=True)
class Flat:
    """Every statement as loops over flat memory."""

    ranges: Ranges
    parts: tuple[Nest | Map, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.parts))

    __repr__ = __str__


def flatten(program: Program, ranges: Ranges) -> Flat:
    """Turn each statement into loops, and each access into an offset: a sum of strides times indices.

    Raises:
        TileError: an assignment `=(...)` with more than one value for an element, or offsets beyond 32 bits.
    """
    parts: list[Nest | Map] = []
    for statement, domain in zip(program.statements, ranges.domains, strict=True):
        parts.append(_nest(program, domain) if domain else _map(statement, ranges))
    return Flat(ranges, tuple(parts))


def _offset(access: Sequence[Linear], strides: Sequence[int]) -> Linear:
    total = Linear({})
    for index, stride in zip(access, strides, strict=True):
        total = total.plus(index, stride)
    return total


def _map(statement: Elementwise, ranges: Ranges) -> Map:
    array = ranges.arrays[statement.name]
    operands = {n.text: ranges.arrays[n.text] for n in _names(statement.value) if n.text in ranges.arrays}
    if all(other.shape == array.shape or other.size == 1 for other in operands.values()):
        offsets = {name: Linear({"item": 1} if other.size > 1 else {}) for name, other in operands.items()}
        return Map(statement, array, operands, {}, offsets)
    outputs = {f"at{d}": size for d, size in enumerate(array.shape)}
    offsets = {}
    for name, other in operands.items():
        names = list(outputs)[len(array.shape) - len(other.shape) :]
        sizes = zip(names, other.shape, other.strides, strict=True)
        offsets[name] = Linear({coordinate: stride for coordinate, size, stride in sizes if size > 1})
    return Map(statement, array, operands, outputs, offsets)


def _nest(program: Program, domain: Domain) -> Nest:
    """Work-items run over the elements of the output; the indices that remain become loops."""
    outputs, equations, solved, same = _solve(domain)
    inputs = tuple(tuple(_substituted(e, equations) for e in access) for access in domain.accesses[1:])
    order = [name for access in (*domain.accesses[1:], domain.accesses[0]) for e in access for name in e.terms]
    settled = {*outputs, *equations, *(one.name for one in solved)}
    loops = {name: domain.ranges[name] for name in dict.fromkeys([*order, *domain.ranges]) if name not in settled}
    known = {name: range(size) for name, size in outputs.items()} | loops
    for one in solved:
        low, high = one.numerator.bounds(known)
        known[one.name] = range(-(-low // one.divisor), high // one.divisor + 1)
    guards = [Guard(one.numerator, one.divisor) for one in solved] + [Guard(e) for e in same]
    for e, size in domain.inequalities[len(outputs) :]:
        e = _substituted(e, equations)
        low, high = e.bounds(known)
        guards += [Guard(e)] * (low < 0) + [Guard(Linear({}, size - 1).plus(e, -1))] * (high >= size)
    accesses = (tuple(Linear({name: 1}) for name in outputs), *inputs)
    pairs = zip(accesses, domain.arrays, strict=True)
    offsets = tuple(_offset(access, array.strides) for access, array in pairs)
    _check_counts(program, domain, [*offsets, *(guard.expression for guard in guards)], known)
    _check_assignment(program, domain, loops)
    notes = [f"{name} = {value}" for name, value in equations.items()]
    notes += [f"{one.name} = {one.text()}" for one in solved]
    once = tuple(guard for n, guard in enumerate(guards) if guard not in guards[:n])
    return Nest(domain, outputs, loops, tuple(notes), solved, once, accesses, offsets)


def _check_counts(program: Program, domain: Domain, expressions: list[Linear], known: Mapping[str, range]) -> None:
    """Refuse what does not fit OpenCL's int, also on the way to a sum."""
    for e in [*expressions, *(Linear({name: 1}) for name in known)]:
        largest = abs(e.constant) + sum(
            abs(n) * max(abs(known[name].start), abs(known[name].stop)) for name, n in e.terms.items()
        )
        if largest > LARGEST:
            raise program.error(domain.statement.at, f"`{e}` can reach {largest:,}, more than 32 bits can count.",
                                "Work on parts of the tensors, or bound the indices with constraints.")  # fmt: skip


def _check_assignment(program: Program, domain: Domain, loops: Mapping[str, range]) -> None:
    for name, r in loops.items():
        if domain.statement.aggregate == "=" and len(r) > 1:
            what = f"`=(...)` needs one value for each element, the index {name} gives {len(r)}."
            raise program.error(domain.statement.at, what, "Combine them with +, *, > or <, or bound the index.")


def _solve(domain: Domain) -> tuple[dict[str, int], dict[str, Linear], tuple[Solved, ...], list[Linear]]:
    """Express indices by the coordinates of the output element.

    `O[x + k: N]` makes coordinate out0 = x + k, so x = out0 - k needs no loop of its own. A factor, as in
    `O[2*i: N]`, leaves a division: i = out0 / 2, for even out0 alone.

    Returns:
        The coordinates with their sizes, the equations, the divisions, and expressions that must be 0 or more.
    """
    access, shape = domain.accesses[0], domain.arrays[0].shape
    names: dict[int, str] = {}
    for d, e in enumerate(access):  # an index alone is itself the coordinate
        name = next(iter(e.terms), "")
        if e == Linear({name: 1}) and name not in names.values():
            names[d] = name
    plain = set(names.values())
    for d in range(len(access)):
        names.setdefault(d, next(n for n in (f"out{d}" + "_" * k for k in range(9999)) if n not in domain.ranges))
    equations: dict[str, Linear] = {}
    solved: list[Solved] = []
    same: list[Linear] = []
    for d, e in enumerate(access):
        if names[d] in plain:
            continue
        e = _substituted(e, equations)
        taken = {*names.values(), *(name for one in solved for name in (one.name, *one.numerator.terms))}
        free = [name for name in e.terms if name not in taken]
        rest = Linear({names[d]: 1}).plus(e, -1)  # 0 at every valid point
        if not free:
            same += [rest, Linear({}).plus(rest, -1)]
            continue
        name = min(free, key=lambda name: (abs(e.terms[name]), -len(domain.ranges[name])))
        factor = e.terms[name]
        sign = 1 if factor > 0 else -1
        value = Linear({}).plus(rest.plus(Linear({name: 1}), factor), sign)
        if abs(factor) == 1:
            equations = {**{n: old.replace(name, value) for n, old in equations.items()}, name: value}
        else:
            solved.append(Solved(name, value, abs(factor)))
    return {names[d]: size for d, size in enumerate(shape)}, equations, tuple(solved), same


def _substituted(e: Linear, equations: Mapping[str, Linear]) -> Linear:
    for name, value in equations.items():
        e = e.replace(name, value)
    return e


# ---------------------------------------------------------------------------------------------- choose_tile: registers


@dataclass(frozen=True)
class Block:
    """The block of a result that one work-item computes and keeps in its registers.

    A value that is loaded serves many times: one of the panels for each row, one of the other tensor for each column.

    Attributes:
        row: the output index that runs down the block; the panels do not depend on it.
        rows: how many values of it.
        column: the output index that runs along the vectors.
        columns: how many values of it.
        operand: which input, 1 or 2, is copied into panels of `columns` columns, so that its vectors lie side by side.
        dimension: the dimension of that input which `column` runs along.
        panels: the shape of the copy: the panels, all other dimensions of the input as one, the columns.
    """

    row: str
    rows: int
    column: str
    columns: int
    operand: int
    dimension: int
    panels: Array

    @property
    def width(self) -> int:
        """The number of elements of one OpenCL vector."""
        return min(self.columns, 16)


@dataclass(frozen=True)
class Strip:
    """Consecutive elements of a result that one work-item of a CPU computes with vectors.

    No value is used again, but what lies side by side is loaded, added and stored 16 at a time.

    Attributes:
        column: the output index that runs along the strip.
        columns: how many values of it, whole vectors.
    """

    column: str
    columns: int

    @property
    def width(self) -> int:
        """The number of elements of one OpenCL vector."""
        return min(self.columns, 16)


@dataclass(frozen=True)
class Tiles:
    """How the work is cut for a device.

    Attributes:
        device: its name.
        blocks: for each statement its block or strip, or None where a work-item computes one element.
        reasons: for each statement what was chosen and why.
        group: how many blocks of rows and of columns a work-group computes.
    """

    device: str
    blocks: tuple[Block | Strip | None, ...]
    reasons: tuple[str, ...]
    group: tuple[int, int]

    def __str__(self) -> str:
        return "\n".join([f"on {self.device}", *self.reasons])

    __repr__ = __str__


def choose_tile(flat: Flat, device: cl.Device, tile: tuple[int, int] | None = None) -> Tiles:
    """Choose for each contraction the block that a work-item keeps in registers.

    A block pays where a value, once loaded, serves several elements: one input must run along an output index that the
    other does not have, and the other way round. Elsewhere a work-item of a CPU computes a strip of neighbours, if they
    are neighbours in the inputs too, and in all other cases, and on a GPU, one element.

    Args:
        flat: what `flatten` returned.
        device: the device that will run it; its vectors and its kind decide the size of the block.
        tile: rows and columns of the block instead; (1, 1) for one element a work-item everywhere.

    Raises:
        WorkshopError: a tile that cannot be; rows: 1 to 64; columns: 1, 2, 4, 8, or a multiple of 16 up to 128.
    """
    rows, columns = tile or default_tile(device)
    if not (rows in range(1, 65) and columns in (1, 2, 4, 8, *range(16, 129, 16))):
        raise WorkshopError(
            f"A tile of {rows} rows and {columns} columns cannot be.",
            "A block of registers has 1 to 64 rows; its columns are 1, 2, 4, 8, or a multiple of 16 up to 128.",
            "Try tile=(6, 16), or leave it to the device.",
        )
    cpu = opencl.kind(device) == "cpu"
    chosen = [_block(part, rows, columns, fit=tile is None, strips=cpu) for part in flat.parts]
    group = (1, 1) if cpu else (8, 8)  # a GPU wants many work-items side by side
    return Tiles(opencl.name(device), tuple(b for b, _ in chosen), tuple(why for _, why in chosen), group)


def default_tile(device: cl.Device) -> tuple[int, int]:
    """Rows and columns whose sums fill a good half of the device's registers; what is loaded needs the rest.

    A CPU whose vectors hold 16 floats (AVX-512) has 32 vector registers: 8 rows of 2 vectors are 16 of them. One whose
    vectors hold 8 or 4 (AVX, SSE, NEON) has 16 or more: 6 rows of 2 vectors are 12. A GPU's work-item has registers for
    single numbers: 4 x 4.
    """
    if opencl.kind(device) != "cpu":
        return 4, 4
    width = min(max(device.native_vector_width_float, 4), 16)
    return (8 if width == 16 else 6), 2 * width


def _block(part: Nest | Map, rows: int, columns: int, fit: bool, strips: bool) -> tuple[Block | Strip | None, str]:
    """The best block or strip and what it is, or None and why there is none."""
    if isinstance(part, Map):
        return None, f"{part.statement.name}: one element a work-item (element-wise)"
    statement, blocks = part.domain.statement, list(_blocks(part))
    why = "no value serves several elements"
    if rows * columns == 1:
        blocks, why = [], "as asked"
    elif part.solved or (part.guards and statement.aggregate != "+") or not all(part.loops.values()):
        blocks, why = [], "its points are too irregular"
    strip = _strip(part, 4 * columns if fit else columns) if strips and rows * columns > 1 else None
    if strip and not blocks:
        return strip, f"{statement.name}: {strip.columns} ({strip.column}) elements a work-item ({why})"
    if not blocks:
        return None, f"{statement.name}: one element a work-item ({why})"

    def preference(block: Block) -> tuple:
        free = not any(block.row in guard.expression.terms for guard in part.guards)
        contiguous = part.offsets[0].terms[block.column] == 1
        stride = abs(part.offsets[3 - block.operand].terms.get(block.row, 0))
        size = min(part.outputs[block.row], rows)
        return contiguous, free and 2 * size >= rows, size, free, -stride

    best = max(blocks, key=preference)
    if fit:  # no more columns than there are, and as many rows in every block
        size = part.outputs[best.column]
        columns = min(columns, 1 << (size - 1).bit_length() if size <= 16 else _up(size, 16))
        size = part.outputs[best.row]
        rows = math.ceil(size / math.ceil(size / rows))
    shape = (math.ceil(part.outputs[best.column] / columns), best.panels.shape[1], columns)
    best = replace(best, rows=rows, columns=columns, panels=Array(shape, best.panels.dtype))
    if best.panels.size > LARGEST:
        return None, f"{statement.name}: one element a work-item (the panels would be too large)"
    tensor = statement.inputs[best.operand - 1].tensor
    what = f"{rows} ({best.row}) x {columns} ({best.column}) elements a work-item"
    return best, f"{statement.name}: {what}; {tensor} in panels of {columns} columns"


def _blocks(nest: Nest) -> Iterator[Block]:
    """Every pair of output indices for a block's rows and columns, its size still open."""
    arrays = nest.domain.arrays
    if len(arrays) < 3 or not nest.loops or arrays[1].dtype != arrays[2].dtype:
        return
    for operand in (1, 2):
        mine, other = nest.accesses[operand], nest.accesses[3 - operand]
        for column in nest.outputs:
            places = [d for d, e in enumerate(mine) if column in e.terms]
            guarded = any(column in guard.expression.terms for guard in nest.guards)
            if len(places) != 1 or mine[places[0]] != Linear({column: 1}) or guarded or _uses(other, column):
                continue
            for row in nest.outputs:
                several = nest.outputs[row] > 1 and nest.outputs[column] > 1
                if several and _uses(other, row) and not _uses(mine, row):
                    rest = arrays[operand].size // arrays[operand].shape[places[0]]
                    yield Block(row, 0, column, 0, operand, places[0], Array((0, rest, 0), arrays[operand].dtype))


def _strip(nest: Nest, columns: int) -> Strip | None:
    """The strip along the last output index, if its elements are neighbours, or the same, in every input."""
    arrays = nest.domain.arrays
    column = next(reversed(nest.outputs), "")
    factors = {offset.terms.get(column, 0) for offset in nest.offsets[1:]}
    settled = [guard.expression for guard in nest.guards] + [one.numerator for one in nest.solved]
    one_type = len({array.dtype for array in arrays}) == 1 and all(nest.loops.values())
    if factors not in ({1}, {0, 1}) or _uses(settled, column) or not one_type:
        return None
    size = nest.outputs[column]
    columns = min(columns, 64, 1 << (size.bit_length() - 1) if size < 16 else size - size % 16)
    return Strip(column, columns) if columns > 1 else None


def _uses(access: Sequence[Linear], name: str) -> bool:
    return any(name in e.terms for e in access)


# ---------------------------------------------------------------------------------------------- emit: OpenCL C


@dataclass(frozen=True)
class Kernel:
    """One kernel: its name, its OpenCL C, the tensors it takes, and how many work-items run it."""

    name: str
    source: str
    arguments: tuple[str, ...]
    global_size: tuple[int, ...]
    local_size: tuple[int, ...]

    def __str__(self) -> str:
        return self.source

    __repr__ = __str__


@dataclass(frozen=True)
class Code:
    """The kernels of a function in their order.

    Attributes:
        helpers: OpenCL C functions that the kernels call.
        kernels: the kernels, one or two for each statement.
        arrays: every tensor that they take, panels too.
    """

    helpers: tuple[str, ...]
    kernels: tuple[Kernel, ...]
    arrays: dict[str, Array]

    def __str__(self) -> str:
        return "\n".join([*self.helpers, *(kernel.source for kernel in self.kernels)])

    __repr__ = __str__


QUOTIENT = """\
// A division of whole numbers that never traps: by zero it gives 0.
int quotient(int a, int b) {
    return b == 0 ? 0 : b == -1 ? (int)(0u - (uint)a) : a / b;
}
"""
STORE = """\
// Write the first `count` values of a vector, `stride` elements apart.
void store_{dtype}{width}({dtype}{width} values, __global {dtype} *to, int count, int stride) {{
    if (count >= {width} && stride == 1) {{
        vstore{width}(values, 0, to);
    }} else {{
        {dtype} each[{width}];
        vstore{width}(values, 0, each);
        for (int c = 0; c < min(count, {width}); c++) to[c * stride] = each[c];
    }}
}}
"""
GROUP = 64  # work-items of a work-group where each computes one element
WORDS = """auto break case char const continue default do double else enum extern float for goto if inline int long
register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while bool half
uchar ushort uint ulong true false kernel global local constant private generic pipe uniform read_only write_only
read_write complex imaginary quad asm typeof unroll packed aligned item others panel found slot once sum product largest
smallest value min max fmin fmax fabs abs exp log sqrt tanh sin cos pow quotient
INFINITY NAN NULL EOF MAXFLOAT HUGE_VAL HUGE_VALF"""
TAKEN = re.compile(
    rf"({'|'.join(WORDS.split())})|(column|sum|product|largest|smallest|value)\d*|.*_t?"
    r"|(char|uchar|short|ushort|int|uint|long|ulong|float|double|half|vload|vstore)\d+(x\d+)?"
    r"|(panels|first|store|statement|get|cl|as|convert|M|FLT|DBL|HALF|CL|CLK|FP)_.*|[A-Z]+_(MAX|MIN|BIT)"
)


def spelling(name: str) -> str:
    """Return a name's spelling in OpenCL C: its own, with _ at the end where C or the kernels have that word."""
    return name + "_" if TAKEN.fullmatch(name) else name


class _Lines:
    """Lines of C with their indentation."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0

    def add(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def open(self, text: str) -> None:
        self.add(text + " {")
        self.depth += 1

    def close(self, depth: int) -> None:
        while self.depth > depth:
            self.depth -= 1
            self.add("}")

    def __str__(self) -> str:
        return "\n".join(self.lines) + "\n"


def emit(flat: Flat, tiles: Tiles) -> Code:
    """Write the kernels in OpenCL C, with the sizes as numbers and the names of the Tile source."""
    arrays = dict(flat.ranges.arrays)
    kernels: list[Kernel] = []
    helpers: dict[str, None] = {}
    for number, (part, block) in enumerate(zip(flat.parts, tiles.blocks, strict=True), 1):
        name, panels = f"statement_{number}", f"panels_{number}"
        if isinstance(part, Map):
            kernels.append(_emit_map(name, part, flat.ranges.sizes))
        elif block is None:
            kernels.append(_emit_elements(name, part))
        elif isinstance(block, Strip):
            kernels.append(_emit_strips(name, part, block))
            whole = kernels[-1].global_size[0] * block.columns
            if whole < part.outputs[block.column]:
                kernels.append(_emit_elements(f"{name}_edge", part, whole))
        else:
            arrays[panels] = block.panels
            kernels.append(_emit_panels(f"{name}_panels", part, block, panels))
            kernels.append(_emit_block(name, part, block, panels, tiles.group))
            if block.width > 1:
                helpers[STORE.format(dtype=block.panels.dtype, width=block.width)] = None
        if "quotient(" in kernels[-1].source:
            helpers[QUOTIENT] = None
    return Code(tuple(helpers), tuple(kernels), arrays)


def _parameters(reads: Mapping[str, str], writes: tuple[str, str]) -> str:
    """The parameters of a kernel from tensors and their types; what starts with `panels_` is no name of the source."""
    inputs = [f"__global const {dtype} *{_tensor(name)}" for name, dtype in reads.items()]
    return ", ".join([*inputs, f"__global {writes[1]} *{_tensor(writes[0])}"])


def _tensor(name: str) -> str:
    return name if name.startswith("panels_") else spelling(name)


def _up(size: int, group: int) -> int:
    """The next multiple of `group`."""
    return -(-size // group) * group


def _coordinates(lines: _Lines, outputs: Mapping[str, int], source: str) -> None:
    """Take a flat number apart into coordinates; the last one runs fastest."""
    left = math.prod(outputs.values())
    passed = 1
    for name, size in reversed(outputs.items()):
        left //= size
        value = source if passed == 1 else f"{source} / {passed}"
        lines.add(f"const int {spelling(name)} = {value}{f' % {size}' if left > 1 else ''};")
        passed *= size


def _emit_elements(name: str, nest: Nest, start: int = 0) -> Kernel:
    """One work-item computes one element: the loops as they are, from `start` of the last output index on."""
    wide = list(nest.outputs.values())[-1] if nest.outputs else 1
    group = min(GROUP, 1 << (wide - start - 1).bit_length())
    lines = _Lines()
    lines.add(f"// {nest.domain.statement.text}")
    lines.add(f"// One work-item computes one element of {nest.domain.statement.name}.")
    column = _open_contraction(lines, name, nest)
    lines.add(f"const int {column} = {f'{start} + ' if start else ''}get_global_id(0);")
    lines.add(f"if ({column} >= {wide}) return;")
    tensors, offsets = nest.domain.statement.accesses, [offset.text(spelling) for offset in nest.offsets]
    reads = [f"{spelling(one.tensor)}[{offset}]" for one, offset in zip(tensors, offsets, strict=True)]
    variable = AGGREGATES[nest.domain.statement.aggregate].variable
    found = _emit_loops(lines, nest, {variable: reads[1:]}, nest.domain.arrays[0].dtype)
    lines.add(f"{reads[0]} = {f'found ? {variable} : 0' if found else variable};")
    lines.close(0)
    others = math.prod(nest.outputs.values()) // wide
    return Kernel(name, str(lines), _arguments(nest), (_up(wide - start, group), others), (group, 1))


def _emit_strips(name: str, nest: Nest, strip: Strip) -> Kernel:
    """One work-item computes a strip of elements with vectors; what is left over is for `_emit_elements`."""
    statement, dtype = nest.domain.statement, nest.domain.arrays[0].dtype
    variable, width = AGGREGATES[statement.aggregate].variable, strip.width
    lines = _Lines()
    lines.add(f"// {statement.text}")
    lines.add(f"// One work-item computes {strip.columns} ({strip.column}) elements of {statement.name}.")
    column = _open_contraction(lines, name, nest)
    lines.add(f"const int {column} = {strip.columns} * get_global_id(0);")
    values: dict[str, list[str]] = {}
    for c in range(strip.columns // width):
        reads = values.setdefault(f"{variable}{c}", [])
        for access, offset in zip(statement.inputs, nest.offsets[1:], strict=True):
            vector = strip.column in offset.terms
            text = offset.plus(Linear({}, c * width if vector else 0)).text(spelling)
            tensor = spelling(access.tensor)
            reads.append(f"vload{width}(0, {tensor} + {text})" if vector else f"{tensor}[{text}]")
    found = _emit_loops(lines, nest, values, f"{dtype}{width}")
    for c, one in enumerate(values):
        to = nest.offsets[0].plus(Linear({}, c * width)).text(spelling)
        value = f"found ? {one} : ({dtype}{width})(0)" if found else one
        lines.add(f"vstore{width}({value}, 0, {spelling(statement.name)} + {to});")
    lines.close(0)
    wide = nest.outputs[strip.column]
    others = math.prod(nest.outputs.values()) // wide
    return Kernel(name, str(lines), _arguments(nest), (wide // strip.columns, others), (1, 1))


def _arguments(nest: Nest) -> tuple[str, ...]:
    """The tensors of a contraction's kernel: each input once, then the output."""
    return (*dict.fromkeys(access.tensor for access in nest.domain.statement.inputs), nest.domain.statement.name)


def _open_contraction(lines: _Lines, name: str, nest: Nest) -> str:
    """Open a kernel and find out all coordinates but the last, whose spelling is returned."""
    statement, arrays = nest.domain.statement, nest.domain.arrays
    reads = {access.tensor: array.dtype for access, array in zip(statement.inputs, arrays[1:], strict=True)}
    lines.open(f"__kernel void {name}({_parameters(reads, (statement.name, arrays[0].dtype))})")
    *others, last = nest.outputs or [""]
    if others:
        lines.add("const int others = get_global_id(1);")
        _coordinates(lines, {name: nest.outputs[name] for name in others}, "others")
    return spelling(last) if last else "item"


def _emit_loops(lines: _Lines, nest: Nest, values: dict[str, list[str]], dtype: str) -> bool:
    """Write the loops that combine values, and return whether `found` says if a valid point was there.

    Args:
        lines: where to write.
        nest: the contraction.
        values: for each variable what the inputs give it.
        dtype: the type of the variables, also of a vector.
    """
    statement = nest.domain.statement
    aggregate, element = AGGREGATES[statement.aggregate], nest.domain.arrays[0].dtype
    starts = [f"{variable} = {_c(aggregate.start, element)}" for variable in values]
    lines.add(f"{dtype} {', '.join(starts)};")
    found = statement.aggregate in "*><" and bool(nest.guards or not all(nest.loops.values()))
    if found:
        lines.add("int found = 0;  // whether a valid point reaches this place")
    depth, pending = lines.depth, [*nest.solved, *nest.guards]
    known = _settle(lines, pending, set(nest.outputs))
    for loop, r in nest.loops.items():
        known = _settle(lines, pending, _loop(lines, loop, r, known))
    for variable, reads in values.items():
        lines.add(_c(aggregate.step, element).format(variable, f" {statement.combine} ".join(reads)))
    if found:
        lines.add("found = 1;")
    lines.close(depth)
    return found


def _c(text: str, dtype: str) -> str:
    """A piece of C for `float` as it is for `dtype`."""
    names = {"-INFINITY": "INT_MIN", "INFINITY": "INT_MAX", "fmax": "max", "fmin": "min"}
    return re.sub("|".join(names), lambda found: names[found[0]], text) if dtype == "int" else text


def _loop(lines: _Lines, name: str, r: range, known: set[str]) -> set[str]:
    index = spelling(name)
    lines.open(f"for (int {index} = {r.start}; {index} < {r.stop}; {index}++)")
    return known | {name}


def _settle(lines: _Lines, pending: list[Solved | Guard], known: set[str]) -> set[str]:
    """Write every index and guard that depends on known names alone, as far out as that can be."""
    for one in [one for one in pending if isinstance(one, Solved)]:
        if known >= set(one.numerator.terms):
            lines.add(f"const int {spelling(one.name)} = {one.text(spelling)};")
            known = known | {one.name}
            pending.remove(one)
    ready = [one for one in pending if isinstance(one, Guard) and known >= set(one.expression.terms)]
    if ready:
        lines.open(f"if ({' && '.join(guard.text(spelling) for guard in ready)})")
        pending[:] = [one for one in pending if one not in ready]
    return known


def _emit_panels(name: str, nest: Nest, block: Block, panels: str) -> Kernel:
    """Copy a tensor so that the columns of a block lie side by side, and fill up the last panel with zeros."""
    tensor, whole = nest.domain.statement.inputs[block.operand - 1].tensor, nest.domain.arrays[block.operand]
    stride, size = whole.strides[block.dimension], whole.shape[block.dimension]
    count, rest, columns = block.panels.shape
    start = f"{size} * rest" if stride == 1 else f"{stride * size} * (rest / {stride}) + rest % {stride}"
    where = "from" if stride == 1 else f"{stride} * from"
    lines = _Lines()
    lines.add(f"// {tensor} in panels of {columns} values of {block.column}, which lie side by side.")
    lines.open(f"__kernel void {name}({_parameters({tensor: whole.dtype}, (panels, whole.dtype))})")
    lines.add("const int rest = get_global_id(0);  // the place in all other dimensions")
    lines.add("const int panel = get_global_id(1);")
    lines.add(f"if (rest >= {rest}) return;")
    lines.open(f"for (int column = 0; column < {columns}; column++)")
    lines.add(f"const int from = {columns} * panel + column;")
    value = f"from < {size} ? {spelling(tensor)}[{start} + {where}] : 0"
    lines.add(f"{panels}[{columns} * ({rest} * panel + rest) + column] = {value};")
    lines.close(0)
    return Kernel(name, str(lines), (tensor, panels), (_up(rest, GROUP), count), (GROUP, 1))


def _emit_block(name: str, nest: Nest, block: Block, panels: str, group: tuple[int, int]) -> Kernel:
    """One work-item computes a block of elements and keeps it in registers."""
    statement, dtype = nest.domain.statement, block.panels.dtype
    aggregate = AGGREGATES[statement.aggregate]
    output, other = statement.name, statement.inputs[2 - block.operand].tensor
    vector = f"{dtype}{block.width}" if block.width > 1 else dtype
    row, column, first = spelling(block.row), spelling(block.column), f"first_{block.row}"
    size, count = nest.outputs[block.row], block.panels.shape[0]
    outer = {n: size for n, size in nest.outputs.items() if n not in (block.row, block.column)}
    sums = [f"{aggregate.variable}[slot][{c}]" for c in range(block.columns // block.width)]
    every_row = f"for (int slot = 0; slot < {block.rows}; slot++)"
    lines = _Lines()
    lines.add(f"// {statement.text}")
    what = f"{block.rows} ({block.row}) x {block.columns} ({block.column}) elements"
    lines.add(f"// One work-item computes {what} of {output}.")
    lines.open(f"__kernel void {name}({_parameters({other: dtype, panels: dtype}, (output, dtype))})")
    lines.add(f"const int {first} = {block.rows} * get_global_id(0);")
    lines.add("const int panel = get_global_id(1);")
    if group != (1, 1):
        lines.add(f"if ({first} >= {size} || panel >= {count}) return;")
    if outer:
        lines.add("const int others = get_global_id(2);")
        _coordinates(lines, outer, "others")
    lines.add(f"{vector} {aggregate.variable}[{block.rows}][{len(sums)}];  // in registers")
    lines.add("#pragma unroll")
    lines.open(every_row)
    for one in sums:
        lines.add(f"{one} = {_c(aggregate.start, dtype)};")
    lines.close(1)
    pending = [*nest.guards]
    known = _settle(lines, pending, set(outer))
    for loop in _panel_order(nest, block):
        known = _settle(lines, pending, _loop(lines, loop, nest.loops[loop], known))
    for c in range(len(sums)):
        lines.add(f"const {vector} column{c} = {_load(nest, block, panels, c)};")
    lines.add("#pragma unroll")
    lines.open(every_row)
    lines.add(f"const int {row} = min({first} + slot, {size - 1});  // beyond the edge the last one again")
    _settle(lines, pending, known | {block.row})
    lines.add(f"const {dtype} once = {_read_once(spelling(other), nest, nest.offsets[3 - block.operand])};")
    for c, one in enumerate(sums):
        lines.add(_c(aggregate.step, dtype).format(one, f"once {statement.combine} column{c}"))
    lines.close(1)
    lines.add("#pragma unroll")
    lines.open(every_row)
    lines.open(f"if ({first} + slot < {size})")
    lines.add(f"const int {row} = {first} + slot, {column} = {block.columns} * panel;")
    stride = nest.offsets[0].terms[block.column]
    for c, one in enumerate(sums):
        to = nest.offsets[0].plus(Linear({}, c * block.width * stride)).text(spelling)
        left = Linear({block.column: -1}, nest.outputs[block.column] - c * block.width).text(spelling)
        if block.width > 1:
            lines.add(f"store_{vector}({one}, {spelling(output)} + {to}, {left}, {stride});")
        else:
            lines.add(f"{spelling(output)}[{to}] = {one};")
    lines.close(0)
    sizes = (_up(math.ceil(size / block.rows), group[0]), _up(count, group[1]), math.prod(outer.values()))
    return Kernel(name, str(lines), (other, panels, output), sizes, (*group, 1))


def _read_once(tensor: str, nest: Nest, offset: Linear) -> str:
    """An access whose part outside the loops is a pointer: the compiler then keeps one address for each row."""
    fixed = Linear({name: n for name, n in offset.terms.items() if name not in nest.loops})
    inner = offset.plus(fixed, -1).text(spelling)
    return f"({tensor} + {fixed.text(spelling)})[{inner}]" if fixed.terms else f"{tensor}[{inner}]"


def _load(nest: Nest, block: Block, panels: str, c: int) -> str:
    """Vector `c` of a panel's line: the panels are counted in whole vectors."""
    vectors, whole = block.columns // block.width, nest.domain.arrays[block.operand]
    rest = Array(tuple(size for d, size in enumerate(whole.shape) if d != block.dimension), whole.dtype)
    place = _offset([e for d, e in enumerate(nest.accesses[block.operand]) if d != block.dimension], rest.strides)
    place = Linear({}, c).plus(place, vectors).text(spelling)
    place = f"{vectors * rest.size} * panel" + (f" + {place}" if place != "0" else "")
    return f"vload{block.width}({place}, {panels})" if block.width > 1 else f"{panels}[{place}]"


def _panel_order(nest: Nest, block: Block) -> list[str]:
    """The loops in the order in which the panels lie in memory."""
    names = [name for e in nest.accesses[block.operand] for name in e.terms]
    return list(dict.fromkeys(name for name in [*names, *nest.loops] if name in nest.loops))


def _emit_map(name: str, part: Map, sizes: Mapping[str, int]) -> Kernel:
    """One work-item computes one element of an element-wise statement."""
    statement, array = part.statement, part.array
    reads = {tensor: operand.dtype for tensor, operand in part.operands.items()}
    lines = _Lines()
    lines.add(f"// {statement.text}")
    lines.add(f"// One work-item computes one element of {statement.name}, of {array.size}.")
    lines.open(f"__kernel void {name}({_parameters(reads, (statement.name, array.dtype))})")
    lines.add("const int item = get_global_id(0);")
    lines.add(f"if (item >= {array.size}) return;")
    _coordinates(lines, part.outputs, "item")
    value, _ = _render(statement.value, part, sizes)
    lines.add(f"{spelling(statement.name)}[item] = {value};")
    lines.close(0)
    return Kernel(name, str(lines), (*reads, statement.name), (_up(array.size, GROUP),), (GROUP,))


def _render(expression: Expression, part: Map, sizes: Mapping[str, int]) -> tuple[str, str]:
    """An element-wise expression in C, and its type."""
    if expression.kind == "number":
        whole = expression.text.isdecimal()
        return (str(int(expression.text)), "int") if whole else (f"{float(expression.text)!r}f", "float")
    if expression.kind == "name" and expression.text in sizes:
        return str(sizes[expression.text]), "int"
    if expression.kind == "name":
        text = f"{spelling(expression.text)}[{part.offsets[expression.text].text()}]"
        return text, part.operands[expression.text].dtype
    pairs = [_render(child, part, sizes) for child in expression.parts]
    nested = [child.kind == "operator" and expression.kind == "operator" for child in expression.parts]
    texts = [f"({text})" if inside else text for (text, _), inside in zip(pairs, nested, strict=True)]
    types = [dtype for _, dtype in pairs]
    sign = expression.text
    if sign == "?":
        condition = f"{texts[0]} != 0" if types[0] == "float" else texts[0]  # C asks whole numbers alone
        return f"{condition} ? {texts[1]} : {texts[2]}", _promote(*types[1:])
    if sign in COMPARISONS:
        return f"{texts[0]} {sign} {texts[1]}", "int"
    if sign == "/" and "float" not in types:
        return f"quotient({pairs[0][0]}, {pairs[1][0]})", "int"
    if expression.kind == "operator":
        return f" {sign} ".join(texts) if len(texts) == 2 else f"-{texts[0]}", _promote(*types)
    dtype = "float" if sign in FLOAT_FUNCTIONS else _promote(*types)
    given = ", ".join(
        f"(float)({t})" if (dtype, kind) == ("float", "int") else t for t, kind in zip(texts, types, strict=True)
    )
    name = {"abs": "fabs", "max": "fmax", "min": "fmin"}.get(sign, sign) if dtype == "float" else sign
    return (f"(int)abs({given})" if name == "abs" else f"{name}({given})"), dtype


# ---------------------------------------------------------------------------------------------- the function


@dataclass(frozen=True)
class Stages:
    """What each stage returned for one set of shapes."""

    program: Program
    ranges: Ranges
    flat: Flat
    tiles: Tiles
    code: Code

    def __str__(self) -> str:
        return "\n\n".join(str(stage) for stage in (self.program, self.ranges, self.flat, self.tiles, self.code))

    __repr__ = __str__


DTYPES = {"float32": "float", "int32": "int"}


class Function:
    """A Tile function that can be called with arrays.

        matmul = tile.Function("function (A[M, L], B[L, N]) -> (C) { C[i, j: M, N] = +(A[i, k] * B[k, j]); }")
        c = matmul(a, b)

    It is compiled for each set of shapes when it is first called with them, as PlaidML did: every size is then a plain
    number in the kernel, and the device's compiler can unroll and cancel.

    Args:
        source: the Tile function.
        device: where to run; the lessons' device if None.
        tile: rows and columns of the block that a work-item keeps in registers; see `choose_tile`.

    Raises:
        TileError: the source is not a Tile function.
    """

    def __init__(self, source: str, device: cl.Device | None = None, tile: tuple[int, int] | None = None) -> None:
        self.program = parse(source)
        self.tile = tile
        self._device = device
        self._queue: cl.CommandQueue | None = None
        self._stages: dict[tuple, Stages] = {}
        self._built: dict[tuple, list[cl.Kernel]] = {}

    @property
    def device(self) -> cl.Device:
        """The device that runs it."""
        if self._device is None:
            self._device = opencl.pick_device()
        return self._device

    def __call__(self, *arrays: np.ndarray, **named: np.ndarray) -> np.ndarray | tuple[np.ndarray, ...]:
        """Run on arrays of float32 or int32, in the order of the inputs or by their names.

        Returns:
            The output, or a tuple of the outputs where there are several.

        Raises:
            TileError: the arrays do not fit the function, or need more memory than the device has.
        """
        import pyopencl as cl

        given = self._inputs(arrays, named)
        launch, buffers, code = self._prepare(given)
        launch()
        outputs = []
        for name in self.program.outputs:
            array = code.arrays[name]
            out = np.empty(array.shape, {"float": np.float32, "int": np.int32}[array.dtype])
            cl.enqueue_copy(self._queue, out, buffers[name])
            outputs.append(out)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def stages(self, *shapes: Sequence[int] | np.ndarray) -> Stages:
        """Return what every stage made of these shapes (or of the shapes and types of arrays); nothing is run."""
        key = []
        for number, shape in enumerate(shapes):
            array = isinstance(shape, np.ndarray | np.generic)
            dtype = self._dtype(number, shape) if array and number < len(self.program.inputs) else "float"
            key.append((shape.shape if array else tuple(shape), dtype))
        return self._compile(tuple(key))

    def source(self, *shapes: Sequence[int] | np.ndarray) -> str:
        """Return the OpenCL C for inputs of these shapes."""
        return str(self.stages(*shapes).code)

    def measure(
        self, *arrays: np.ndarray, repeats: int = 15, label: str = "", **named: np.ndarray
    ) -> timing.Measurement:
        """Time the kernels on these arrays, which are copied to the device once, before the clock starts."""
        launch, _, _ = self._prepare(self._inputs(arrays, named))
        label = label or "; ".join(statement.text.rstrip(";") for statement in self.program.statements)
        return timing.measure(launch, device=opencl.name(self.device), label=label, on=self._queue, repeats=repeats)

    def _inputs(self, arrays: Sequence[np.ndarray], named: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """The arrays in the order of the inputs, or a TileError that names the input that is wrong."""
        program, known = self.program, [one.name for one in self.program.inputs]
        start = program.source.index("(")
        for name in named:
            if name not in known:
                raise program.error(start, f"the function has no input {name}.", _list("Its inputs", set(known)))
            if name in known[: len(arrays)]:
                raise program.error(start, f"the input {name} is given twice.", "Give it by place or by name.")
        if len(arrays) > len(known):
            raise program.error(start, f"expected {len(known)} inputs, came {len(arrays)}.")
        given = dict(zip(known, arrays, strict=False)) | named
        for one in program.inputs:
            if one.name not in given:
                raise program.error(one.at, f"the input {one} is missing: expected {len(known)}, came {len(given)}.")
        for number, name in enumerate(known):
            self._dtype(number, given[name])
        return [given[name] for name in known]

    def _dtype(self, number: int, array: np.ndarray) -> str:
        came = str(array.dtype) if isinstance(array, np.ndarray | np.generic) else type(array).__name__
        if came not in DTYPES:
            one = self.program.inputs[number]
            raise self.program.error(one.at, f"{one} takes an array of float32 or int32, came {came}.",
                                     "Convert it, for example by `.astype(np.float32)`.")  # fmt: skip
        return DTYPES[came]

    def _compile(self, key: tuple[tuple[tuple[int, ...], str], ...]) -> Stages:
        """All five stages for these shapes and types."""
        if key not in self._stages:
            ranges = infer(self.program, [shape for shape, _ in key], [dtype for _, dtype in key])
            flat = flatten(self.program, ranges)
            tiles = choose_tile(flat, self.device, self.tile)
            self._stages[key] = Stages(self.program, ranges, flat, tiles, emit(flat, tiles))
        return self._stages[key]

    def _prepare(self, given: Sequence[np.ndarray]) -> tuple[Callable[[], None], dict[str, cl.Buffer], Code]:
        """Build the kernels, copy the inputs, and return a function that launches."""
        import pyopencl as cl

        key = tuple((array.shape, DTYPES[str(array.dtype)]) for array in given)
        code = self._compile(key).code
        self._check_memory(code)
        if self._queue is None:
            self._context = cl.Context([self.device])  # kept: Intel's driver forgets one that only its queue holds
            self._queue = cl.CommandQueue(self._context)
        if key not in self._built:
            program = opencl.build(self._context, str(code))
            self._built[key] = [cl.Kernel(program, kernel.name) for kernel in code.kernels]
        flags = cl.mem_flags.READ_WRITE
        buffers = {name: cl.Buffer(self._context, flags, 4 * array.size) for name, array in code.arrays.items()}
        for one, array in zip(self.program.inputs, given, strict=True):
            cl.enqueue_copy(self._queue, buffers[one.name], np.asarray(array, order="C"))
        ready = list(zip(self._built[key], code.kernels, strict=True))

        def launch() -> None:
            for built, kernel in ready:
                built(self._queue, kernel.global_size, kernel.local_size, *(buffers[name] for name in kernel.arguments))

        return launch, buffers, code

    def _check_memory(self, code: Code) -> None:
        """Refuse what the device has no memory for, before anything is allocated."""
        places = {one.name: one.at for one in self.program.inputs}
        for number, statement in enumerate(self.program.statements, 1):
            places |= {statement.name: statement.at, f"panels_{number}": statement.at}
        largest = max(code.arrays, key=lambda name: code.arrays[name].size)
        total = sum(array.size for array in code.arrays.values())
        for what, elements, most in (
            (f"{largest} needs", code.arrays[largest].size, self.device.max_mem_alloc_size),
            ("all tensors together need", total, self.device.global_mem_size),
        ):
            if 4 * elements > most:
                has = f"{opencl.name(self.device)} has {most / 2**30:.1f} GiB for it"
                needs = f"{what} {4 * elements / 2**30:.1f} GiB, {has}."
                raise self.program.error(places[largest], needs, "Work on smaller arrays, or on parts of them.")
