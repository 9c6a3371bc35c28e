"""Stage 1: read a Tile function into a tree of statements, and refuse what is no Tile function."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import NoReturn

from helpers.errors import WorkshopError

LARGEST = 2**31 - 1  # whole numbers, offsets and indices are OpenCL's 32-bit int
LARGEST_FLOAT = 3.4028234e38
LONGEST = 100  # operators, brackets and calls in one expression
PLAIN = "Indices and sizes are made of whole numbers, names, brackets and + - * / alone."

AGGREGATES = {"+": "sum of", "*": "product of", ">": "largest of", "<": "smallest of", "=": "only"}
FUNCTIONS = {"exp": 1, "log": 1, "sqrt": 1, "tanh": 1, "sin": 1, "cos": 1, "pow": 2, "abs": 1, "max": 2, "min": 2}
COMPARISONS = ("==", "!=", "<", ">", "<=", ">=")
STRENGTH = {"?": 0, "==": 1, "!=": 1, "<": 2, ">": 2, "<=": 2, ">=": 2, "+": 3, "-": 3, "*": 4, "/": 4}


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


@dataclass(frozen=True)
class Node:
    """A word of the source, or the tree of an expression.

    The kind is `number`, `name`, `operator` or `call`, or `access` for a tensor and its indices, such as `B[k, j]`;
    of a word alone also `symbol` or `end`.
    """

    kind: str
    text: str  # the number, the name, the sign, or what is called or accessed
    at: int  # where it stands in the source
    parts: tuple[Node, ...] = ()  # what the sign or the function works on, or the indices

    def all(self, kind: str) -> list[Node]:
        """Return every node of a kind in it."""
        return [self] * (self.kind == kind) + [node for part in self.parts for node in part.all(kind)]

    def fill(self, sizes: Mapping[str, int]) -> Node:
        """Return it with numbers in the place of sizes."""
        if self.kind == "name" and self.text in sizes:
            return Node("number", str(sizes[self.text]), self.at)
        return replace(self, parts=tuple(part.fill(sizes) for part in self.parts))

    def show(self, known: Mapping[int, object]) -> str:
        """Return it as text; what stands where `known` has an entry is shown as that."""
        if self.at in known:
            return str(known[self.at])
        parts = [part.show(known) for part in self.parts]
        if self.kind in ("call", "access"):
            return f"{self.text}({', '.join(parts)})" if self.kind == "call" else f"{self.text}[{', '.join(parts)}]"
        texts = [f"({text})" if part.kind == "operator" else text for part, text in zip(self.parts, parts, strict=True)]
        if self.text == "?":
            return f"{texts[0]} ? {texts[1]} : {texts[2]}"
        return f" {self.text} ".join(texts) if len(texts) == 2 else self.text + "".join(texts)

    def __str__(self) -> str:
        return self.show({})


@dataclass(frozen=True)
class Statement:
    """A contraction, `C[i, j: M, N] = +(A[i, k] * B[k, j]);`, or element-wise, `R = max(X, 0.0);`."""

    output: Node  # an access, or the name alone
    value: Node  # of a contraction one access, or two with * or + between them
    text: str  # the statement as it is written
    aggregate: str = ""  # how a contraction makes one value of many; empty if it is element-wise
    sizes: tuple[Node, ...] = ()  # of a contraction's output
    constraints: tuple[tuple[Node, Node], ...] = ()  # index expressions, and the sizes that they stay below

    @property
    def name(self) -> str:
        """The tensor that it makes."""
        return self.output.text

    def show(self, output: object, known: Mapping[int, object]) -> str:
        """Return in words what an element is."""
        words = f"the {AGGREGATES[self.aggregate]} " if self.aggregate else ""
        return f"{output} = {words}{self.value.show(known)}"

    def __str__(self) -> str:
        if not self.aggregate:
            return self.show(f"each element of {self.output}", {})
        limits = "".join(f", where 0 <= {index} < {size}" for index, size in self.constraints)
        return self.show(f"{self.output} of shape ({', '.join(map(str, self.sizes))})", {}) + limits


@dataclass(frozen=True)
class Program:
    """A Tile function as a tree."""

    source: str
    inputs: tuple[Node, ...]  # a name, or an access with a name for each size
    outputs: tuple[str, ...]
    statements: tuple[Statement, ...]

    def __str__(self) -> str:
        inputs, outputs = ", ".join(map(str, self.inputs)), ", ".join(self.outputs)
        return "\n".join([f"inputs  {inputs}", f"outputs {outputs}", *map(str, self.statements)])

    __repr__ = __str__

    @property
    def brackets(self) -> Node:
        """Where the inputs begin."""
        return Node("symbol", "(", self.source.index("("))

    def error(self, node: Node, what: str, next: str = "") -> TileError:
        """Return the error to raise for the place where a node stands."""
        return TileError(self.source, node.at, what, next)


TOKEN = re.compile(
    r"(?P<space>\s+|//[^\n]*)|(?P<number>(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][-+]?\d+)?|\d+)"
    r"|(?P<name>[A-Za-z]\w*)|(?P<symbol>->|<=|>=|==|!=|[-+*/<>=?:;,(){}\[\]])|(?P<wrong>.)",
    re.ASCII,
)


def tokens(source: str) -> list[Node]:
    """Cut the source into words; spaces and `// comments` fall away, and the last word is the end."""
    words, end = [], 0
    for match in TOKEN.finditer(source):
        if match.lastgroup == "wrong":
            hint = HABITS[r"\*\s*\*"] if match[0] == "^" else ""
            raise TileError(source, match.start(), f"Tile has no character {match[0]!r}.", hint)
        if match.lastgroup != "space":
            words.append(Node(match.lastgroup, match[0], match.start()))
            end = match.end()
    return [*words, Node("end", "the end of the source", end)]


def parse(source: str) -> Program:
    """Read a Tile function.

    The parser descends: one method for each rule of the grammar, which looks at the next word and calls the methods of
    the rules inside it. Nothing is ever read twice, so a name has to be made before it is used.

    Raises:
        TileError: the source is not a Tile function, or a name in it is unknown or given twice.
    """
    return _Parser(source).function()


HABITS = {  # of other languages, from the word before the one that does not fit: what Tile writes instead
    r"\*\s*\*": "For a square, write A * A or pow(A, 2.0).",
    r"\]\s*\[": "All indices stand in one pair of brackets: A[i, j].",
    r"\]\s*\+\s*=": "For a sum, write = +(...);",
    r"\)\s*[-+*/]": "A contraction stands alone: give it a name, and go on in the next statement, as in O = S / N;",
    r"\d+\s*[a-z]": "To multiply, write *, as in 2 * x.",
}


class _Parser:
    """The grammar of Tile, a method for each rule.

    function     function (input, ...) -> (NAME, ...) { statement ... }
    input        NAME, or NAME[SIZE, ...]
    statement    contraction, or elementwise
    elementwise  NAME = expression;
    contraction  NAME[index, ...: size, ...] = sign(access), index < size, ...; with * or + between two accesses
    access       NAME[index, ...]
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self.words = tokens(source)
        self.position = 0
        self.sizes: set[str] = set()
        self.tensors: set[str] = set()
        self.place = ""  # where the expression that is being read stands: `element`, `index` or `size`
        self.length = 0  # its operators, brackets and calls
        self.index, self.size = partial(self.expression, "index"), partial(self.expression, "size")

    @property
    def word(self) -> Node:
        return self.words[self.position]

    @property
    def taken(self) -> Node:
        return self.words[self.position - 1]

    def accept(self, *texts: str) -> Node | None:
        """Take the next word if it is one of `texts`."""
        return self.take() if self.word.text in texts else None

    def take(self) -> Node:
        self.position += 1
        return self.taken

    def expect(self, *texts: str) -> Node:
        return self.accept(*texts) or self.fail(" or ".join(f"`{text}`" for text in texts))

    def fail(self, expected: str, next: str = "") -> NoReturn:
        came = self.word.text if self.word.kind == "end" else f"`{self.word.text}`"
        if "//" in self.source[self.taken.at : self.word.at]:  # Python's division of whole numbers is a comment here
            next = "What stands behind `//` is a comment; to divide, write `/`, which in a size rounds down."
        for habit, hint in HABITS.items():
            if re.match(habit, self.source[self.taken.at :]):
                next = hint
        self.error(self.word, f"expected {expected}, came {came}.", next)

    def error(self, where: Node, what: str, next: str = "") -> NoReturn:
        raise TileError(self.source, where.at, what, next)

    def listed(self, rule: Callable, *closing: str) -> tuple:
        """Take what `rule` reads, with commas between, and a closing sign."""
        found: list = []
        while not self.accept(*closing):
            if found:
                self.expect(",", *closing)
            found.append(rule())
        return tuple(found)

    def capital(self, what: str) -> Node:
        """Take a name that starts with a capital letter."""
        if self.word.kind == "name" and self.word.text[0].isupper():
            return self.take()
        self.fail(f"the name of {what}, which starts with a capital letter")

    def function(self) -> Program:
        self.expect("function")
        self.expect("(")
        inputs = self.listed(self.input, ")")
        for one in inputs:
            if one.text in self.tensors | self.sizes:
                self.error(one, f"the name {one.text} is given twice.", "Choose another name.")
            self.tensors.add(one.text)
        self.expect("->")
        self.expect("(")
        outputs = self.listed(lambda: self.capital("an output"), ")")
        self.expect("{")
        statements = []
        while not self.accept("}"):
            if self.word.kind == "end":
                self.fail("a statement or `}`")
            statements.append(self.statement())
        if self.word.kind != "end":
            self.fail("nothing after the function's `}`")
        written = [statement.name for statement in statements]
        for number, word in enumerate(outputs):
            if word.text not in written:
                hint = f"Add a statement that makes it: {word.text} = ...;"
                self.error(word, f"the output {word.text} is never written.", hint)
            if word.text in map(str, outputs[:number]):
                self.error(word, f"the output {word.text} is listed twice.")
        return Program(self.source, inputs, tuple(map(str, outputs)), tuple(statements))

    def input(self) -> Node:
        name = self.capital("an input")
        if not self.accept("["):
            return name
        sizes = self.listed(lambda: self.capital("a size"), "]")
        self.sizes.update(size.text for size in sizes)
        return Node("access", name.text, name.at, sizes)

    def statement(self) -> Statement:
        name = self.capital("a tensor")
        if name.text in self.tensors | self.sizes:
            hint = "A tensor is made once and never changed: choose a new name."
            self.error(name, f"the name {name.text} is assigned twice.", hint)
        made = self.contraction(name) if self.accept("[") else self.elementwise(name)
        self.tensors.add(name.text)
        return made

    def elementwise(self, name: Node) -> Statement:
        if not self.accept("="):
            self.fail("`=`, or `[` and the indices of a contraction")
        if self.word.text in AGGREGATES:
            hint = f"A contraction names the indices and sizes of its output: {name.text}[i: N] = +(...);"
            self.fail("an expression", hint)
        value = self.expression("element")
        self.expect(";")
        return Statement(name, value, self.text_from(name))

    def contraction(self, name: Node) -> Statement:
        output = Node("access", name.text, name.at, self.listed(self.index, ":", "]"))
        sizes = self.listed(self.size, "]") if self.taken.text == ":" else ()
        self.expect("=")
        aggregate = self.accept(*AGGREGATES)
        if not aggregate:
            hint = "For a sum, write = +(...); for the largest = >(...); for the only value = =(...);"
            self.fail("how to combine the values: `+`, `*`, `>`, `<` or `=`", hint)
        self.expect("(")
        value, sign = self.access(), self.accept("*", "+")
        if sign:
            value = replace(sign, kind="operator", parts=(value, self.access()))
        if not self.accept(")"):
            expected = "`)`" if sign else "`*`, `+` or `)`"
            self.fail(expected, "A contraction takes one tensor, or two with * or + between them.")
        constraints = []
        while not self.accept(";"):
            self.expect(",", ";")
            index = self.index()
            if not self.accept("<"):
                hint = "A constraint reads `index expression < size`, and 0 <= index expression comes with it."
                self.fail("`<`", hint)
            constraints.append((index, self.size()))
        return Statement(output, value, self.text_from(name), aggregate.text, sizes, tuple(constraints))

    def access(self) -> Node:
        if self.word.kind == "number" or self.word.text in FUNCTIONS:
            self.fail("the name of a tensor", "Numbers and functions belong in a statement of their own.")
        name = self.capital("a tensor")
        if name.text not in self.tensors:
            self.error(name, f"unknown tensor {name.text}.", listing("Tensors so far", self.tensors))
        self.expect("[")
        return Node("access", name.text, name.at, self.listed(self.index, "]"))

    def text_from(self, first: Node) -> str:
        """The source from a word to the one just taken, on one line and without comments."""
        source = self.source[first.at : self.taken.at + len(self.taken.text)]
        return " ".join(re.sub(r"//[^\n]*", "", source).split())

    def expression(self, place: str) -> Node:
        self.place, self.length = place, 0
        return self.operators()

    def operators(self, weakest: int = 0) -> Node:
        """Operators that bind at least as strongly as `weakest`; of two equal ones the left is done first.

        Indices and sizes know + - * / alone.
        """
        weakest = weakest if self.place == "element" else max(weakest, STRENGTH["+"])
        left = self.operand()
        while STRENGTH.get(self.word.text, -1) >= weakest:
            sign = self.count(self.take())
            strength = STRENGTH[sign.text]
            parts = [left, self.operators(strength + (sign.text != "?"))]
            if sign.text == "?":
                self.expect(":")
                parts.append(self.operators())
            left = replace(sign, kind="operator", parts=tuple(parts))
            if sign.text in COMPARISONS and STRENGTH.get(self.word.text) == strength:
                self.fail("no second comparison", "Put brackets around the first one.")
        return left

    @property
    def hint(self) -> str:
        return "" if self.place == "element" else PLAIN

    def count(self, word: Node) -> Node:
        self.length += 1
        if self.length > LONGEST:
            what = f"an expression of more than {LONGEST} operators and brackets."
            self.error(word, what, "Split it into several statements.")
        return word

    def operand(self) -> Node:
        """-operand, (expression), a number, a name or a function's call."""
        word = self.word
        if self.accept("-"):
            return replace(self.count(word), kind="operator", parts=(self.operand(),))
        if self.accept("("):
            self.count(word)
            inside = self.operators()
            return inside if self.accept(")") else self.fail("`)`", self.hint)
        if word.kind == "number":
            whole = word.text.isdecimal()
            if self.place != "element" and not whole:
                self.fail("a whole number", self.hint)
            if float(word.text) > (LARGEST if whole else LARGEST_FLOAT):
                hint = "Write it as 1e10." if whole and self.place == "element" else ""
                self.error(word, f"{word.text} is too large for {'int32' if whole else 'float32'}.", hint)
            return self.take()
        if word.kind != "name":
            self.fail("a number, a name or `(`")
        self.take()
        if self.place != "element" and self.word.text == "(":
            self.fail("an operator", self.hint)
        return self.call(word) if self.accept("(") else self.known(word)

    def call(self, name: Node) -> Node:
        if self.count(name).text not in FUNCTIONS:
            self.error(name, f"Tile has no function {name.text}.", f"It has {', '.join(FUNCTIONS)}.")
        parts = self.listed(self.operators, ")")
        if len(parts) != FUNCTIONS[name.text]:
            self.error(name, f"{name.text} takes {FUNCTIONS[name.text]} arguments, {len(parts)} came.")
        return replace(name, kind="call", parts=parts)

    def known(self, name: Node) -> Node:
        """Refuse a name that is unknown, or an index where it has no place."""
        known, what = self.sizes, "a size"
        if self.place == "element":
            known, what = self.tensors | self.sizes, "a tensor or a size"
        if name.text[0].islower() and self.place != "index":
            hint = "Indices (small letters) live in the brackets and constraints of one contraction."
            if self.place == "size":
                hint = "A size is a number or a capital letter. For k <= i write i - k < N; for k < i, i - k - 1 < N."
            self.error(name, f"the index {name.text} means nothing here: expected {what}.", hint)
        if name.text[0].isupper() and name.text not in known:
            self.error(name, f"unknown name {name.text}: expected {what}.", listing("Known here", known))
        return name


def listing(what: str, names: Iterable[str]) -> str:
    """Return names as a hint: `Known here: K, M, N.`."""
    return f"{what}: {', '.join(sorted(names)) or 'none'}."
