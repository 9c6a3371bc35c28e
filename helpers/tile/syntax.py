"""Stage 1: read a Tile function into a tree of statements, and refuse what is no Tile function."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from helpers.errors import WorkshopError

if TYPE_CHECKING:
    from lark import Lark, Token, Tree, UnexpectedInput

LARGEST = 2**31 - 1  # whole numbers, offsets and indices are OpenCL's 32-bit int
LARGEST_FLOAT = 3.4028234e38

AGGREGATES = {"+": "sum of", "*": "product of", ">": "largest of", "<": "smallest of", "=": "only"}
FUNCTIONS = {"exp": 1, "log": 1, "sqrt": 1, "tanh": 1, "sin": 1, "cos": 1, "pow": 2, "abs": 1, "max": 2, "min": 2}
COMPARISONS = ("==", "!=", "<", ">", "<=", ">=")


class TileError(WorkshopError):
    """A mistake in a Tile function or in what it was called with, with the place in the source that it concerns."""

    def __init__(self, source: str, at: int, what: str, next: str = "") -> None:
        self.line = source.count("\n", 0, at) + 1  # lines and columns are counted from 1
        self.column = at - source.rfind("\n", 0, at)
        start = max(0, self.column - 80)  # of a very long line the part around the caret
        text = source.split("\n")[self.line - 1][start : start + 160]
        indent = "".join("\t" if letter == "\t" else " " for letter in text[: self.column - 1 - start])
        what = f"Line {self.line}, column {self.column}: {what}\n    {text}\n    {indent}^"
        super().__init__(what, next=next)


@dataclass(frozen=True)
class Node:
    """A word of the source, or the tree of an expression."""

    kind: str  # `number`, `name`, `operator` or `call`, or `access` for a tensor and its indices, such as `B[k, j]`
    text: str  # the number, the name, the sign, or what is called or accessed
    at: int  # its position in the source
    parts: tuple[Node, ...] = ()  # what the sign or the function works on, or the indices

    def find_all(self, kind: str) -> list[Node]:
        """Return every node of a kind in it."""
        found: list[Node] = [self] if self.kind == kind else []
        for part in self.parts:
            found += part.find_all(kind)
        return found

    def fill(self, sizes: Mapping[str, int]) -> Node:
        """Return it with numbers in the place of sizes."""
        if self.kind == "name" and self.text in sizes:
            return Node("number", str(sizes[self.text]), self.at)
        return replace(self, parts=tuple(part.fill(sizes) for part in self.parts))

    def show(self, known: Mapping[int, object]) -> str:
        """Return it as text; a position that `known` has is shown as what is there."""
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
    text: str  # the statement as written
    aggregate: str = ""  # how a contraction makes one value of many; empty if it is element-wise
    sizes: tuple[Node, ...] = ()  # of a contraction's output
    constraints: tuple[tuple[Node, Node], ...] = ()  # index expressions, and the sizes that they stay below

    @property
    def name(self) -> str:
        """The tensor that it makes."""
        return self.output.text

    def expressions(self) -> Iterator[tuple[Node, str]]:
        """Yield every expression and what it is used as: `element`, `index` or `size`."""
        if not self.aggregate:
            yield self.value, "element"
        for access in (self.output, *self.value.find_all("access")):
            yield from ((index, "index") for index in access.parts)
        for index, size in self.constraints:
            yield from ((index, "index"), (size, "size"))
        yield from ((size, "size") for size in self.sizes)

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

    def error(self, node: Node | None, what: str, next: str = "") -> TileError:
        """Return the error to raise for the position of a node; None is the bracket before the inputs."""
        return TileError(self.source, node.at if node else self.source.index("("), what, next)


GRAMMAR = r"""  // how it reads: ? leaves out a rule that has one part alone, ! keeps its signs, -> names what it makes
start: "function" "(" inputs ")" "->" "(" outputs ")" "{" (contraction | elementwise)* "}"
inputs: _list{input}
outputs: _list{UPPER}
?input: UPPER | access{UPPER}

elementwise: UPPER "=" element ";"
contraction: UPPER "[" indices sizes "]" "=" aggregate "(" value ")" constraint* ";"
indices: _list{index}
sizes: (":" _list{index})?
!aggregate: "+" | "*" | ">" | "<" | "="
!?value: access{index} | access{index} ("*" | "+") access{index} -> operator
constraint: "," index "<" index

!?element: equality | equality "?" element ":" element -> operator
!?equality: comparison | comparison ("==" | "!=") comparison -> operator
!?comparison: sum{operand} | sum{operand} ("<" | ">" | "<=" | ">=") sum{operand} -> operator
?operand: _name | INT | FLOAT | "(" element ")" | negative{operand} | call
call: _name "(" _list{element} ")"

?index: sum{limited}
?limited: _name | INT | "(" index ")" | negative{limited}

!?sum{what}: product{what} | sum{what} ("+" | "-") product{what} -> operator
!?product{what}: what | product{what} ("*" | "/") what -> operator
!negative{what}: "-" what
access{what}: UPPER "[" _list{what} "]"
_list{what}: (what ("," what)*)?
_name: UPPER | LOWER

UPPER: /[A-Z][A-Za-z0-9_]*/
LOWER: /[a-z][A-Za-z0-9_]*/
INT: /[0-9]+/
FLOAT.1: /([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+/
%ignore /\s+|\/\/[^\n]*/
"""

PLAIN = "Indices and sizes are made of whole numbers, names, brackets and + - * / alone."
SUM = "For a sum, write = +(...); for the largest = >(...); for the only value = =(...); or leave out all indices."
TWO = "A contraction takes one tensor, or two with * or + between them."
COMMENT = "Text after `//` is a comment; to divide, write `/`, which in a size rounds down."
HABITS = {  # of other languages, with ^ before the word that does not fit: what Tile writes instead; the first one wins
    r"//\s*[\dA-Z(][^\n]*[\]);][^\n]*\s*\^|\^[ \t]*//\s*[\dA-Z(]": COMMENT,  # it swallowed the end of the statement
    r"\*\s*\^\*|\^\^": "For a square, write A * A.",
    r"\]\s*\^\[": "Write all indices in one pair of brackets: A[i, j].",
    r"\]\s*\^\+\s*=": SUM,
    r"\b[A-Z]\w*\s*\^\(": "Write indices in square brackets, as in A[i, j].",
    r"\)\s*\^[-+*/]": "A contraction is a statement of its own: name it, and go on in the next, as in O = S / N;",
    r"\b\d+\s*\^[a-z]": "To multiply, write *, as in 2 * x.",
    r"\w\s*=\s*\^[+*<>=]": "A contraction names the indices and sizes of its output: O[i: N] = +(...);",
    r"(=\s*[+*<>=]\s*\(|\]\s*[+*])\s*\^([.\d]|[a-z]+\()": "Numbers and functions belong in a statement of their own.",
    r"[a-z]\w*\s*\^\(|\^\d*\.": PLAIN,
}
HINTS = {  # for all that does not fit behind these words
    "O[] =": SUM,
    "O[] = +(I[]": TWO,
    "O[] = +(I[] * I[]": TWO,
    "O[] = +(I[]), k": "A constraint reads `index expression < size`, and 0 <= index expression comes with it.",
}
GOING_ON = {"+", "-", "*", "/", "<", ">", "==", "!=", "<=", ">=", "?", "("}  # behind a number or a name


@cache
def _parser() -> Lark:
    """The parser of Tile. Lark is imported here, as it takes a tenth of a second."""
    from lark import Lark

    return Lark(GRAMMAR, parser="lalr", lexer="basic", propagate_positions=True)


def parse(source: str) -> Program:
    """Read a Tile function.

    Raises:
        TileError: the source is not a Tile function, or a name in it is unknown or given twice.
    """
    from lark import UnexpectedInput

    try:
        tree = _parser().parse(source)
    except UnexpectedInput as error:
        raise _explain_misfit(source, error) from None
    inputs, outputs, *statements = _list_children(tree)
    made = tuple(_make_statement(source, statement) for statement in statements)
    program = Program(source, _make_nodes(inputs), tuple(map(str, outputs.children)), made)
    _check_names(program)
    _check_outputs(program, _make_nodes(outputs))
    return program


def _explain_misfit(source: str, error: UnexpectedInput) -> TileError:
    """Return the error for a word with which the grammar cannot go on."""
    from lark import UnexpectedToken

    if not isinstance(error, UnexpectedToken):
        at = error.pos_in_stream or 0
        hint, what = "", f"Tile has no character {source[at]!r}."
    else:
        word = error.token
        at = (word.start_pos if word else word.end_pos) or 0  # the end is where the last word ends
        allowed = _find_next_words(source[:at])
        what = f"expected {_list_words(allowed)}, came {f'`{word}`' if word else 'the end of the source'}."
        fitting = (
            hint for words, hint in HINTS.items() if _find_next_words(f"function () -> () {{ {words}") == allowed
        )
        hint = next(fitting, "")
        if word in COMPARISONS and "/" in allowed and not hint:
            hint = "Put brackets around the first comparison." if "?" in allowed else PLAIN
    marked = f"{source[:at]}^{source[at:]}"
    return TileError(source, at, what, next((say for habit, say in HABITS.items() if re.search(habit, marked)), hint))


def _find_next_words(beginning: str) -> set[str]:
    """With which words the grammar could go on. (Lark's error has fewer: it has applied rules before it gave up.)"""
    parser = _parser().parse_interactive(beginning)
    parser.exhaust_lexer()
    terminals = [terminal for terminal in _parser().terminals if terminal.pattern.type == "str"]
    signs = {terminal.name: terminal.pattern.value for terminal in terminals}
    return {signs.get(name, name) for name in parser.accepts()}


def _list_words(allowed: set[str]) -> str:
    """Say with which words the grammar could go on; where an expression may end, only with what it may end."""
    words = []
    if "/" in allowed:
        allowed = allowed - GOING_ON or {"<"}
    elif "-" in allowed:  # an expression begins
        words = ["a number" if "FLOAT" in allowed else "a whole number", "a name", "`(`"]
        allowed = allowed - {"INT", "FLOAT", "UPPER", "LOWER", "-", "("}
    names = {"UPPER": "a name that starts with a capital letter", "$END": "nothing more"}
    order = sorted(allowed, key=lambda sign: (sign in names, sign in ")]};", sign))
    words += [names.get(sign, f"`{sign}`") for sign in order]
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _list_children(tree: Tree) -> list[Any]:
    """Return the parts of a tree; which of them are words and which are trees, the grammar alone says."""
    return tree.children


def _make_node(tree: Tree | Token) -> Node:
    """Return an expression, or one word, without Lark."""
    from lark import Token

    if isinstance(tree, Token):
        return Node("number" if tree.type in ("INT", "FLOAT") else "name", str(tree), tree.start_pos or 0)
    first, *rest = _list_children(tree)
    if tree.data == "operator":  # every other child is a sign; the second one of `? :` says nothing new
        _, first, *_ = _list_children(tree)
        rest = tree.children[::2]
    kind = "operator" if tree.data == "negative" else str(tree.data)
    return Node(kind, str(first), first.start_pos, tuple(map(_make_node, rest)))


def _make_statement(source: str, tree: Tree) -> Statement:
    """Return a statement without Lark."""
    text = re.sub(r"//[^\n]*", "", source[tree.meta.start_pos : tree.meta.end_pos])
    text = " ".join(text.split())  # on one line
    if tree.data == "elementwise":
        name, value = map(_make_node, _list_children(tree))
        return Statement(name, value, text)
    name, indices, sizes, aggregate, combined, *constraints = _list_children(tree)
    output = Node("access", str(name), name.start_pos, _make_nodes(indices))
    limits = tuple((_make_node(index), _make_node(size)) for index, size in (each.children for each in constraints))
    return Statement(output, _make_node(combined), text, str(aggregate.children[0]), _make_nodes(sizes), limits)


def _make_nodes(tree: Tree) -> tuple[Node, ...]:
    return tuple(map(_make_node, _list_children(tree)))


def _check_names(program: Program) -> None:
    """Refuse names that are unknown or given twice, and what the grammar cannot know of numbers and functions.

    A name has to be made before it is used, so the statements are read in their order.
    """
    sizes = {size.text for node in program.inputs for size in node.parts}
    tensors: set[str] = set()
    for node in program.inputs:
        if node.text in tensors | sizes:
            raise program.error(node, f"the name {node.text} is given twice.", "Choose another name.")
        tensors.add(node.text)
    for statement in program.statements:
        if statement.name in tensors | sizes:
            hint = "A tensor is made once and never changed: choose a new name."
            raise program.error(statement.output, f"the name {statement.name} is assigned twice.", hint)
        for access in statement.value.find_all("access"):
            if access.text not in tensors:
                raise program.error(access, f"unknown tensor {access.text}.", _list_names("Tensors so far", tensors))
        for expression, place in statement.expressions():
            known = tensors | sizes if place == "element" else sizes
            _check_expression(program, expression, place, known)
        tensors.add(statement.name)


def _check_outputs(program: Program, outputs: Sequence[Node]) -> None:
    """Refuse an output that no statement makes, or that is listed twice."""
    for number, word in enumerate(outputs):
        if word.text not in [statement.name for statement in program.statements]:
            hint = f"Add a statement that makes it: {word.text} = ...;"
            raise program.error(word, f"the output {word.text} is never written.", hint)
        if word.text in program.outputs[:number]:
            raise program.error(word, f"the output {word.text} is listed twice.")


def _check_expression(program: Program, expression: Node, place: str, known: set[str]) -> None:
    """Refuse what is wrong in an expression; its place is `element`, `index` or `size`."""
    for name in expression.find_all("name"):
        what = "a tensor or a size" if place == "element" else "a size"
        if name.text[0].isupper() and name.text not in known:
            raise program.error(name, f"unknown name {name.text}: expected {what}.", _list_names("Known here", known))
        if name.text[0].islower() and place != "index":
            hint = "Indices (small letters) live in the brackets and constraints of one contraction."
            if place == "size":
                hint = "A size is a number or a capital letter. For k <= i write i - k < N; for k < i, i - k - 1 < N."
            raise program.error(name, f"the index {name.text} means nothing here: expected {what}.", hint)
    for number in expression.find_all("number"):
        if float(number.text) > (LARGEST_FLOAT if place == "element" else LARGEST):
            what = f"{number.text} is too large for {'float32' if place == 'element' else 'int32'}."
            raise program.error(number, what)
    for call in expression.find_all("call"):
        if call.text not in FUNCTIONS:
            raise program.error(call, f"Tile has no function {call.text}.", f"It has {', '.join(FUNCTIONS)}.")
        if len(call.parts) != FUNCTIONS[call.text]:
            what = f"{call.text} takes {FUNCTIONS[call.text]} arguments, {len(call.parts)} came."
            raise program.error(call, what)


def _list_names(what: str, names: Iterable[str]) -> str:
    """Names as a hint: `Known here: K, M, N.`."""
    return f"{what}: {', '.join(sorted(names)) or 'none'}."
