"""Rewrite OpenCL C so that it records what each work-item touches, for `opencl_recorder`.

libclang (TensorFlow depends on it too) reads the kernel with its types, so an access is known by the memory that it
goes to, however it is written: `x[i]`, `*p++`, through a pointer that was handed on, or a variable in local memory.
The code that writes the record (`opencl_log`) is put before the kernel. What is not reached is listed as unseen.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from helpers.judge.opencl_header import LINES, SCALARS, expand_macros, find_range, list_own
from helpers.judge.opencl_log import ARRAY_INTS, ARRAYS, RECORDER, START
from helpers.judge.trace import ATOMIC, READ, SITE, WRITE

if TYPE_CHECKING:
    from clang.cindex import Cursor, Type

# Functions whose pointer is followed: which argument it is, what they do there, and to how many elements.
POINTERS: dict[str, tuple[int, int, int]] = {}
ATOMICS = {
    f"{word}_{name}"
    for word in ("atomic", "atom")
    for name in ("add", "sub", "xchg", "inc", "dec", "cmpxchg", "min", "max", "and", "or", "xor")
}
POINTERS.update(dict.fromkeys(ATOMICS, (0, READ | WRITE | ATOMIC, 1)))
ROUNDINGS = ("", "_rte", "_rtz", "_rtp", "_rtn")
for _width in ("", "2", "3", "4", "8", "16"):
    _lanes = int(_width or 1)
    if _width:
        POINTERS[f"vload{_width}"] = (1, READ, _lanes)
        POINTERS[f"vstore{_width}"] = (2, WRITE, _lanes)
    POINTERS[f"vload_half{_width}"] = (1, READ, _lanes)
    for _rounding in ROUNDINGS:
        POINTERS[f"vstore_half{_width}{_rounding}"] = (2, WRITE, _lanes)
POINTERS.update(dict.fromkeys(("fract", "modf", "sincos", "frexp", "lgamma_r"), (1, WRITE, 1)))
POINTERS["remquo"] = (2, WRITE, 1)
BARRIERS = ("barrier", "work_group_barrier")
EVENTS = "wait_group_events"
COPIES = ("async_work_group_copy",)
LOOPS = ("FOR_STMT", "WHILE_STMT", "DO_STMT")
HARMLESS = ("prefetch", "printf")  # what is given a pointer and touches nothing that matters
# What only a whole work-group can compute together, and what OpenCL C has beside kernels: by how the name begins.
NOT_RECORDED = ("work_group_", "sub_group_", "atomic_fetch_", "atomic_load", "atomic_store", "atomic_exchange",
                "atomic_compare_exchange", "atomic_flag_", "atomic_init", "atomic_work_item_fence", "enqueue_",
                "read_pipe", "write_pipe", "reserve_", "commit_", "read_image", "write_image", "get_image_",
                "async_work_group_strided_copy")  # fmt: skip
GLOBAL, LOCAL, CONSTANT = 1, 2, 3  # how the target spir64 numbers its address spaces

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


@dataclass(frozen=True)
class ParameterType:
    """What a kernel's parameter takes."""

    text: str  # as it is written, such as `__global const float *a`
    memory: int  # GLOBAL, LOCAL or CONSTANT for a pointer, 0 for a number
    element: str  # the type of one element, or of the number, such as `float4`
    element_bytes: int  # bytes of that
    scalar: str  # the type of one lane of a vector, otherwise the same; empty for a structure
    is_vector_of_three: bool
    is_const: bool  # whether the kernel may only read it


@dataclass
class Instrumented:
    """A kernel that records."""

    source: str  # it takes the log, `__global int *`, before its own arguments
    arrays: list[str]  # the names of its arrays: first those given, then those in local memory
    given: int  # how many are given
    locals: list[tuple[int, int]]  # of each array in local memory its bytes, 0 for a parameter, and those of an element
    parameters: list[ParameterType]
    has_barriers: bool
    unseen: list[str]  # what cannot be followed
    notes: list[str]  # what other devices may refuse
    refused: list[str]  # what cannot be recorded at all
    sites: list[str]  # the text of each access that is recorded, by the number that its touches have
    barriers: list[int]  # the line of each barrier, in the order of the source
    endless: set[int]  # the lines of loops that never end once their condition holds
    has_locks: bool  # whether it has a fence, or an atomic function that makes a lock


def instrument(source: str, name: str) -> Instrumented:
    """Rewrite OpenCL C so that its kernel `name` records ids, accesses, barriers and rounds of loops.

    Args:
        source: OpenCL C that compiles.
        name: the kernel.
    """
    from clang import cindex

    functions = set(re.findall(r"\b(\w+)\s*\(", source))
    source, unit = expand_macros(source, lambda cursor: _matters(cursor, functions))
    rewriting = Rewriting(source.encode())
    for diagnostic in unit.diagnostics:
        if diagnostic.severity >= cindex.Diagnostic.Error:
            rewriting.unseen.append(f"line {diagnostic.location.line - LINES}: {diagnostic.spelling}")
    rewriting.read(list_own(unit), name)
    counts = f"#define ARRAY_COUNT {max(len(rewriting.arrays), 1)}\n#define GIVEN_COUNT {rewriting.given}\n"
    more = (PRINTF if "printf" in source else "") + (ASYNC if rewriting.copies else "")
    return Instrumented(
        f"{counts}{RECORDER}{more}#line 1\n{rewriting.assemble()}",
        rewriting.arrays,
        rewriting.given,
        rewriting.locals,
        rewriting.parameters,
        rewriting.has_barriers,
        rewriting.unseen,
        rewriting.notes,
        rewriting.refused,
        rewriting.sites,
        rewriting.barriers,
        rewriting.endless,
        bool(re.search(r"\b(\w*mem_fence|atom(ic)?_(cmpx|x)chg)\s*\(", source)),
    )


def _matters(cursor: Cursor, functions: set[str]) -> bool:
    """Return whether a cursor must stand in the source itself, and not in a macro."""
    kind = cursor.kind.name
    if kind in (*LOOPS, "GOTO_STMT", "FUNCTION_DECL"):
        return True
    if kind == "CALL_EXPR":
        return cursor.spelling in (*BARRIERS, EVENTS, *POINTERS) or cursor.spelling in functions
    return (cursor.kind.is_expression() or kind == "VAR_DECL") and _find_memory(cursor.type) in (GLOBAL, LOCAL)


@dataclass
class Rewriting:
    """What is inserted into a source, found by walking through Clang's syntax tree."""

    source: bytes
    arrays: list[str] = field(default_factory=list)
    given: int = 0  # the first arrays, which the kernel takes
    locals: list[tuple[int, int]] = field(default_factory=list)
    parameters: list[ParameterType] = field(default_factory=list)
    has_barriers: bool = False
    copies: bool = False  # whether it copies to or from local memory in the background
    unseen: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    sites: list[str] = field(default_factory=list)
    barriers: list[int] = field(default_factory=list)
    endless: set[int] = field(default_factory=set)
    _functions: set[str] = field(default_factory=set)  # those that the source defines and the kernel reaches
    _inserted: list[tuple[int, int, int, str]] = field(default_factory=list)
    _macros: list[tuple[int, int]] = field(default_factory=list)
    _renamed: list[tuple[int, int]] = field(default_factory=list)  # names of variables in local memory
    _patches: list[tuple[int, str]] = field(default_factory=list)  # what these need, and the calls
    _addressed: set[tuple[int, int]] = field(default_factory=set)  # what an outer access has taken the address of

    def read(self, own: list[Cursor], name: str) -> None:
        """Walk through all functions that the kernel `name` reaches; the arrays are those of that kernel."""
        self._macros = [find_range(cursor) for cursor in own if cursor.kind.name == "MACRO_INSTANTIATION"]
        declared = [cursor for cursor in own if cursor.kind.name == "FUNCTION_DECL"]
        functions = {cursor.spelling: cursor for cursor in declared if cursor.is_definition()}
        reached = self._find_reached(functions, name)
        self._functions = reached
        for function in declared:
            if function.spelling not in reached:
                self._blank(*find_range(function))
            else:
                self._add_parameter(function)
        if name in reached:
            self._read_parameters(functions[name])
        for name_of_it in sorted(reached, key=lambda each: each != name):
            self._find_locals(functions[name_of_it])
        if name in reached:
            self._start_record(functions[name])
        for name_of_it in sorted(reached, key=lambda each: find_range(functions[each])[0]):
            function = functions[name_of_it]
            body = next(child for child in function.get_children() if child.kind.name == "COMPOUND_STMT")
            leave = "return;" if function.result_type.kind.name == "VOID" else ""
            for statement in body.get_children():
                self._visit(statement, [body, function], leave)

    def _find_reached(self, functions: dict[str, Cursor], name: str) -> set[str]:
        """Return the names of the functions that a kernel calls, also through others, and its own."""
        calls = {
            each: {call.spelling for call in function.walk_preorder() if call.kind.name == "CALL_EXPR"} & set(functions)
            for each, function in functions.items()
        }
        reached: set[str] = set()
        waiting = [name] if name in functions else []
        while waiting:
            each = waiting.pop()
            if each not in reached:
                reached.add(each)
                waiting += calls[each]
        for each in reached:
            if _is_recursive(each, calls):
                self.refused.append(f"`{each}` calls itself, which OpenCL C forbids: write a loop")
        return reached

    def assemble(self) -> str:
        """Return the source with all that is inserted."""
        parts, done = [], 0
        for position, _, _, text in sorted(self._inserted):
            parts += [self.source[done:position], text.encode()]
            done = position
        return b"".join([*parts, self.source[done:]]).decode()

    def _read_text(self, cursor: Cursor) -> str:
        start, end = find_range(cursor)
        return self.source[start:end].decode()

    def _read_plainly(self, cursor: Cursor) -> str:
        """Return a cursor's text for a type that is asked for, where variables in local memory have become pointers."""
        start, end = find_range(cursor)
        parts, done = [], start
        for position, text in sorted(self._patches):
            is_inside = start < position < end
            if is_inside or (text == "(*" and position == start) or (text == ")" and position == end > done):
                parts += [self.source[done:position], text.encode()]
                done = position
        return b"".join([*parts, self.source[done:end]]).decode()

    def _insert(self, position: int, text: str) -> None:
        self._inserted.append((position, 1, len(self._inserted), text))

    def _insert_after(self, position: int, text: str) -> None:
        """Insert what ends something: before what begins here, and the inner before the outer."""
        self._inserted.append((position, 0, -len(self._inserted), text))

    def _wrap(self, cursor: Cursor, before: str, after: str) -> None:
        start, end = find_range(cursor)
        self._insert(start, before)
        self._insert_after(end, after)

    def _blank(self, start: int, end: int) -> None:
        blank = re.sub(rb"[^\n]", b" ", self.source[start:end])
        self.source = self.source[:start] + blank + self.source[end:]

    def _describe(self, cursor: Cursor) -> str:
        line = cursor.extent.start.line - LINES
        return f"line {line}: `{' '.join(self._read_text(cursor).split())}`"

    def _note_unseen(self, cursor: Cursor) -> None:
        start, end = find_range(cursor)
        macro = next((use for use in self._macros if end <= start and use[0] <= start < use[1]), None)
        if macro:  # a piece of an argument has no place of its own
            text = " ".join(self.source[slice(*macro)].decode().split())
            self.unseen.append(f"line {cursor.extent.start.line - LINES}: `{text}`")
        else:
            self.unseen.append(self._describe(cursor))

    def _in_macro(self, cursor: Cursor) -> bool:
        start, end = find_range(cursor)
        return any(first <= start < last and (end <= last or end <= start) for first, last in self._macros)

    # ------------------------------------------------------------------------------------------ functions

    def _add_parameter(self, function: Cursor) -> None:
        opening = self.source.index(b"(", find_start(function)) + 1
        empty = re.match(rb"\s*(void\s*)?\)", self.source[opening:])
        if empty and empty[1]:
            self._blank(opening, opening + len(empty[1]))
        self._insert(opening, "__global int *trace_log" + ("" if empty else ", "))

    def _read_parameters(self, function: Cursor) -> None:
        """Note the kernel's parameters: the arrays that it is given first, then those in local memory."""
        arguments = list(function.get_arguments())
        self.parameters = [_describe_type(argument, self._read_text(argument)) for argument in arguments]
        pairs = list(zip(arguments, self.parameters, strict=True))
        self.arrays = [argument.spelling for argument, kind in pairs if kind.memory in (GLOBAL, CONSTANT)]
        self.given = len(self.arrays)
        for argument, kind in pairs:
            if kind.memory == LOCAL:
                self.arrays.append(argument.spelling)
                self.locals.append((0, kind.element_bytes))
                self._drop_const(argument)

    def _start_record(self, function: Cursor) -> None:
        """Begin the kernel's body with what starts the record."""
        body = next(child for child in function.get_children() if child.kind.name == "COMPOUND_STMT")
        started = ["trace_start(trace_log);"]
        for number, name in enumerate(self.arrays[: self.given]):
            started.append(f"trace_array(trace_log, {number}, (ulong){name}, sizeof(*{name}));")
        for number, (size, element) in enumerate(self.locals, self.given):
            place = f"trace_local(trace_log, {_read_address(number)})"
            if size == 0:
                name = self.arrays[number]
                started.append(f"{name} = (__typeof__({name})){place};")
            started.append(f"trace_array(trace_log, {number}, (ulong){place}, {element});")
        self._insert(find_range(body)[0] + 1, f" {' '.join(started)}")

    def _drop_const(self, argument: Cursor) -> None:
        """Let a pointer itself be set, as in `__local float *const part`."""
        start, end = find_range(argument)
        found = re.search(rb"\*[^*]*?\b(const)\b[^*]*$", self.source[start:end])
        if found:
            self._blank(start + found.start(1), start + found.end(1))

    def _find_locals(self, function: Cursor) -> None:
        """Make pointers of the variables that a function declares in local memory: they point into the log."""
        for cursor in function.walk_preorder():
            is_local = _find_memory(cursor.type) == LOCAL
            if cursor.kind.name == "VAR_DECL" and is_local:
                start = find_start(cursor)
                self._insert(start, "(*")
                self._insert_after(start + len(cursor.spelling.encode()), ")")
                element = cursor.type
                while _is_array_type(element):
                    element = element.element_type
                self.arrays.append(cursor.spelling)
                self.locals.append((cursor.type.get_size(), element.get_size()))
            elif cursor.kind.name == "DECL_REF_EXPR" and cursor.referenced is not None:
                declared = cursor.referenced
                if declared.kind.name == "VAR_DECL" and _find_memory(declared.type) == LOCAL:
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
        if kind == "VAR_DECL" and _find_memory(cursor.type) == LOCAL:
            self._place_local(cursor, above[0])
        elif kind in LOOPS:
            self._guard_loop(cursor, children[0] if kind == "DO_STMT" else children[-1])
        elif kind == "GOTO_STMT":
            self._guard_jump(cursor)
        elif kind == "CALL_EXPR":
            self._rewrite_call(cursor, children, above, leave)
        elif kind == "FLOATING_LITERAL" and cursor.type.kind.name == "DOUBLE":
            self._note_double(cursor)
        elif cursor.kind.is_expression() and _find_memory(cursor.type) and not _is_array_type(cursor.type):
            self._rewrite_access(cursor, children, above)
        self._rename(cursor)
        for child in children:
            self._visit(child, [cursor, *above], leave)

    def _rename(self, cursor: Cursor) -> None:
        if cursor.kind.name == "DECL_REF_EXPR" and find_range(cursor) in self._renamed:
            self._wrap(cursor, "(*", ")")

    def _note_double(self, literal: Cursor) -> None:
        text = self._read_text(literal)
        if b"double" not in self.source and not self._in_macro(literal):
            self.notes.append(
                f"line {literal.extent.start.line - LINES}: `{text}` is a double, which not every device has; "
                f"`{text}f` is a float"
            )

    def _place_local(self, variable: Cursor, statement: Cursor) -> None:
        """Let a variable in local memory, which has become a pointer, point to its place."""
        found = [index for index, name in enumerate(self.arrays) if name == variable.spelling and index >= self.given]
        place = f"trace_local(trace_log, {_read_address(found[-1])})"
        name = variable.spelling
        self._insert(find_range(statement)[1], f" {name} = (__typeof__({name})){place};")

    def _guard_loop(self, loop: Cursor, body: Cursor) -> None:
        line = loop.extent.start.line - LINES
        stop = f"if (trace_step(trace_log, {line})) {{ break; }}"
        start, end = find_range(body)
        if self._in_macro(body):
            self._note_unseen(loop)
            return
        if self._is_endless(loop, body):
            self.endless.add(line)
        if body.kind.name == "COMPOUND_STMT":
            self._insert(start + 1, f" {stop}")
        else:
            directive = f"\n#line {self._count_lines(start)}\n" if self.source[start:].startswith(b"#") else ""
            self._insert(start, f"{{ {stop} {directive}")  # such as #pragma unroll
            self._insert_after(self._find_end(end), " }")

    def _count_lines(self, position: int) -> int:
        return self.source[:position].count(b"\n") + 1

    def _find_end(self, end: int) -> int:
        """Return where a statement ends, with its semicolon."""
        is_ended = self.source[:end].rstrip().endswith((b";", b"}"))
        return end if is_ended else self.source.index(b";", end) + 1

    def _is_endless(self, loop: Cursor, body: Cursor) -> bool:
        """Return whether a loop never ends: it changes nothing that its condition asks for, and nothing leaves it."""
        from helpers.devices.kernel_text import closing_bracket, without_comments

        text = without_comments(self._read_text(loop))
        if re.search(r"\b(break|return|goto)\b", text):
            return False
        if loop.kind.name == "DO_STMT":
            opening = find_range(body)[1] - find_range(loop)[0]
            opening = text.index("(", opening)
            condition = text[opening + 1 : closing_bracket(text, opening)]
        else:
            opening = text.index("(")
            condition = text[opening + 1 : closing_bracket(text, opening)]
            if loop.kind.name == "FOR_STMT":
                condition = condition.split(";")[1]
        if re.search(r"\w\s*\(|\[|->|\*|\.|=[^=]|\+\+|--", re.sub(r"[<>!=]=", "<", condition)):
            return False  # it calls, reads memory or changes something
        names = {name for name in re.findall(r"[A-Za-z_]\w*", condition)}
        declared = {each.spelling: each for each in loop.walk_preorder() if each.kind.name == "DECL_REF_EXPR"}
        if any(name in declared and _find_memory(declared[name].type) for name in names):
            return False
        changed = "|".join(re.escape(name) for name in names) or r"\b\B"
        step = rf"\b({changed})\b\s*(=(?!=)|[-+*/%|&^]=|<<=|>>=|\+\+|--|\.)|(\+\+|--|&)\s*\(?\s*({changed})\b"
        header = "" if loop.kind.name != "FOR_STMT" else text[opening:].split(";", 1)[1]
        return not re.search(step, header if loop.kind.name == "FOR_STMT" else text)

    def _guard_jump(self, jump: Cursor) -> None:
        if self._in_macro(jump):
            self._note_unseen(jump)
            return
        start, end = find_range(jump)
        self._insert(start, f"{{ if (!trace_step(trace_log, {jump.extent.start.line - LINES})) ")
        self._insert_after(self._find_end(end), " }")

    # ------------------------------------------------------------------------------------------ calls

    def _rewrite_call(self, call: Cursor, children: list[Cursor], above: list[Cursor], leave: str) -> None:
        name, arguments = call.spelling, children[1:]
        if name in self._functions and not self._in_macro(call):
            self._insert(*self._find_argument(call))
        elif name in (*BARRIERS, EVENTS) and not self._in_macro(call):
            self._stop_at(call, above[0], leave)
        elif name.startswith(NOT_RECORDED):
            self.refused.append(f"{self._describe(call)} is not recorded")
        elif name in POINTERS and not self._in_macro(call):
            self._redirect_pointer(call, arguments)
        elif name in (*BARRIERS, *self._functions) or _takes_shared(call, arguments):
            self.copies = self.copies or name in COPIES
            self._note_unseen(call)

    def _find_argument(self, call: Cursor) -> tuple[int, str]:
        """Return where a call of an own function gets the log, and the text for it."""
        opening = self.source.index(b"(", find_range(call)[0]) + 1
        return opening, "trace_log, " if len(list(call.get_children())) > 1 else "trace_log"

    def _stop_at(self, call: Cursor, outer: Cursor, leave: str) -> None:
        """Stop a work-item at a barrier."""
        is_barrier = call.spelling in BARRIERS
        self.has_barriers = True
        line = call.extent.start.line - LINES
        self.barriers.append(line)
        met = f"trace_meet(trace_log, {len(self.barriers)}, {int(is_barrier)}, "
        end = find_range(call)[1]
        if leave and not outer.kind.is_expression():
            self._insert(find_range(call)[0], f"{{ if ({met}")
            self._insert_after(end, f")) {{ {leave} }}")
            self._insert(self.source.index(b";", end) + 1, " }")
        else:
            self._wrap(call, met, ")")

    def _redirect_pointer(self, call: Cursor, arguments: list[Cursor]) -> None:
        number, what, count = POINTERS[call.spelling]
        if number >= len(arguments):
            return
        pointer = arguments[number]
        memory = _find_memory(pointer.type.get_pointee())
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
        before = f"{function}(trace_log, {what + SITE * len(self.sites)}, ({space} char *)("
        self.sites.append(" ".join(self._read_text(access).split()))
        return before, f"), sizeof({element}), {count})"

    # ------------------------------------------------------------------------------------------ accesses

    def _rewrite_access(self, cursor: Cursor, children: list[Cursor], above: list[Cursor]) -> None:
        kind = cursor.kind.name
        is_pointer = kind == "UNARY_OPERATOR" and self._read_text(cursor).startswith("*")
        is_local = kind == "DECL_REF_EXPR" and _find_memory(cursor.type) == LOCAL
        is_access = kind in ("ARRAY_SUBSCRIPT_EXPR", "MEMBER_REF_EXPR") or is_pointer or is_local
        if not is_access or find_range(cursor) in self._addressed or not self._is_watched(cursor):
            return
        self._mark_addressed(cursor, children)
        what = self._classify_access(cursor, above)
        if what is None:
            return
        if self._in_macro(cursor):
            self._note_unseen(cursor)
            return
        plain = self._read_plainly(cursor)
        before, after = self._call_recorder(cursor, _find_memory(cursor.type), what, plain)
        self._wrap(cursor, f"(*(__typeof__(&({plain}))){before}&(", f"){after})")

    def _mark_addressed(self, cursor: Cursor, children: list[Cursor]) -> None:
        """Mark what an access goes through without reading it: `s[i]` and `s[i].row` in `s[i].row[k].x`."""
        while children and (_find_memory(children[0].type) or _decays(children[0])):
            cursor = children[0]
            self._addressed.add(find_range(cursor))
            if cursor.kind.name == "UNARY_OPERATOR":
                return
            children = list(cursor.get_children())

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
            same = find_range(outer)[0] == find_range(inner)[0]
            if outer.kind.name == "PAREN_EXPR" or (
                outer.kind.name in ("MEMBER_REF_EXPR", "UNEXPOSED_EXPR") and _find_memory(outer.type)
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
        after = self.source[find_range(left)[1] :].lstrip()
        return after.startswith(b"=") and not after.startswith(b"==")


def find_start(cursor: Cursor) -> int:
    """Return where the name of a declaration stands, in bytes of the source."""
    return cursor.location.offset - cursor.extent.start.offset + find_range(cursor)[0]


def _read_address(number: int) -> str:
    """Return the code for where an array in local memory begins, as the host has written it into the log."""
    return f"trace_row(trace_log)[{ARRAYS + ARRAY_INTS * number + START}]"


def _is_recursive(name: str, calls: dict[str, set[str]]) -> bool:
    """Return whether a function calls itself, also through others."""
    seen: set[str] = set()
    waiting = list(calls[name])
    while waiting:
        each = waiting.pop()
        if each == name:
            return True
        if each not in seen:
            seen.add(each)
            waiting += calls[each]
    return False


def _takes_shared(call: Cursor, arguments: list[Cursor]) -> bool:
    """Return whether a function of OpenCL that is not known here is given a pointer to shared memory."""
    if call.spelling in HARMLESS:
        return False
    pointers = [argument.type.get_pointee() for argument in arguments if argument.type.kind.name == "POINTER"]
    return any(_find_memory(pointer) in (GLOBAL, LOCAL) for pointer in pointers)


def _describe_type(argument: Cursor, text: str) -> ParameterType:
    """Return what a parameter takes."""
    pointee = argument.type.get_pointee()
    memory = _find_memory(pointee)
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


def _find_memory(kind: Type) -> int:
    """Return GLOBAL, LOCAL or CONSTANT for a type in that memory, 0 for any other."""
    if kind.kind.name == "INVALID":  # Clang has no answer for it, and would crash
        return 0
    space = kind.get_address_space()
    return space if space in (GLOBAL, LOCAL, CONSTANT) else 0


def _decays(cursor: Cursor) -> bool:
    """Return whether an array has become a pointer to its first element."""
    children = list(cursor.get_children())
    return cursor.kind.name == "UNEXPOSED_EXPR" and len(children) == 1 and _is_array_type(children[0].type)


def _is_array_type(kind: Type) -> bool:
    return kind.kind.name == "CONSTANTARRAY"
