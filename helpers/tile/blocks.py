"""Stage 4: choose how much of a result one work-item of this device computes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from helpers.devices import opencl
from helpers.errors import WorkshopError
from helpers.tile.loops import Flat, Nest
from helpers.tile.ranges import Affine, Array, Place

if TYPE_CHECKING:
    import pyopencl as cl

WIDEST = 16  # elements of the longest OpenCL vector


@dataclass(frozen=True)
class Block:
    """The elements of a result that one work-item computes and keeps in its registers.

    With panels it has rows and columns: an input is copied so that the columns of a block lie side by side in memory.
    Without, it is a strip of neighbors, or one element.
    """

    text: str  # what was chosen and why
    column: str  # the output index that runs along the vectors
    columns: int = 1
    row: str = ""  # the output index that runs down the block, on which the panels do not depend
    rows: int = 1
    panels: Place | None = None  # where a point reads the copy: panel, the input's other dimensions, first column

    @property
    def width(self) -> int:
        """The number of elements of one OpenCL vector."""
        return min(self.columns, WIDEST)


@dataclass(frozen=True)
class Tiles:
    """How the work is cut for a device."""

    device: str
    blocks: tuple[Block, ...]  # for each statement what one work-item computes
    group: tuple[int, int]  # how many blocks with panels a work-group computes, down and along

    def __str__(self) -> str:
        return "\n".join([f"on {self.device}", *(block.text for block in self.blocks)])

    __repr__ = __str__


def choose_tile(flat: Flat, device: cl.Device, tile: tuple[int, int] | None = None) -> Tiles:
    """Choose for each statement the block that a work-item keeps in registers.

    A block pays where a value, once loaded, serves several elements: one input must run along an output index that the
    other does not have, and the other way round. Elsewhere a work-item of a CPU computes a strip of neighbors, if they
    are neighbors in the inputs too, and in all other cases, and on a GPU, one element.

    Args:
        flat: what `flatten` returned.
        device: the device that will run it; its vectors and its kind decide the size of the block.
        tile: rows and columns of the block instead; (1, 1) for one element a work-item everywhere.

    Raises:
        WorkshopError: a tile that cannot be; rows: 1 to 64; columns: 1, 2, 4, 8, or a multiple of 16 up to 128.
    """
    pair = isinstance(tile, tuple | list) and len(tile) == 2
    if tile is not None and not (pair and tile[0] in range(1, 65) and tile[1] in (1, 2, 4, 8, *range(16, 129, 16))):
        raise WorkshopError(
            f"A tile of {tile!r} cannot be.",
            "A block of registers has 1 to 64 rows; its columns are 1, 2, 4, 8, or a multiple of 16 up to 128.",
            "Write rows and columns, for example tile=(6, 16), or leave it to the device.",
        )
    rows, columns = tile or default_tile(device)
    cpu = opencl.kind(device) == "cpu"
    blocks = []
    for number, nest in enumerate(flat.parts, 1):
        strip = (columns if tile else 4 * columns) if cpu and tile != (1, 1) else 1
        chosen = _choose_block(nest, number, rows, columns, fit=tile is None)
        blocks.append(chosen if isinstance(chosen, Block) else _choose_strip(nest, strip, chosen))
    return Tiles(opencl.name(device), tuple(blocks), (1, 1) if cpu else (8, 8))  # a GPU wants many side by side


def default_tile(device: cl.Device) -> tuple[int, int]:
    """Return rows and columns whose sums fill a good half of the device's registers; what is loaded needs the rest.

    A CPU whose vectors hold 16 floats (AVX-512) has 32 vector registers: 8 rows of 2 vectors are 16 of them. One whose
    vectors hold 8 or 4 (AVX, SSE, NEON) has 16 or more: 6 rows of 2 vectors are 12. A GPU's work-item has registers for
    single numbers: 4 x 4.
    """
    if opencl.kind(device) != "cpu":
        return 4, 4
    width = min(max(device.native_vector_width_float, 4), 16)
    return (8 if width == 16 else 6), 2 * width


def _choose_block(nest: Nest, number: int, rows: int, columns: int, fit: bool) -> Block | str:
    """Return the best block with panels, or why there is none."""
    if not nest.statement.aggregate:
        return "element-wise"
    if (rows, columns) == (1, 1):
        return "as asked"
    if nest.statement.aggregate in "*><" and not nest.is_full:
        return "its points are too irregular"

    def preference(candidate: tuple[Place, Place, str, str]) -> tuple:
        """Neighbors along the columns; many rows, half as good if guarded, and close together in memory."""
        _, other, row, column = candidate
        filled = min(nest.outputs[row], rows) / (2 if nest.has_guard(row) else 1)
        return nest.output.offset.terms[column] == 1, filled, -abs(other.offset.terms.get(row, 0))

    best = max(_find_candidates(nest), key=preference, default=None)
    if not best:
        return "no value serves several elements"
    place, _, row, column = best
    size, wide = nest.outputs[row], nest.outputs[column]
    if fit:  # as many rows in every block, and no more columns than there are
        rows = math.ceil(size / math.ceil(size / rows))
        columns = min(columns, 1 << (wide - 1).bit_length() if wide <= WIDEST else -(-wide // WIDEST) * WIDEST)
    along = place.indices.index(Affine({column: 1}))
    shape, indices = list(place.array.shape), list(place.indices)
    del shape[along], indices[along]
    array = Array((-(-wide // columns), *shape, columns))
    panels = Place(f"_panels_{number}", array, (Affine({column: Fraction(1, columns)}), *indices, Affine()), place.at)
    what = f"{rows} ({row}) x {columns} ({column}) elements a work-item"
    text = f"{nest.statement.name}: {what}; {place.tensor} in panels of {columns} columns"
    return Block(text, column, columns, row, rows, panels)


def _find_candidates(nest: Nest) -> Iterator[tuple[Place, Place, str, str]]:
    """Yield every input that could be copied into panels, the other one, and the output indices of rows and columns."""
    if len(nest.inputs) < 2 or not nest.loops:
        return
    several = [name for name, size in nest.outputs.items() if size > 1]
    for mine, other in (nest.inputs, nest.inputs[::-1]):
        for column in several:
            alone = [e for e in mine.indices if column in e.terms] == [Affine({column: 1})]
            if alone and column not in other.names and not nest.has_guard(column):
                for row in several:
                    if row in other.names - mine.names:
                        yield mine, other, row, column


def _choose_strip(nest: Nest, columns: int, why: str) -> Block:
    """Return a strip of neighbors, where they are neighbors in the inputs too, otherwise one element."""
    column, size = list(nest.outputs.items())[-1]
    factors = {place.offset.terms.get(column, 0) for place in nest.inputs}
    regular = nest.statement.aggregate and factors in ({1}, {0, 1}) and not nest.has_guard(column)
    fitting = 1 << (size.bit_length() - 1) if size < WIDEST else size - size % WIDEST
    columns = min(columns, 64, fitting) if regular else 1
    what = f"{columns} ({column}) elements" if columns > 1 else "one element"
    return Block(f"{nest.statement.name}: {what} a work-item ({why})", column, columns)
