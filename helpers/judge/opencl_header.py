"""Parse OpenCL C with libclang, for `opencl_reader`: the declarations that libclang lacks, and macros expanded.

libclang's wheel has no headers, so what OpenCL's own header declares stands here. A macro of the learner's hides where
an access is written. Those that hold an access, a barrier, a loop or a call are therefore expanded first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clang.cindex import Cursor, TranslationUnit

OPTIONS = [
    *("-x", "cl", "-cl-std=CL1.2", "-target", "spir64", "-cl-no-stdinc", "-Xclang", "-fdeclare-opencl-builtins"),
    "-D__opencl_c_named_address_space_builtins=1",
]
SCALARS = {
    **dict.fromkeys(("char", "uchar"), 1),
    **dict.fromkeys(("short", "ushort"), 2),
    **dict.fromkeys(("int", "uint", "float"), 4),
    **dict.fromkeys(("long", "ulong", "double"), 8),
}  # bytes of each


def _declare_casts() -> str:
    """Return the functions `as_TYPE` for every two types of one size."""
    widths = {"": 1, "2": 2, "3": 4, "4": 4, "8": 8, "16": 16}  # a vector of three takes the room of four
    sizes = {f"{name}{width}": size * lanes for name, size in SCALARS.items() for width, lanes in widths.items()}
    return "\n".join(
        f"{to} __attribute__((overloadable)) as_{to}({given});"
        for to, bytes_of_it in sizes.items()
        for given, others in sizes.items()
        if others == bytes_of_it
    )


TYPES = f"""
typedef unsigned char uchar; typedef unsigned short ushort; typedef unsigned int uint; typedef unsigned long ulong;
typedef ulong size_t; typedef long ptrdiff_t; typedef long intptr_t; typedef ulong uintptr_t;
typedef uint cl_mem_fence_flags;
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#define VECTOR(t, width) typedef t t##width __attribute__((ext_vector_type(width)));
#define VECTORS(t) VECTOR(t, 2) VECTOR(t, 3) VECTOR(t, 4) VECTOR(t, 8) VECTOR(t, 16)
VECTORS(char) VECTORS(uchar) VECTORS(short) VECTORS(ushort) VECTORS(int) VECTORS(uint) VECTORS(long) VECTORS(ulong)
VECTORS(float) VECTORS(double)
{_declare_casts()}
void __attribute__((overloadable)) work_group_barrier(cl_mem_fence_flags);
void __attribute__((overloadable)) work_group_barrier(cl_mem_fence_flags, int);
int printf(__constant const char *, ...);
#undef VECTOR
#undef VECTORS
#define CLK_LOCAL_MEM_FENCE 1
#define CLK_GLOBAL_MEM_FENCE 2
#define CHAR_BIT 8
#define SCHAR_MAX 127
#define SCHAR_MIN (-128)
#define UCHAR_MAX 255
#define CHAR_MAX SCHAR_MAX
#define CHAR_MIN SCHAR_MIN
#define SHRT_MAX 32767
#define SHRT_MIN (-32768)
#define USHRT_MAX 65535
#define INT_MAX 2147483647
#define INT_MIN (-INT_MAX - 1)
#define UINT_MAX 0xffffffffu
#define LONG_MAX 0x7fffffffffffffffL
#define LONG_MIN (-LONG_MAX - 1)
#define ULONG_MAX 0xffffffffffffffffUL
#define FLT_MAX 0x1.fffffep127f
#define MAXFLOAT FLT_MAX
#define FLT_MIN 0x1.0p-126f
#define FLT_EPSILON 0x1.0p-23f
#define FLT_DIG 6
#define FLT_RADIX 2
#define FLT_MANT_DIG 24
#define DBL_MAX 0x1.fffffffffffffp1023
#define DBL_MIN 0x1.0p-1022
#define DBL_EPSILON 0x1.0p-52
#define HUGE_VALF (__builtin_huge_valf())
#define HUGE_VAL (__builtin_huge_val())
#define INFINITY (__builtin_inff())
#define NAN (__builtin_nanf(""))
#define M_E_F 2.71828183f
#define M_LOG2E_F 1.44269504f
#define M_LOG10E_F 0.43429448f
#define M_LN2_F 0.69314718f
#define M_LN10_F 2.30258509f
#define M_PI_F 3.14159274f
#define M_PI_2_F 1.57079637f
#define M_PI_4_F 0.78539816f
#define M_1_PI_F 0.31830989f
#define M_2_PI_F 0.63661977f
#define M_2_SQRTPI_F 1.12837917f
#define M_SQRT2_F 1.41421356f
#define M_SQRT1_2_F 0.70710678f
#define M_E 2.718281828459045
#define M_LOG2E 1.4426950408889634
#define M_LOG10E 0.4342944819032518
#define M_LN2 0.6931471805599453
#define M_LN10 2.302585092994046
#define M_PI 3.141592653589793
#define M_PI_2 1.5707963267948966
#define M_PI_4 0.7853981633974483
#define M_1_PI 0.3183098861837907
#define M_2_PI 0.6366197723675814
#define M_2_SQRTPI 1.1283791670955126
#define M_SQRT2 1.4142135623730951
#define M_SQRT1_2 0.7071067811865476
"""
OFFSET, LINES = len(TYPES.encode()), TYPES.count("\n")  # where the learner's source begins in what libclang reads
MOST_PASSES = 12  # a macro may hold a macro, but not without end


def parse(source: str) -> TranslationUnit:
    """Return the syntax tree of OpenCL C, after the declarations above."""
    from clang import cindex

    detailed = cindex.TranslationUnit.PARSE_DETAILED_PROCESSING_RECORD
    files = [("learner.cl", TYPES + source)]
    return cindex.Index.create().parse("learner.cl", OPTIONS, unsaved_files=files, options=detailed)


def list_own(unit: TranslationUnit) -> list[Cursor]:
    """Return what the source itself declares, defines as a macro or expands, in its order."""
    return [cursor for cursor in unit.cursor.get_children() if cursor.extent.start.offset >= OFFSET]


def find_range(cursor: Cursor) -> tuple[int, int]:
    """Return where a cursor begins and ends, in bytes of the source."""
    return cursor.extent.start.offset - OFFSET, cursor.extent.end.offset - OFFSET


def expand_macros(source: str, matters: Callable[[Cursor], bool]) -> tuple[str, TranslationUnit]:
    """Expand the macros that hold something that matters; every line stays where it is.

    Args:
        source: OpenCL C.
        matters: whether a cursor must stand in the source itself.

    Returns:
        The source and its syntax tree.
    """
    for _ in range(MOST_PASSES):
        unit = parse(source)
        own = list_own(unit)
        uses = {find_range(cursor): cursor for cursor in own if cursor.kind.name == "MACRO_INSTANTIATION"}
        wanted = {use for cursor in _walk(own) if matters(cursor) for use in _find_uses(cursor, uses)}
        text = source.encode()
        changed = False
        for first, last in sorted(wanted, reverse=True):
            definition = _find_definition(uses[first, last].spelling, first, own, text)
            expanded = _expand(definition, text[first:last].decode()) if definition else None
            if expanded is not None:
                lines = text[first:last].count(b"\n") - expanded.count("\n")
                text = text[:first] + expanded.encode() + b"\n" * lines + text[last:]
                changed = True
        if not changed:
            break
        source = text.decode()
    return source, unit


def _walk(own: list[Cursor]) -> Iterator[Cursor]:
    for cursor in own:
        if cursor.kind.name == "FUNCTION_DECL":
            yield from cursor.walk_preorder()


def _find_uses(cursor: Cursor, uses: dict[tuple[int, int], Cursor]) -> list[tuple[int, int]]:
    """Return the uses of macros that a cursor lies in, or that its pieces come from."""
    start, end = find_range(cursor)
    is_begun = cursor.kind.is_statement() or cursor.kind.is_declaration()  # a macro may begin it, as a loop
    return [use for use in uses if use[0] <= start < use[1] and (is_begun or end <= use[1] or end <= start)]


def _find_definition(name: str, before: int, own: list[Cursor], text: bytes) -> str | None:
    """Return the text of the last definition of a macro before a place, without `#define`; None if it is not ours."""
    found = None
    for cursor in own:
        if cursor.kind.name == "MACRO_DEFINITION" and cursor.spelling == name and find_range(cursor)[0] < before:
            first, last = find_range(cursor)
            found = text[first:last].decode()
    return found


def _expand(definition: str, use: str) -> str | None:
    """Return what a macro stands for; None if it makes text of an argument.

    >>> _expand("TWICE(a) ((a) * 2)", "TWICE(x[1])")
    '((x[1]) * 2)'
    """
    from helpers.devices.kernel_text import closing_bracket, without_comments

    head = re.match(r"\w+(\(([^)]*)\))?", definition)
    if head is None:
        return None
    body = without_comments(definition[head.end() :].replace("\\\n", " ")).strip()
    if head[1] is not None:
        names = [name.strip() for name in head[2].split(",") if name.strip()]
        opening = use.index("(")
        given = _split_arguments(use[opening + 1 : closing_bracket(use, opening)])
        if len(given) != max(len(names), 1) or "..." in names or re.search(r"(?<!#)#(?!#)", body):
            return None
        values = dict(zip(names, given, strict=False))
        body = re.sub(r"\b[A-Za-z_]\w*\b", lambda word: values.get(word[0], word[0]), body)
    elif "#" in body:
        return None
    return re.sub(r"\s*##\s*", "", body)


def _split_arguments(text: str) -> list[str]:
    """Split at the commas that stand in no bracket.

    >>> _split_arguments("a, f(b, c)")
    ['a', 'f(b, c)']
    """
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]
