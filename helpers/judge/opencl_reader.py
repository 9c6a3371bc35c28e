"""Read what a kernel in OpenCL C takes, calls and touches, from Clang's syntax tree, for `opencl_rewriter`.

libclang (TensorFlow depends on it too) reads the kernel with its types, so an access is known by the memory that it
goes to, however it is written: `x[i]`, `*p++`, through a pointer that was passed on, or a variable in local memory.
Nothing here changes the source.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from helpers.judge.opencl_header import LINES, SCALARS, find_range
from helpers.judge.trace import ATOMIC, READ, WRITE

if TYPE_CHECKING:
    from clang.cindex import Cursor, Type

GLOBAL, LOCAL, CONSTANT = 1, 2, 3  # how the target spir64 numbers its address spaces
LOOPS = ("FOR_STMT", "WHILE_STMT", "DO_STMT")
BARRIERS = ("barrier", "work_group_barrier")
EVENTS = "wait_group_events"
COPIES = ("async_work_group_copy",)
HARMLESS = ("prefetch", "printf")  # what is given a pointer and touches nothing that matters
# What only a whole work-group can compute together, and what OpenCL C has beside kernels: by how the name begins.
NOT_RECORDED = ("work_group_", "sub_group_", "atomic_fetch_", "atomic_load", "atomic_store", "atomic_exchange",
                "atomic_compare_exchange", "atomic_flag_", "atomic_init", "atomic_work_item_fence", "enqueue_",
                "read_pipe", "write_pipe", "reserve_", "commit_", "read_image", "write_image", "get_image_",
                "async_work_group_strided_copy")  # fmt: skip
ATOMICS = {
    f"{word}_{name}"
    for word in ("atomic", "atom")
    for name in ("add", "sub", "xchg", "inc", "dec", "cmpxchg", "min", "max", "and", "or", "xor")
}
ROUNDINGS = ("", "_rte", "_rtz", "_rtp", "_rtn")


def _list_pointers() -> dict[str, tuple[int, int, int]]:
    """Return the functions whose pointer is followed: its argument, what they do there, and to how many elements."""
    pointers = dict.fromkeys(ATOMICS, (0, READ | WRITE | ATOMIC, 1))
    pointers.update(dict.fromkeys(("fract", "modf", "sincos", "frexp", "lgamma_r"), (1, WRITE, 1)))
    pointers["remquo"] = (2, WRITE, 1)
    for width in ("", "2", "3", "4", "8", "16"):
        lanes = int(width or 1)
        if width:
            pointers[f"vload{width}"] = (1, READ, lanes)
            pointers[f"vstore{width}"] = (2, WRITE, lanes)
        pointers[f"vload_half{width}"] = (1, READ, lanes)
        pointers.update({f"vstore_half{width}{rounding}": (2, WRITE, lanes) for rounding in ROUNDINGS})
    return pointers


POINTERS = _list_pointers()


# ---------------------------------------------------------------------------------------------- types


@dataclass(frozen=True)
class ParameterType:
    """What a kernel's parameter takes."""

    text: str  # as written, such as `__global const float *a`
    memory: int  # GLOBAL, LOCAL or CONSTANT for a pointer, 0 for a number
    element: str  # the type of one element, or of the number, such as `float4`
    element_bytes: int  # bytes of that
    scalar: str  # the type of one lane of a vector, otherwise the same; empty for a structure
    is_vector_of_three: bool
    is_const: bool  # whether the kernel may only read it


def describe_parameter(argument: Cursor, text: str) -> ParameterType:
    """Return what a parameter takes.

    Args:
        argument: the parameter's declaration.
        text: as written.
    """
    pointee = argument.type.get_pointee()
    memory = find_memory(pointee)
    kind = (pointee if memory else argument.type).get_canonical()
    lane = kind.element_type.get_canonical() if kind.kind.name in ("VECTOR", "EXTVECTOR") else kind
    scalar = re.sub(r"\b(const|volatile|restrict|__\w+)\b", "", lane.spelling).strip()
    short = scalar.replace("unsigned ", "u")
    element = (pointee if memory else argument.type).spelling
    return ParameterType(
        " ".join(text.split()),
        memory,
        re.sub(r"\b(const|volatile|restrict|__\w+)\b", "", element).strip(),
        kind.get_size(),
        short if short in (*SCALARS, "half") else "",
        lane is not kind and kind.element_count == 3,
        bool(memory) and pointee.is_const_qualified(),
    )


def find_memory(kind: Type) -> int:
    """Return GLOBAL, LOCAL or CONSTANT for a type in that memory, 0 for any other."""
    if kind.kind.name == "INVALID":  # Clang has no answer for it, and would crash
        return 0
    space = kind.get_address_space()
    return space if space in (GLOBAL, LOCAL, CONSTANT) else 0


def is_array_type(kind: Type) -> bool:
    """Return whether a type is an array whose length is known."""
    return kind.kind.name == "CONSTANTARRAY"


def find_element(kind: Type) -> Type:
    """Return the type of one element of an array of any dimensions; for any other type, the type itself."""
    while is_array_type(kind):
        kind = kind.element_type
    return kind


# ---------------------------------------------------------------------------------------------- functions


def find_reached(functions: Mapping[str, Cursor], name: str) -> tuple[set[str], list[str]]:
    """Return the functions that a kernel calls, also through others, with its own; and those that call themselves.

    Args:
        functions: the definitions of a source, by name.
        name: the kernel.
    """
    calls = {
        each: {call.spelling for call in function.walk_preorder() if call.kind.name == "CALL_EXPR"} & set(functions)
        for each, function in functions.items()
    }
    reached = {name, *_follow_calls(name, calls)} & set(functions)
    return reached, sorted(each for each in reached if each in _follow_calls(each, calls))


def _follow_calls(name: str, calls: Mapping[str, set[str]]) -> set[str]:
    """Return the functions that a function calls, also through others."""
    seen: set[str] = set()
    waiting = list(calls.get(name, ()))
    while waiting:
        each = waiting.pop()
        if each not in seen:
            seen.add(each)
            waiting += calls[each]
    return seen


def find_body(function: Cursor) -> Cursor:
    """Return the block of statements of a function's definition."""
    return next(child for child in function.get_children() if child.kind.name == "COMPOUND_STMT")


def find_start(cursor: Cursor) -> int:
    """Return where the name of a declaration stands, in bytes of the source."""
    return cursor.location.offset - cursor.extent.start.offset + find_range(cursor)[0]


def find_line(cursor: Cursor) -> int:
    """Return the line of the source in which a cursor begins, from 1 on."""
    return cursor.extent.start.line - LINES


# ---------------------------------------------------------------------------------------------- what matters


def must_stand_in_source(cursor: Cursor, functions: set[str]) -> bool:
    """Return whether a cursor must stand in the source itself, and not in a macro.

    Args:
        cursor: in the body of a function.
        functions: what the source calls, by name.
    """
    kind = cursor.kind.name
    if kind in (*LOOPS, "GOTO_STMT", "FUNCTION_DECL"):
        return True
    if kind == "CALL_EXPR":
        return cursor.spelling in (*BARRIERS, EVENTS, *POINTERS) or cursor.spelling in functions
    return (cursor.kind.is_expression() or kind == "VAR_DECL") and find_memory(cursor.type) in (GLOBAL, LOCAL)


def takes_shared(call: Cursor, arguments: list[Cursor]) -> bool:
    """Return whether a function of OpenCL that is not known here is given a pointer to shared memory."""
    if call.spelling in HARMLESS:
        return False
    pointers = [argument.type.get_pointee() for argument in arguments if argument.type.kind.name == "POINTER"]
    return any(find_memory(pointer) in (GLOBAL, LOCAL) for pointer in pointers)


# ---------------------------------------------------------------------------------------------- the text


@dataclass
class Text:
    """A kernel's source.

    Attributes:
        source: OpenCL C; what is blanked keeps its place.
        macros: where macros are used, as begin and end in bytes.
    """

    source: bytes
    macros: list[tuple[int, int]]

    def read(self, cursor: Cursor) -> str:
        """Return a cursor's text."""
        start, end = find_range(cursor)
        return self.source[start:end].decode()

    def describe(self, cursor: Cursor) -> str:
        """Return a cursor's line and its text; of a piece of a macro's argument, which has no place, the macro's."""
        start, end = find_range(cursor)
        macro = next((use for use in self.macros if end <= start and use[0] <= start < use[1]), None)
        text = self.source[slice(*macro)].decode() if macro else self.read(cursor)
        return f"line {find_line(cursor)}: `{' '.join(text.split())}`"

    def is_in_macro(self, cursor: Cursor) -> bool:
        """Return whether a cursor stands in the use of a macro."""
        start, end = find_range(cursor)
        return any(first <= start < last and (end <= last or end <= start) for first, last in self.macros)

    def blank(self, start: int, end: int) -> None:
        """Replace a piece of the source by spaces."""
        blank = re.sub(rb"[^\n]", b" ", self.source[start:end])
        self.source = self.source[:start] + blank + self.source[end:]

    def count_lines(self, position: int) -> int:
        """Return the line of a place in the source, from 1 on."""
        return self.source[:position].count(b"\n") + 1

    def find_end(self, end: int) -> int:
        """Return where a statement ends, with its semicolon, which Clang leaves out."""
        is_ended = self.source[:end].rstrip().endswith((b";", b"}"))
        return end if is_ended else self.source.index(b";", end) + 1

    # ------------------------------------------------------------------------------------------ loops

    def is_endless(self, loop: Cursor, body: Cursor) -> bool:
        """Return whether a loop never ends: nothing leaves it, and its condition holds always, or cannot change."""
        from helpers.devices.kernel_text import closing_bracket, without_comments

        text = without_comments(self.read(loop))
        if re.search(r"\b(break|return|goto)\b", text):
            return False
        is_for = loop.kind.name == "FOR_STMT"
        after = find_range(body)[1] - find_range(loop)[0] if loop.kind.name == "DO_STMT" else 0
        opening = text.index("(", after)
        condition = text[opening + 1 : closing_bracket(text, opening)]
        if is_for:
            condition = condition.split(";")[1]
        declared = {each.spelling: each for each in loop.walk_preorder() if each.kind.name == "DECL_REF_EXPR"}
        if _holds_always(condition, declared):
            return True
        if re.search(r"\w\s*\(|\[|->|\*|\.|=[^=]|\+\+|--", re.sub(r"[<>!=]=", "<", condition)):
            return False  # it calls, reads memory or changes something
        names = set(re.findall(r"[A-Za-z_]\w*", condition))
        if any(name in declared and find_memory(declared[name].type) for name in names):
            return False
        changed = "|".join(re.escape(name) for name in names) or r"\b\B"
        step = rf"\b({changed})\b\s*(=(?!=)|[-+*/%|&^]=|<<=|>>=|\+\+|--|\.)|(\+\+|--|&)\s*\(?\s*({changed})\b"
        return not re.search(step, text[opening:].split(";", 1)[1] if is_for else text)

    # ------------------------------------------------------------------------------------------ accesses

    def is_access(self, cursor: Cursor) -> bool:
        """Return whether an expression in shared memory is one element, and not a step on the way to it."""
        kind = cursor.kind.name
        is_pointer = kind == "UNARY_OPERATOR" and self.read(cursor).startswith("*")
        is_local = kind == "DECL_REF_EXPR" and find_memory(cursor.type) == LOCAL
        return kind in ("ARRAY_SUBSCRIPT_EXPR", "MEMBER_REF_EXPR") or is_pointer or is_local

    def classify_access(self, cursor: Cursor, above: list[Cursor]) -> int | None:
        """Return READ, WRITE or both; None if only the address is taken.

        Args:
            cursor: the access.
            above: what is around it, innermost first.
        """
        inner = cursor
        for outer in above:
            same = find_range(outer)[0] == find_range(inner)[0]
            if outer.kind.name == "PAREN_EXPR" or (
                outer.kind.name in ("MEMBER_REF_EXPR", "UNEXPOSED_EXPR") and find_memory(outer.type)
            ):
                inner = outer
                continue
            if outer.kind.name == "COMPOUND_ASSIGNMENT_OPERATOR" and same:
                return READ | WRITE
            if outer.kind.name == "BINARY_OPERATOR" and same and self._is_assigned(inner):
                return WRITE
            if outer.kind.name == "UNARY_OPERATOR":
                operator = self.read(outer)
                if operator.startswith("&"):
                    return None
                if operator.startswith(("++", "--")) or operator.endswith(("++", "--")):
                    return READ | WRITE
            break
        return READ

    def _is_assigned(self, left: Cursor) -> bool:
        after = self.source[find_range(left)[1] :].lstrip()
        return after.startswith(b"=") and not after.startswith(b"==")


def _holds_always(condition: str, declared: Mapping[str, Cursor]) -> bool:
    """Return whether a condition asks whether a number without a sign is at least 0.

    Args:
        condition: of a loop.
        declared: the names in it, and elsewhere in the loop.
    """
    found = re.fullmatch(r"\s*(\w+)\s*>=\s*0[uU]?\s*", condition)
    kind = declared[found[1]].type.get_canonical().kind.name if found and found[1] in declared else ""
    return kind in ("UCHAR", "CHAR_U", "USHORT", "UINT", "ULONG")


def list_steps(cursor: Cursor) -> list[Cursor]:
    """Return what an access goes through without reading it: `s[i]` and `s[i].row` in `s[i].row[k].x`."""
    steps: list[Cursor] = []
    children = list(cursor.get_children())
    while children and (find_memory(children[0].type) or _decays(children[0])):
        steps.append(children[0])
        if children[0].kind.name == "UNARY_OPERATOR":
            break
        children = list(children[0].get_children())
    return steps


def _decays(cursor: Cursor) -> bool:
    """Return whether an array has become a pointer to its first element."""
    children = list(cursor.get_children())
    return cursor.kind.name == "UNEXPOSED_EXPR" and len(children) == 1 and is_array_type(children[0].type)


def find_root(cursor: Cursor) -> Cursor | None:
    """Return the first name in an access, which is mostly its array's; None if it has none."""
    return next((inner for inner in cursor.walk_preorder() if inner.kind.name == "DECL_REF_EXPR"), None)
