"""Rewrite OpenCL C so that it records what each work-item touches, for `opencl_recorder`.

libclang (TensorFlow depends on it too) reads the kernel with its types, so an access is known by the memory that it
goes to, however it is written: `x[i]`, `*(x + i)`, through a pointer that was handed on, or a variable in local memory.
The code that writes the record (`opencl_log`) is put before the kernel. What is not reached is listed as unseen.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from helpers.judge.opencl_log import ARRAY_INTS, ARRAYS, BARRIERS, DRY_BARRIERS, RECORDER
from helpers.judge.trace import ATOMIC, READ, SITE, WRITE

if TYPE_CHECKING:
    from clang.cindex import Cursor, Type

# Functions whose pointer is followed: which argument it is, what they do there, and to how many elements.
POINTERS: dict[str, tuple[int, int, int]] = {}
for _name in ("add", "sub", "xchg", "inc", "dec", "cmpxchg", "min", "max", "and", "or", "xor"):
    POINTERS[f"atomic_{_name}"] = POINTERS[f"atom_{_name}"] = (0, READ | WRITE | ATOMIC, 1)
for _width in (2, 3, 4, 8, 16):
    POINTERS[f"vload{_width}"] = (1, READ, _width)
    POINTERS[f"vstore{_width}"] = (2, WRITE, _width)
WAITS = ("barrier", "work_group_barrier")
LOOPS = ("FOR_STMT", "WHILE_STMT", "DO_STMT")


# ------------------------------------------------------------------------------------------------ reading OpenCL C

# What OpenCL's own header declares, as far as kernels of lessons need it; libclang's wheel has no headers.
TYPES = """
typedef unsigned char uchar; typedef unsigned short ushort; typedef unsigned int uint; typedef unsigned long ulong;
typedef ulong size_t; typedef long ptrdiff_t; typedef long intptr_t; typedef ulong uintptr_t;
typedef uint cl_mem_fence_flags;
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#define VECTOR(t, width) typedef t t##width __attribute__((ext_vector_type(width)));
#define VECTORS(t) VECTOR(t, 2) VECTOR(t, 3) VECTOR(t, 4) VECTOR(t, 8) VECTOR(t, 16)
VECTORS(char) VECTORS(uchar) VECTORS(short) VECTORS(ushort) VECTORS(int) VECTORS(uint) VECTORS(long) VECTORS(ulong)
VECTORS(float) VECTORS(double)
#define AS_ONE(to, from) to __attribute__((overloadable)) as_##to(from);
#define AS(to, from) AS_ONE(to, from) AS_ONE(to##2, from##2) AS_ONE(to##3, from##3) AS_ONE(to##4, from##4) \\
    AS_ONE(to##8, from##8) AS_ONE(to##16, from##16)
AS(int, uint) AS(int, float) AS(uint, int) AS(uint, float) AS(float, int) AS(float, uint)
AS(long, ulong) AS(long, double) AS(ulong, long) AS(ulong, double) AS(double, long) AS(double, ulong)
void __attribute__((overloadable)) work_group_barrier(cl_mem_fence_flags);
int printf(__constant const char *, ...);
#undef VECTOR
#undef VECTORS
#undef AS_ONE
#undef AS
#define CLK_LOCAL_MEM_FENCE 1
#define CLK_GLOBAL_MEM_FENCE 2
#define INT_MAX 2147483647
#define INT_MIN (-INT_MAX - 1)
#define UINT_MAX 0xffffffffu
#define FLT_MAX 0x1.fffffep127f
#define FLT_MIN 0x1.0p-126f
#define FLT_EPSILON 0x1.0p-23f
#define INFINITY (__builtin_inff())
#define NAN (__builtin_nanf(""))
#define M_PI_F 3.14159274f
"""
NEWLINE = "\n"
OPTIONS = [
    *("-x", "cl", "-cl-std=CL1.2", "-target", "spir64", "-cl-no-stdinc", "-Xclang", "-fdeclare-opencl-builtins"),
    "-D__opencl_c_named_address_space_builtins=1",
]
GLOBAL, LOCAL, CONSTANT = 1, 2, 3  # how the target spir64 numbers its address spaces


@dataclass
class Instrumented:
    """A kernel that records."""

    source: str  # it takes the log, `__global int *`, before its own arguments
    arrays: list[str]  # the names of its arrays: first those given, then those it declares in local memory
    has_barriers: bool
    unseen: list[str]  # what cannot be followed
    sites: list[str]  # the text of each access that is recorded, by the number that its touches have


def instrument(source: str, name: str, dry: bool) -> Instrumented:
    """Rewrite OpenCL C so that its kernel `name` records ids, accesses, barriers and rounds of loops.

    Args:
        source: OpenCL C that compiles.
        name: the kernel.
        dry: whether barriers are recorded without waiting at them.
    """
    from clang import cindex

    detailed = cindex.TranslationUnit.PARSE_DETAILED_PROCESSING_RECORD
    files = [("learner.cl", TYPES + source)]
    unit = cindex.Index.create().parse("learner.cl", OPTIONS, unsaved_files=files, options=detailed)
    rewriting = Rewriting(source.encode(), len(TYPES.encode()))
    for diagnostic in unit.diagnostics:
        if diagnostic.severity >= cindex.Diagnostic.Error:
            line = diagnostic.location.line - TYPES.count(NEWLINE)
            rewriting.unseen.append(f"line {line}: {diagnostic.spelling}")
    rewriting.read(unit.cursor, name)
    counts = f"#define ARRAY_COUNT {len(rewriting.arrays)}\n#define GIVEN_COUNT {rewriting.given}\n"
    text = f"{counts}{RECORDER}{DRY_BARRIERS if dry else BARRIERS}#line 1\n{rewriting.assemble()}"
    return Instrumented(text, rewriting.arrays, rewriting.has_barriers, rewriting.unseen, rewriting.sites)


@dataclass
class Rewriting:
    """What is inserted into a source, found by walking through Clang's syntax tree."""

    source: bytes
    offset: int  # of the source in what Clang read
    arrays: list[str] = field(default_factory=list)
    given: int = 0  # the first arrays, which the kernel takes
    has_barriers: bool = False
    unseen: list[str] = field(default_factory=list)
    sites: list[str] = field(default_factory=list)
    _functions: set[str] = field(default_factory=set)  # those that the source defines
    _inserted: list[tuple[int, str]] = field(default_factory=list)
    _macros: list[tuple[int, int]] = field(default_factory=list)

    def read(self, unit: Cursor, name: str) -> None:
        """Walk through all functions of the source; the arrays are those of the kernel `name`."""
        own = [cursor for cursor in unit.get_children() if cursor.extent.start.offset >= self.offset]
        self._macros = [self._find_range(cursor) for cursor in own if cursor.kind.name == "MACRO_INSTANTIATION"]
        functions = [cursor for cursor in own if cursor.kind.name == "FUNCTION_DECL" and cursor.is_definition()]
        self._functions = {cursor.spelling for cursor in functions}
        for function in functions:
            body = next(child for child in function.get_children() if child.kind.name == "COMPOUND_STMT")
            self._add_parameter(function)
            if function.spelling == name:
                self._insert_start(function, body)
            for statement in body.get_children():
                self._visit(statement, [body, function], function.spelling == name)

    def assemble(self) -> str:
        """Return the source with all that is inserted."""
        parts, done = [], 0
        in_order = sorted(self._inserted, key=lambda insertion: insertion[0])  # stable: of one place, as they came
        for position, text in in_order:
            parts += [self.source[done:position], text.encode()]
            done = position
        return b"".join([*parts, self.source[done:]]).decode()

    def _find_range(self, cursor: Cursor) -> tuple[int, int]:
        return cursor.extent.start.offset - self.offset, cursor.extent.end.offset - self.offset

    def _read_text(self, cursor: Cursor) -> str:
        start, end = self._find_range(cursor)
        return self.source[start:end].decode()

    def _insert(self, position: int, text: str) -> None:
        self._inserted.append((position, text))

    def _note_unseen(self, cursor: Cursor) -> None:
        line = cursor.extent.start.line - TYPES.count(NEWLINE)
        self.unseen.append(f"line {line}: `{' '.join(self._read_text(cursor).split())}`")

    def _in_macro(self, cursor: Cursor) -> bool:
        start, end = self._find_range(cursor)
        return any(first <= start and end <= last for first, last in self._macros)

    def _add_parameter(self, function: Cursor) -> None:
        opening = self.source.index(b"(", function.location.offset - self.offset) + 1
        empty = re.match(rb"\s*(void\s*)?\)", self.source[opening:])
        if empty and empty[1]:
            self.source = self.source[:opening] + b" " * len(empty[1]) + self.source[opening + len(empty[1]) :]
        self._insert(opening, "__global int *trace_log" + ("" if empty else ", "))

    def _insert_start(self, function: Cursor, body: Cursor) -> None:
        given = [
            argument
            for argument in function.get_arguments()
            if _find_memory(argument.type.get_pointee()) in (GLOBAL, CONSTANT)
        ]
        self.arrays, self.given = [argument.spelling for argument in given], len(given)
        recorded = "".join(
            f" trace_array(trace_log, {number}, (ulong){argument.spelling}, trace_row(trace_log)"
            f"[{ARRAYS + ARRAY_INTS * number + 2}], sizeof(*{argument.spelling}));"
            for number, argument in enumerate(given)
        )
        self._insert(self._find_range(body)[0] + 1, f" trace_start(trace_log);{recorded}")

    def _visit(self, cursor: Cursor, above: list[Cursor], in_kernel: bool) -> None:
        """Rewrite an expression or a statement, then those inside of it; `above` is what is around, innermost first."""
        kind = cursor.kind.name
        if kind == "CXX_UNARY_EXPR":  # sizeof touches nothing
            return
        children = list(cursor.get_children())
        if kind == "VAR_DECL" and _find_memory(cursor.type) == LOCAL and in_kernel:
            self._record_declaration(cursor, above[0])
        elif kind in LOOPS:
            self._guard_loop(cursor, children[0] if kind == "DO_STMT" else children[-1])
        elif kind == "CALL_EXPR":
            self._rewrite_call(cursor, children)
        elif cursor.kind.is_expression() and _find_memory(cursor.type) and not _is_array_type(cursor.type):
            self._rewrite_access(cursor, children, above)
        for child in children:
            self._visit(child, [cursor, *above], in_kernel)

    def _record_declaration(self, variable: Cursor, statement: Cursor) -> None:
        element, innermost = variable.type, variable.spelling
        while _is_array_type(element):
            element, innermost = element.element_type, f"{innermost}[0]"
        number, name = len(self.arrays), variable.spelling
        self.arrays.append(name)
        recorded = f"trace_array(trace_log, {number}, (ulong)&{name}, sizeof({name}), sizeof({innermost}));"
        self._insert(self._find_range(statement)[1], f" {recorded}")

    def _guard_loop(self, loop: Cursor, body: Cursor) -> None:
        stop = "if (trace_step(trace_log, __LINE__)) { break; }"
        start, end = self._find_range(body)
        if self._in_macro(body):
            self._note_unseen(loop)
        elif body.kind.name == "COMPOUND_STMT":
            self._insert(start + 1, f" {stop}")
        else:
            line = self.source[:start].count(b"\n") + 1
            directive = f"\n#line {line}\n" if self.source[start:].startswith(b"#") else ""  # such as #pragma unroll
            self._insert(start, f"{{ {stop} {directive}")
            ended = self.source[:end].rstrip().endswith((b";", b"}"))
            self._insert(end if ended else self.source.index(b";", end) + 1, " }")

    def _rewrite_call(self, call: Cursor, children: list[Cursor]) -> None:
        arguments = children[1:]
        if call.spelling in WAITS:
            self.has_barriers = True
        elif call.spelling in self._functions and not self._in_macro(call):
            opening = self.source.index(b"(", self._find_range(call)[0]) + 1
            self._insert(opening, "trace_log, " if arguments else "trace_log")
        elif call.spelling in POINTERS and not self._in_macro(call):
            number, what, count = POINTERS[call.spelling]
            memory = _find_memory(arguments[number].type.get_pointee())
            if not memory:  # a work-item's own array
                return
            is_local = memory == LOCAL
            index = "0"
            if count > 1:  # vload4(offset, p) reads the elements of p from 4 * offset on
                index = f"{count} * (long)({self._read_text(arguments[number - 1])})"
                self._wrap(arguments[number - 1], "0 * (", ")")
            recorded = self._call_recorder(call, is_local, self._read_text(arguments[number]), what, index, count)
            self._wrap(arguments[number], "(", f") + {recorded}")
        elif call.spelling in self._functions or self._takes_shared(call, arguments):
            self._note_unseen(call)

    def _takes_shared(self, call: Cursor, arguments: list[Cursor]) -> bool:
        """Return whether a function of OpenCL that is not known here is given a pointer to shared memory."""
        if call.spelling in ("prefetch", "printf"):
            return False
        pointers = [argument.type.get_pointee() for argument in arguments if argument.type.kind.name == "POINTER"]
        return any(_find_memory(pointer) in (GLOBAL, LOCAL) for pointer in pointers)

    def _wrap(self, cursor: Cursor, before: str, after: str) -> None:
        start, end = self._find_range(cursor)
        self._insert(start, before)
        self._insert(end, after)

    def _call_recorder(
        self, access: Cursor, is_local: bool, pointer: str, what: int, index: str, count: int = 1
    ) -> str:
        where = f"{int(is_local)}, {what + SITE * len(self.sites)}, (ulong)({pointer}), sizeof(*({pointer}))"
        self.sites.append(" ".join(self._read_text(access).split()))
        return f"trace_index(trace_log, {where}, {index}, {count})"

    def _rewrite_access(self, cursor: Cursor, children: list[Cursor], above: list[Cursor]) -> None:
        kind, text = cursor.kind.name, self._read_text(cursor)
        is_pointer = kind == "UNARY_OPERATOR"  # what lives in memory and has a unary operator has a `*`
        is_arrow = kind == "MEMBER_REF_EXPR" and children and children[0].type.kind.name == "POINTER"
        is_local = kind == "DECL_REF_EXPR" and _find_memory(cursor.type) == LOCAL
        is_access = kind == "ARRAY_SUBSCRIPT_EXPR" or is_pointer or is_arrow or is_local
        if not is_access or not self._is_watched(cursor):
            return
        what = self._classify_access(cursor, above)
        if what is None:
            return
        base = cursor if is_local else children[0]
        pointer = f"&{text}" if is_local else self._read_text(base)
        backwards = kind == "ARRAY_SUBSCRIPT_EXPR" and base.type.kind.name not in ("POINTER", "CONSTANTARRAY")
        if self._in_macro(cursor) or backwards or (not is_local and self._has_effects(pointer)):
            self._note_unseen(cursor)
            return
        in_local = _find_memory(cursor.type) == LOCAL
        if kind == "ARRAY_SUBSCRIPT_EXPR":
            before, after = self._call_recorder(cursor, in_local, pointer, what, "@").split("@")
            self._insert(self.source.index(b"[", self._find_range(base)[1]) + 1, before)
            self._insert(self._find_range(cursor)[1] - 1, after)
        elif is_local:
            self._wrap(cursor, "(*(&", f" + {self._call_recorder(cursor, in_local, pointer, what, '0')}))")
        else:
            self._wrap(base, "(", f" + {self._call_recorder(cursor, in_local, pointer, what, '0')})")

    def _has_effects(self, text: str) -> bool:
        """Return whether evaluating an expression twice could change something twice, or record it twice."""
        called = set(re.findall(r"(\w+)\s*\(", text))
        return bool(re.search(r"\+\+|--|[^=!<>]=[^=]", text) or called & self._functions)

    def _is_watched(self, cursor: Cursor) -> bool:
        """Return whether an access is recorded: not if it goes to constants that the program declares itself."""
        if _find_memory(cursor.type) != CONSTANT:
            return True
        roots = (inner for inner in cursor.walk_preorder() if inner.kind.name == "DECL_REF_EXPR")
        root = next(roots, None)
        return root is not None and root.referenced.kind.name == "PARM_DECL" and root.spelling in self.arrays

    def _classify_access(self, cursor: Cursor, above: list[Cursor]) -> int | None:
        """Return READ, WRITE or both; None if only the address is taken."""
        inner = cursor
        for outer in above:
            same = self._find_range(outer)[0] == self._find_range(inner)[0]
            if outer.kind.name in ("PAREN_EXPR", "MEMBER_REF_EXPR") or (
                outer.kind.name == "UNEXPOSED_EXPR" and _find_memory(outer.type)
            ):
                inner = outer
                continue
            if outer.kind.name == "COMPOUND_ASSIGNMENT_OPERATOR" and same:
                return READ | WRITE
            if outer.kind.name == "BINARY_OPERATOR" and same and self._is_assignment(inner):
                return WRITE
            if outer.kind.name == "UNARY_OPERATOR":
                operator = self._read_text(outer)
                if operator.startswith("&"):
                    return None
                if operator.startswith(("++", "--")) or operator.endswith(("++", "--")):
                    return READ | WRITE
            break
        return READ

    def _is_assignment(self, left: Cursor) -> bool:
        after = self.source[self._find_range(left)[1] :].lstrip()
        return after.startswith(b"=") and not after.startswith(b"==")


def _find_memory(kind: Type) -> int:
    """Return GLOBAL, LOCAL or CONSTANT for a type in that memory, 0 for any other."""
    if kind.kind.name == "INVALID":  # Clang has no answer for it, and would crash
        return 0
    space = kind.get_address_space()
    return space if space in (GLOBAL, LOCAL, CONSTANT) else 0


def _is_array_type(kind: Type) -> bool:
    return kind.kind.name == "CONSTANTARRAY"
