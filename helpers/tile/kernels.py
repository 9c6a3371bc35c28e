"""Stage 5: write the kernels in OpenCL C, with the sizes as numbers and the names of the Tile source."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from helpers.tile.blocks import Block, Tiles
from helpers.tile.loops import Flat, Guard, Nest
from helpers.tile.ranges import Affine, Array, Place
from helpers.tile.syntax import COMPARISONS, Node

GROUP = 64  # work-items of a work-group where each computes one element

COMBINE = {  # how values become one: the variable, what it is before the first value, and the step for each value
    "+": ("sum", "0", "{0} += {1};"),
    "*": ("product", "1", "{0} *= {1};"),
    ">": ("largest", "-INFINITY", "{0} = fmax({0}, {1});"),
    "<": ("smallest", "INFINITY", "{0} = fmin({0}, {1});"),
    "=": ("value", "0", "{0} = {1};"),
}
NAMES = {"max": "fmax", "min": "fmin", "abs": "fabs"}  # of functions that C calls otherwise
STORE = """\
// Write the first `count` values of a vector, `stride` elements apart.
void store{0}(float{0} values, __global float *to, int count, int stride) {{
    if (count >= {0} && stride == 1) {{
        vstore{0}(values, 0, to);
    }} else {{
        float each[{0}];
        vstore{0}(values, 0, each);
        for (int c = 0; c < min(count, {0}); c++) to[c * stride] = each[c];
    }}
}}
"""


@dataclass(frozen=True)
class Kernel:
    """One kernel: its name, its OpenCL C, the tensors it takes, and how many work-items run it."""

    name: str
    source: str
    arguments: tuple[str, ...]
    global_size: tuple[int, ...]
    local_size: tuple[int, ...]


@dataclass(frozen=True)
class Code:
    """The kernels of a function."""

    helpers: tuple[str, ...]  # OpenCL C functions that the kernels call
    kernels: tuple[Kernel, ...]  # in their order, one to three for each statement
    arrays: dict[str, Array]  # every tensor that they take, panels too

    def __str__(self) -> str:
        return "\n".join([*self.helpers, *(kernel.source for kernel in self.kernels)])

    __repr__ = __str__


def emit(flat: Flat, tiles: Tiles) -> Code:
    """Write the kernels of every statement: one for its blocks, before it one for their panels, after it the edge's."""
    arrays, kernels = dict(flat.arrays), []
    for number, (nest, block) in enumerate(zip(flat.parts, tiles.blocks, strict=True), 1):
        name, size = f"statement_{number}", nest.outputs[block.column]
        whole = size if block.panels else size - size % block.columns
        if block.panels:
            arrays[block.panels.tensor] = block.panels.array
            kernels.append(_emit_panels(f"{name}_panels", nest, block, block.panels))
        kernels.append(_emit_statement(name, nest, block, range(whole), tiles.group))
        if whole < size:
            kernels.append(_emit_statement(f"{name}_edge", nest, Block("", block.column), range(whole, size), (1, 1)))
    text = "".join(kernel.source for kernel in kernels)
    helpers = tuple(STORE.format(width) for width in dict.fromkeys(re.findall(r"\bstore(\d+)\(", text)))
    return Code(helpers, tuple(kernels), arrays)


def spell(name: str) -> str:
    """Return a name as OpenCL C has it.

    A name of the source that is longer than two letters gets a _ at its end: so it is none of the words of C or OpenCL,
    of which only `do` and `if` are that short, and none of the kernels' own names. Those lose the _ at their beginning.
    """
    if name.startswith("_"):
        return name[1:]
    return name if re.fullmatch(r"[A-Za-z]{1,2}\d*", name) and name not in ("do", "if") else name + "_"


class _Lines(list):
    """Lines of C: what a line opens with { at its end stays open until it is closed."""

    def close(self) -> None:
        """Close all that is open."""
        opened = sum(line.endswith("{") for line in self)
        for _ in range(opened - self.count("}")):
            self.append("}")

    def rows(self, block: Block) -> None:
        """Open a loop over the rows of a block."""
        self.extend(["#pragma unroll", f"for (int slot = 0; slot < {block.rows}; slot++) {{"])

    def guards(self, pending: list[Guard], known: set[str]) -> None:
        """Ask the guards that depend on known names alone, as far out as that can be."""
        ready = [guard for guard in pending if guard.expression.terms.keys() <= known]
        if ready:
            self.append(f"if ({' && '.join(guard.text(spell) for guard in ready)}) {{")
        pending[:] = [guard for guard in pending if guard not in ready]

    def kernel(self, name: str, about: str, reads: Sequence[Place], writes: Place, sizes: Sequence) -> Kernel:
        """Return the kernel with these lines; the sizes are, for each dimension, of all items and of a group."""
        self.close()
        tensors = dict.fromkeys(place.tensor for place in reads)
        parameters = [f"__global const float *{spell(tensor)}" for tensor in tensors]
        parameters.append(f"__global float *{spell(writes.tensor)}")
        text, depth = f"{about}\n__kernel void {name}({', '.join(parameters)}) {{\n", 1
        for line in [*self, "}"]:
            if line == "}":
                depth -= 1
            text += "    " * depth + line + "\n"
            if line.endswith("{"):
                depth += 1
        whole = tuple(math.ceil(count / group) * group for count, group in sizes)
        return Kernel(name, text, (*tensors, writes.tensor), whole, tuple(group for _, group in sizes))


def _emit_panels(name: str, nest: Nest, block: Block, panels: Place) -> Kernel:
    """Write the kernel that copies a tensor into panels, in which the columns of a block lie side by side.

    It fills the last panel up with zeros.
    """
    place = next(place for place in nest.inputs if place.at == panels.at)
    along, columns = place.indices.index(Affine({block.column: 1})), block.columns
    size, stride = place.array.shape[along], place.array.strides[along]
    rest = place.array.size // size
    start = f"{size} * rest" if stride == 1 else f"{stride * size} * (rest / {stride}) + rest % {stride}"
    step = f"{stride} * " if stride > 1 else ""
    lines = _Lines(
        [
            "const int rest = get_global_id(0);  // the place in all other dimensions",
            "const int panel = get_global_id(1);",
            f"if (rest >= {rest}) return;",
            f"for (int column = 0; column < {columns}; column++) {{",
            f"const int from = {columns} * panel + column;",
            f"{spell(panels.tensor)}[{columns} * ({rest} * panel + rest) + column]"
            f" = from < {size} ? {spell(place.tensor)}[{start} + {step}from] : 0;",
        ]
    )
    about = f"// {place.tensor} in panels of {columns} values of {block.column}, which lie side by side."
    return lines.kernel(name, about, [place], panels, [(rest, GROUP), (panels.array.shape[0], 1)])


def _emit_statement(name: str, nest: Nest, block: Block, columns: range, group: tuple[int, int]) -> Kernel:
    """Write the kernel of a statement: one work-item computes a block, all of them the given columns of the output."""
    panels = {block.panels.at: block.panels} if block.panels else {}
    inputs = [panels.get(place.at, place) for place in nest.inputs]
    lines = _Lines()
    sizes = _emit_place(lines, nest, block, columns, group)
    if nest.statement.aggregate:
        _emit_store(lines, nest, block, _emit_loops(lines, nest, block, inputs))
    else:
        value = _render(nest.statement.value, {place.at: _spell_place(place) for place in inputs})
        lines.append(f"{_spell_place(nest.output)} = {value};")
    rows = f"{block.rows} ({block.row}) x " if block.row else ""
    what = f"{rows}{block.columns} ({block.column}) elements" if block.row or block.columns > 1 else "one element"
    about = f"// {nest.statement.text}\n// One work-item computes {what} of {nest.output.tensor}."
    return lines.kernel(name, about, inputs, nest.output, sizes)


def _emit_place(lines: _Lines, nest: Nest, block: Block, columns: range, group: tuple[int, int]) -> list:
    """Write which elements a work-item computes; return, for each dimension, how many items and how many of a group."""
    column, limits, fitting = spell(block.column), [], 1 << (len(columns) - 1).bit_length()
    sizes = [(math.ceil(len(columns) / block.columns), 1 if block.columns > 1 else min(GROUP, fitting))]
    if block.row:
        sizes = [(math.ceil(nest.outputs[block.row] / block.rows), group[0]), (sizes[0][0], group[1])]
        lines.append(f"const int first = {block.rows} * get_global_id(0);")
        limits = [f"first >= {nest.outputs[block.row]}"]
    item = f"get_global_id({len(sizes) - 1})"
    item = f"{block.columns} * {item}" if block.columns > 1 else item
    lines.append(
        f"const int {column} = {columns.start} + {item};" if columns.start else f"const int {column} = {item};"
    )
    limits = [*limits, f"{column} >= {columns.stop}"]
    uneven = [limit for limit, (items, grouped) in zip(limits, sizes, strict=True) if items % grouped]
    if uneven:
        lines.append(f"if ({' || '.join(uneven)}) return;")
    others = {name: size for name, size in nest.outputs.items() if name not in (block.row, block.column)}
    number, passed, total = f"get_global_id({len(sizes)})", 1, math.prod(others.values())
    if len(others) > 1:
        lines.append(f"const int others = {number};")
        number = "others"
    for name, size in reversed(others.items()):
        value = f"{number} / {passed}" if passed > 1 else number
        passed *= size
        if passed < total:
            value += f" % {size}"
        lines.append(f"const int {spell(name)} = {value};")
    return [*sizes, (total, 1)]


def _emit_loops(lines: _Lines, nest: Nest, block: Block, inputs: Sequence[Place]) -> list[str]:
    """Write the loops that combine values, and return what they make of the elements."""
    statement = nest.statement
    word, start, step = COMBINE[statement.aggregate]
    vector = f"float{block.width}" if block.width > 1 else "float"
    names = _emit_declaration(lines, block, vector, word, start)
    found = statement.aggregate in "*><" and not nest.is_full
    if found:
        lines.append("int found = 0;  // whether a valid point reaches this place")
    pending, known = [*nest.guards], {*nest.outputs} - {block.row}
    lines.guards(pending, known)
    for loop, r in nest.loops.items():
        lines.append(f"for (int {spell(loop)} = {r.start}; {spell(loop)} < {r.stop}; {spell(loop)}++) {{")
        known.add(loop)
        lines.guards(pending, known)
    reads = [{place.at: _spell_place(place, block, n) for place in inputs} for n in range(len(names))]
    if block.row:
        reads = _emit_load(lines, nest, block, reads, inputs, vector)
        lines.guards(pending, known | {block.row})
    for name, texts in zip(names, reads, strict=True):
        lines.append(step.format(name, _render(statement.value, texts)))
    if found:
        lines.append("found = 1;")
    lines.close()
    zero = f"({vector})(0)" if block.width > 1 else "0"
    return [f"found ? {name} : {zero}" if found else name for name in names]


def _emit_declaration(lines: _Lines, block: Block, vector: str, word: str, start: str) -> list[str]:
    """Declare a variable for each vector of a block, or one for each row too, and return how they are read."""
    count = block.columns // block.width
    names = [f"{word}{n}" for n in range(count)] if count > 1 else [word]
    if not block.row:
        lines.append(f"{vector} {', '.join(f'{name} = {start}' for name in names)};")
        return names
    lines.append(f"{vector} {', '.join(f'{name}[{block.rows}]' for name in names)};  // in registers")
    lines.rows(block)
    lines.extend(f"{name}[slot] = {start};" for name in names)
    lines.close()
    return [f"{name}[slot]" for name in names]


def _emit_load(
    lines: _Lines, nest: Nest, block: Block, reads: list[dict[int, str]], inputs: Sequence[Place], vector: str
) -> list[dict[int, str]]:
    """Load what serves every row, then open the rows and load what serves every column; return what is then read."""
    panels = block.panels
    assert panels  # as a block with rows has them
    once = next(place for place in inputs if place is not panels)
    # What is the same in every turn of the loops is a pointer: the compiler then keeps one address for each row.
    fixed = Affine({name: n for name, n in once.offset.terms.items() if name in nest.outputs})
    address, inner = fixed.text(spell), (once.offset - fixed).text(spell)
    row, last = spell(block.row), nest.outputs[block.row] - 1
    lines.extend(f"const {vector} column{n} = {texts[panels.at]};" for n, texts in enumerate(reads))
    lines.rows(block)
    lines.append(f"const int {row} = min(first + slot, {last});  // beyond the edge the last one again")
    value = f"({spell(once.tensor)} + {address})[{inner}]"
    return [{once.at: value, panels.at: f"column{n}"} for n in range(len(reads))]


def _spell_place(place: Place, block: Block | None = None, n: int = 0) -> str:
    """Return the element at a place, or the block's vector number `n` where the place runs along its columns."""
    tensor, offset = spell(place.tensor), place.offset
    if not block or block.width == 1 or block.column not in offset.terms:
        return f"{tensor}[{offset.text(spell)}]"
    return f"vload{block.width}(0, {tensor} + {(offset + Affine({}, n * block.width)).text(spell)})"


def _emit_store(lines: _Lines, nest: Nest, block: Block, values: Sequence[str]) -> None:
    """Write the elements to the output."""
    offset, width, size = nest.output.offset, block.width, nest.outputs[block.column]
    stride = offset.terms.get(block.column, 0)
    if block.row:
        lines.rows(block)
        lines.append(f"if (first + slot < {nest.outputs[block.row]}) {{")
        lines.append(f"const int {spell(block.row)} = first + slot;")
    for n, value in enumerate(values):
        to = f"{spell(nest.output.tensor)} + {(offset + Affine({}, n * width * stride)).text(spell)}"
        if width == 1:
            lines.append(f"{_spell_place(nest.output)} = {value};")
        elif stride == 1 and (not block.row or size % block.columns == 0):
            lines.append(f"vstore{width}({value}, 0, {to});")
        else:
            left = Affine({block.column: -1}, size - n * width).text(spell)
            lines.append(f"store{width}({value}, {to}, {left}, {stride});")


def _render(node: Node, reads: Mapping[int, str]) -> str:
    """Return an expression in C, with what is read for each access."""
    if node.at in reads:
        return reads[node.at]
    if node.kind == "number":
        return f"{float(node.text)!r}f"
    texts = [_render(part, reads) for part in node.parts]
    if node.kind == "call":
        return f"{NAMES.get(node.text, node.text)}({', '.join(texts)})"
    texts = [f"({t})" if part.kind == "operator" else t for t, part in zip(texts, node.parts, strict=True)]
    if node.text == "?":  # C asks whole numbers alone
        return f"{texts[0]} != 0 ? {texts[1]} : {texts[2]}"
    text = f" {node.text} ".join(texts) if len(texts) == 2 else f"-{texts[0]}"
    return f"(float)({text})" if node.text in COMPARISONS else text
