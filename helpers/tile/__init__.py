"""Compile Tile, the language in which PlaidML wrote mathematics, to OpenCL C (lesson 03).

A Tile function says what each element of a result is, and nothing of loops, work-items or memory:

    function (A[M, L], B[L, N]) -> (C) { C[i, j: M, N] = +(A[i, k] * B[k, j]); }

Five stages turn it into kernels, a file each, and each returns something that can be printed:

    parse        text                   -> a tree of statements
    infer        the tree and shapes    -> every size, and the range of every index
    flatten      ranges                 -> loops, guards, and every access as an offset into flat memory
    choose_tile  loops and a device     -> which block of the result one work-item computes
    emit         loops and blocks       -> OpenCL C

`Function` runs all five and the kernels. The rules of the language are those of PlaidML 0.x: a contraction combines the
values at all *valid points*. A point is one whole number for each index; it is valid if no access leaves its tensor and
if every constraint `e < size` holds, which always means 0 <= e < size. An element that no valid point reaches is 0.
Maximum and minimum pass over NaN, as OpenCL's fmax and fmin do. All tensors are of float32 (PlaidML had more types),
and on the left an index has no factor that would need a division, as `O[2 * i: N]` does (PlaidML solved that, too).
"""

from helpers.tile.blocks import WIDEST, Block, Tiles, choose_tile, default_tile
from helpers.tile.function import Function, Stages, measure_functions
from helpers.tile.kernels import Code, emit
from helpers.tile.loops import Flat, flatten
from helpers.tile.ranges import Ranges, infer
from helpers.tile.syntax import Program, TileError, parse

__all__ = [
    "WIDEST",
    "Block",
    "Code",
    "Flat",
    "Function",
    "Program",
    "Ranges",
    "Stages",
    "TileError",
    "Tiles",
    "choose_tile",
    "default_tile",
    "emit",
    "flatten",
    "infer",
    "measure_functions",
    "parse",
]
