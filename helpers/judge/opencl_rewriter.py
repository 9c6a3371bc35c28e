"""Rewrite OpenCL C so that it records what each work-item touches, for `opencl_recorder`.

`opencl_reader` says what each piece of the kernel takes, calls and touches. Here, what records it is inserted, and the
code that writes the record (`opencl_log`) is put before the kernel. What is not followed is listed as unseen.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from helpers.judge.opencl_header import LINES, expand_macros, find_range, list_own
from helpers.judge.opencl_log import ARRAY_INTS, ARRAYS, RECORDER, START
from helpers.judge.opencl_reader import (
    ATOMICS,
    BARRIERS,
    CONSTANT,
    COPIES,
    EVENTS,
    GLOBAL,
    LOCAL,
    LOOPS,
    NOT_RECORDED,
    POINTERS,
    ParameterType,
    Text,
    describe_parameter,
    find_body,
    find_element,
    find_line,
    find_memory,
    find_reached,
    find_root,
    find_start,
    is_array_type,
    list_steps,
    must_stand_in_source,
    takes_shared,
)
from helpers.judge.trace import SITE

if TYPE_CHECKING:
    from clang.cindex import Cursor

PRINTF = "#define printf(...) (trace_is_live(trace_log) ? printf(__VA_ARGS__) : 0)\n"
ASYNC = """
int trace_async(__global int *log, __global char *to, __global const char *from, size_t bytes) {
    if (trace_is_live(log)) {
        for (size_t k = 0; k < bytes; k++) {
            to[k] = from[k];
        }
    }
    return 0;
}
#define event_t int
#define async_work_group_copy(to, from, count, event) trace_async(trace_log, (__global char *)(to), \\
    (__global const char *)(from), (count) * sizeof(*(to)))
"""


@dataclass
class Instrumented:
    """A kernel that records.

    Attributes:
        source: OpenCL C; it takes the log, `__global int *`, before its own arguments.
        arrays: the names of its arrays: first those given, then those in local memory.
        given: how many are given.
        locals: of each array in local memory its bytes, 0 for a parameter, and the bytes of an element.
        parameters: what the kernel takes.
        unseen: what is not followed.
        notes: what other devices may refuse.
        refused: what is not recorded at all.
        sites: the text of each access that is recorded, by the number that its touches have.
        barriers: the line of each barrier, in the order of the source.
        endless: the lines of loops that never end once their condition holds.
        has_locks: whether it has a fence, or an atomic function that makes a lock.
    """

    source: str = ""
    arrays: list[str] = field(default_factory=list)
    given: int = 0
    locals: list[tuple[int, int]] = field(default_factory=list)
    parameters: list[ParameterType] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    sites: list[str] = field(default_factory=list)
    barriers: list[int] = field(default_factory=list)
    endless: set[int] = field(default_factory=set)
    has_locks: bool = False


def instrument(source: str, name: str) -> Instrumented:
    """Rewrite OpenCL C so that its kernel `name` records ids, accesses, barriers and rounds of loops.

    Args:
        source: OpenCL C that compiles.
        name: the kernel.
    """
    from clang import cindex

    called = set(re.findall(r"\b(\w+)\s*\(", source))
    source, unit = expand_macros(source, lambda cursor: must_stand_in_source(cursor, called))
    own = list_own(unit)
    macros = [find_range(cursor) for cursor in own if cursor.kind.name == "MACRO_INSTANTIATION"]
    rewriting = Rewriting(Text(source.encode(), macros))
    kernel = rewriting.kernel
    for diagnostic in unit.diagnostics:
        if diagnostic.severity >= cindex.Diagnostic.Error:
            kernel.unseen.append(f"line {diagnostic.location.line - LINES}: {diagnostic.spelling}")
    rewriting.rewrite([cursor for cursor in own if cursor.kind.name == "FUNCTION_DECL"], name)
    counts = f"#define ARRAY_COUNT {max(len(kernel.arrays), 1)}\n#define GIVEN_COUNT {kernel.given}\n"
    more = (PRINTF if "printf" in source else "") + (ASYNC if rewriting.has_copies else "")
    kernel.source = f"{counts}{RECORDER}{more}#line 1\n{rewriting.assemble()}"
    kernel.has_locks = bool(re.search(r"\b(\w*mem_fence|atom(ic)?_(cmpx|x)chg)\s*\(", source))
    return kernel


@dataclass
class Rewriting:
    """What is inserted into a source, found by walking through Clang's syntax tree."""

    text: Text
    kernel: Instrumented = field(default_factory=Instrumented)
    has_copies: bool = False  # whether it copies to or from local memory in the background
    _functions: set[str] = field(default_factory=set)  # those that the source defines and the kernel reaches
    _inserted: list[tuple[int, int, int, str]] = field(default_factory=list)
    _renamed: list[tuple[int, int]] = field(default_factory=list)  # names of variables in local memory
    _patches: list[tuple[int, str]] = field(default_factory=list)  # what these need, and the calls
    _addressed: set[tuple[int, int]] = field(default_factory=set)  # what an outer access has taken the address of

    def rewrite(self, declared: list[Cursor], name: str) -> None:
        """Rewrite all functions that the kernel `name` reaches; the arrays are those of that kernel.

        Args:
            declared: the functions that the source declares or defines.
            name: the kernel.
        """
        functions = {cursor.spelling: cursor for cursor in declared if cursor.is_definition()}
        self._functions, recursive = find_reached(functions, name)
        self.kernel.refused += [f"`{each}` calls itself, which OpenCL C forbids: write a loop" for each in recursive]
        for function in declared:
            if function.spelling in self._functions:
                self._add_parameter(function)
            else:
                self.text.blank(*find_range(function))
        if name not in self._functions:
            return
        self._read_parameters(functions[name])
        for each in sorted(self._functions, key=lambda each: each != name):
            self._find_locals(functions[each])
        self._start_record(functions[name])
        for each in sorted(self._functions, key=lambda each: find_range(functions[each])[0]):
            function = functions[each]
            body = find_body(function)
            leave = "return;" if function.result_type.kind.name == "VOID" else ""
            for statement in body.get_children():
                self._visit(statement, [body, function], leave)

    # ------------------------------------------------------------------------------------------ functions

    def _add_parameter(self, function: Cursor) -> None:
        opening = self.text.source.index(b"(", find_start(function)) + 1
        empty = re.match(rb"\s*(void\s*)?\)", self.text.source[opening:])
        if empty and empty[1]:
            self.text.blank(opening, opening + len(empty[1]))
        self._insert(opening, "__global int *trace_log" + ("" if empty else ", "))

    def _read_parameters(self, function: Cursor) -> None:
        """Note the kernel's parameters: the arrays that it is given first, then those in local memory."""
        arguments = list(function.get_arguments())
        self.kernel.parameters = [describe_parameter(argument, self.text.read(argument)) for argument in arguments]
        pairs = list(zip(arguments, self.kernel.parameters, strict=True))
        self.kernel.arrays = [argument.spelling for argument, kind in pairs if kind.memory in (GLOBAL, CONSTANT)]
        self.kernel.given = len(self.kernel.arrays)
        for argument, kind in pairs:
            if kind.memory == LOCAL:
                self.kernel.arrays.append(argument.spelling)
                self.kernel.locals.append((0, kind.element_bytes))
                self._drop_const(argument)

    def _start_record(self, function: Cursor) -> None:
        """Begin the kernel's body with what starts the record."""
        started = ["trace_start(trace_log);"]
        for number, name in enumerate(self.kernel.arrays[: self.kernel.given]):
            started.append(f"trace_array(trace_log, {number}, (ulong){name}, sizeof(*{name}));")
        for number, (size, element) in enumerate(self.kernel.locals, self.kernel.given):
            place = f"trace_local(trace_log, {_read_address(number)})"
            if size == 0:
                name = self.kernel.arrays[number]
                started.append(f"{name} = (__typeof__({name})){place};")
            started.append(f"trace_array(trace_log, {number}, (ulong){place}, {element});")
        self._insert(find_range(find_body(function))[0] + 1, f" {' '.join(started)}")

    def _drop_const(self, argument: Cursor) -> None:
        """Let a pointer itself be set, as in `__local float *const part`."""
        start, end = find_range(argument)
        found = re.search(rb"\*[^*]*?\b(const)\b[^*]*$", self.text.source[start:end])
        if found:
            self.text.blank(start + found.start(1), start + found.end(1))

    def _find_locals(self, function: Cursor) -> None:
        """Make pointers of the variables that a function declares in local memory: they point into the log."""
        for cursor in function.walk_preorder():
            is_local = find_memory(cursor.type) == LOCAL
            if cursor.kind.name == "VAR_DECL" and is_local:
                start = find_start(cursor)
                self._insert(start, "(*")
                self._insert_after(start + len(cursor.spelling.encode()), ")")
                self.kernel.arrays.append(cursor.spelling)
                self.kernel.locals.append((cursor.type.get_size(), find_element(cursor.type).get_size()))
            elif cursor.kind.name == "DECL_REF_EXPR" and cursor.referenced is not None:
                declared = cursor.referenced
                if declared.kind.name == "VAR_DECL" and find_memory(declared.type) == LOCAL:
                    first, last = find_range(cursor)
                    self._renamed.append((first, last))
                    self._patches += [(first, "(*"), (last, ")")]
            elif cursor.kind.name == "CALL_EXPR" and cursor.spelling in self._functions:
                self._patches.append(self._find_argument(cursor))

    # ------------------------------------------------------------------------------------------ statements

    def _visit(self, cursor: Cursor, above: list[Cursor], leave: str) -> None:
        """Rewrite an expression or a statement, then those inside of it.

        Args:
            cursor: the expression or statement.
            above: what is around it, innermost first.
            leave: the statement that leaves its function, if it returns nothing.
        """
        kind = cursor.kind.name
        if kind == "CXX_UNARY_EXPR":  # sizeof touches nothing
            for inner in cursor.walk_preorder():
                self._rename(inner)
            return
        children = list(cursor.get_children())
        if kind == "VAR_DECL" and find_memory(cursor.type) == LOCAL:
            self._place_local(cursor, above[0])
        elif kind in LOOPS:
            self._guard_loop(cursor, children[0] if kind == "DO_STMT" else children[-1])
        elif kind == "GOTO_STMT":
            self._guard_jump(cursor)
        elif kind == "CALL_EXPR":
            self._rewrite_call(cursor, children, above, leave)
        elif kind == "FLOATING_LITERAL" and cursor.type.kind.name == "DOUBLE":
            self._note_double(cursor)
        elif cursor.kind.is_expression() and find_memory(cursor.type) and not is_array_type(cursor.type):
            self._rewrite_access(cursor, above)
        self._rename(cursor)
        for child in children:
            self._visit(child, [cursor, *above], leave)

    def _rename(self, cursor: Cursor) -> None:
        if cursor.kind.name == "DECL_REF_EXPR" and find_range(cursor) in self._renamed:
            self._wrap(cursor, "(*", ")")

    def _note_double(self, literal: Cursor) -> None:
        text = self.text.read(literal)
        if b"double" not in self.text.source and not self.text.is_in_macro(literal):
            self.kernel.notes.append(
                f"line {find_line(literal)}: `{text}` is a double, which not every device has; `{text}f` is a float"
            )

    def _place_local(self, variable: Cursor, statement: Cursor) -> None:
        """Let a variable in local memory, which has become a pointer, point to its place."""
        found = [
            index
            for index, name in enumerate(self.kernel.arrays)
            if name == variable.spelling and index >= self.kernel.given
        ]
        place = f"trace_local(trace_log, {_read_address(found[-1])})"
        name = variable.spelling
        self._insert(find_range(statement)[1], f" {name} = (__typeof__({name})){place};")

    def _guard_loop(self, loop: Cursor, body: Cursor) -> None:
        line = find_line(loop)
        stop = f"if (trace_step(trace_log, {line})) {{ break; }}"
        start, end = find_range(body)
        if self.text.is_in_macro(body):
            self.kernel.unseen.append(self.text.describe(loop))
            return
        if self.text.is_endless(loop, body):
            self.kernel.endless.add(line)
        if body.kind.name == "COMPOUND_STMT":
            self._insert(start + 1, f" {stop}")
        else:
            directive = ""
            if self.text.source[start:].startswith(b"#"):  # such as #pragma unroll
                directive = f"\n#line {self.text.count_lines(start)}\n"
            self._insert(start, f"{{ {stop} {directive}")
            self._insert_after(self.text.find_end(end), " }")

    def _guard_jump(self, jump: Cursor) -> None:
        if self.text.is_in_macro(jump):
            self.kernel.unseen.append(self.text.describe(jump))
            return
        start, end = find_range(jump)
        self._insert(start, f"{{ if (!trace_step(trace_log, {find_line(jump)})) ")
        self._insert_after(self.text.find_end(end), " }")

    # ------------------------------------------------------------------------------------------ calls

    def _rewrite_call(self, call: Cursor, children: list[Cursor], above: list[Cursor], leave: str) -> None:
        name, arguments = call.spelling, children[1:]
        if name in self._functions and not self.text.is_in_macro(call):
            self._insert(*self._find_argument(call))
        elif name in (*BARRIERS, EVENTS) and not self.text.is_in_macro(call):
            self._stop_at(call, above[0], leave)
        elif name.startswith(NOT_RECORDED):
            self.kernel.refused.append(f"{self.text.describe(call)} is not recorded")
        elif name in POINTERS and not self.text.is_in_macro(call):
            self._redirect_pointer(call, arguments)
        elif name in (*BARRIERS, *self._functions) or takes_shared(call, arguments):
            self.has_copies = self.has_copies or name in COPIES
            self.kernel.unseen.append(self.text.describe(call))

    def _find_argument(self, call: Cursor) -> tuple[int, str]:
        """Return where a call of an own function gets the log, and the text for it."""
        opening = self.text.source.index(b"(", find_range(call)[0]) + 1
        return opening, "trace_log, " if len(list(call.get_children())) > 1 else "trace_log"

    def _stop_at(self, call: Cursor, outer: Cursor, leave: str) -> None:
        """Stop a work-item at a barrier."""
        is_barrier = call.spelling in BARRIERS
        line = find_line(call)
        self.kernel.barriers.append(line)
        met = f"trace_meet(trace_log, {len(self.kernel.barriers)}, {int(is_barrier)}, "
        end = find_range(call)[1]
        if leave and not outer.kind.is_expression():
            self._insert(find_range(call)[0], f"{{ if ({met}")
            self._insert_after(end, f")) {{ {leave} }}")
            self._insert(self.text.source.index(b";", end) + 1, " }")
        else:
            self._wrap(call, met, ")")

    def _redirect_pointer(self, call: Cursor, arguments: list[Cursor]) -> None:
        number, what, count = POINTERS[call.spelling]
        if number >= len(arguments):
            return
        pointer = arguments[number]
        memory = find_memory(pointer.type.get_pointee())
        if not memory:  # a work-item's own array
            return
        plain, more = self._read_plainly(pointer), ""
        if call.spelling.startswith(("vload", "vstore")):  # vload4(offset, p) reads p from 4 * offset on
            offset = arguments[number - 1]
            more = f" + {count} * (long)({self._read_plainly(offset)})"
            self._wrap(offset, "0 * (", ")")
        if call.spelling in ATOMICS:
            kind = call.type.spelling.split()[-1]
            begin, end = ("as_float((uint)", "as_uint(") if kind == "float" else (f"({call.type.spelling})", "(")
            self._wrap(call, f"({begin}trace_result(trace_log, (ulong){end}", ")))" if kind != "float" else "))))")
        before, after = self._call_recorder(call, memory, what, f"*({plain})", count)
        self._wrap(pointer, f"(__typeof__(&*({plain}))){before}(", f"){more}{after}")

    def _call_recorder(self, access: Cursor, memory: int, what: int, element: str, count: int = 1) -> tuple[str, str]:
        """Return what stands before and after the address of an access that is recorded."""
        function, space = ("trace_constant", "__constant") if memory == CONSTANT else ("trace_at", "__global")
        before = f"{function}(trace_log, {what + SITE * len(self.kernel.sites)}, ({space} char *)("
        self.kernel.sites.append(" ".join(self.text.read(access).split()))
        return before, f"), sizeof({element}), {count})"

    # ------------------------------------------------------------------------------------------ accesses

    def _rewrite_access(self, cursor: Cursor, above: list[Cursor]) -> None:
        if not self.text.is_access(cursor) or find_range(cursor) in self._addressed or not self._is_watched(cursor):
            return
        self._addressed.update(find_range(step) for step in list_steps(cursor))
        what = self.text.classify_access(cursor, above)
        if what is None:
            return
        if self.text.is_in_macro(cursor):
            self.kernel.unseen.append(self.text.describe(cursor))
            return
        plain = self._read_plainly(cursor)
        before, after = self._call_recorder(cursor, find_memory(cursor.type), what, plain)
        self._wrap(cursor, f"(*(__typeof__(&({plain}))){before}&(", f"){after})")

    def _is_watched(self, cursor: Cursor) -> bool:
        """Return whether an access is recorded: not if it goes to constants that the program declares itself."""
        if find_memory(cursor.type) != CONSTANT:
            return True
        root = find_root(cursor)
        return root is not None and root.referenced.kind.name == "PARM_DECL" and root.spelling in self.kernel.arrays

    # ------------------------------------------------------------------------------------------ insertions

    def _read_plainly(self, cursor: Cursor) -> str:
        """Return a cursor's text for a type that is asked for, where variables in local memory have become pointers."""
        start, end = find_range(cursor)
        parts, done = [], start
        for position, text in sorted(self._patches):
            is_inside = start < position < end
            if is_inside or (text == "(*" and position == start) or (text == ")" and position == end > done):
                parts += [self.text.source[done:position], text.encode()]
                done = position
        return b"".join([*parts, self.text.source[done:end]]).decode()

    def _insert(self, position: int, text: str) -> None:
        self._inserted.append((position, 1, len(self._inserted), text))

    def _insert_after(self, position: int, text: str) -> None:
        """Insert what ends something: before what begins here, and the inner before the outer."""
        self._inserted.append((position, 0, -len(self._inserted), text))

    def _wrap(self, cursor: Cursor, before: str, after: str) -> None:
        start, end = find_range(cursor)
        self._insert(start, before)
        self._insert_after(end, after)

    def assemble(self) -> str:
        """Return the source with all that is inserted."""
        parts, done = [], 0
        for position, _, _, text in sorted(self._inserted):
            parts += [self.text.source[done:position], text.encode()]
            done = position
        return b"".join([*parts, self.text.source[done:]]).decode()


def _read_address(number: int) -> str:
    """Return the code for where an array in local memory begins, as the host has written it into the log."""
    return f"trace_row(trace_log)[{ARRAYS + ARRAY_INTS * number + START}]"
