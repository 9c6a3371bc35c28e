"""What an OpenCL kernel writes while it is recorded: the layout of its log, and the OpenCL C that writes it.

`opencl_rewriter` puts this code before the learner's kernel, and `opencl_recorder` reads the log.

A recorded kernel has no barriers. It is launched once for each barrier that its work-items meet, and once more. In
launch n, each work-item starts anew and stops at its n-th barrier. Up to barrier n - 1 it repeats what it did: a read
gives the value that is kept from the launch before, and a write goes to a spare place. Local memory is a part of the
log, so it lasts from launch to launch.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from helpers.judge.trace import (
    ARRAY,
    ATOMIC,
    GLOBAL_FENCE,
    INSIDE,
    LOCAL_FENCE,
    MAX_ARRAYS,
    MORE,
    PART,
    READ,
    SITE,
    WRITE,
)

MAX_TOUCHES = 128  # of one work-item; what comes after is counted, not listed
MAX_SITES = 8  # barriers of one work-item that are listed
MAX_STEPS = 1 << 15  # rounds of loops of one work-item: under 2 s, when Windows resets a GPU, and llvmpipe's own 65,535
LINE = 32  # ints: every part of the log begins with a multiple, for the longest vector needs such an address
# The log begins with: the barrier at which work-items stop, the most rounds of loops, where the rows begin, where local
# memory does, and its ints for a work-group, where the kept values do, and their ints for a work-item (0: none).
STOP, STEPS, ROWS, LOCALS, LOCAL_INTS, VALUES, VALUE_INTS = range(7)
HEAD = LINE
# Then the state of each work-item: where it stopped, rounds of loops, the line of a loop that was left, and whether
# there was no room for another value.
STATE = 4
STOPPED, ROUNDS, ENDLESS, FULL = range(STATE)
# Then its row: counts, the first barriers that it met, its ids in three dimensions, its arrays (address in two ints,
# bytes, bytes of an element, whether it is constant, where it begins in local memory), then its touches (array and
# kind, index in two ints, barriers met before, the part of the element).
COUNTS = ("global_accesses", "barriers", "fences", "touches", "met", "left", "kept", "spares", "pending")
SITES = len(COUNTS)
IDS = SITES + MAX_SITES
STACK, DEPTH = IDS + 9, 4  # atomic functions whose result is awaited: one may be an argument of another
ARRAYS, ARRAY_INTS = STACK + DEPTH, 6
ADDRESS, BYTES, ELEMENT, CONSTANT, START = 0, 2, 3, 4, 5
TOUCHES = ARRAYS + ARRAY_INTS * MAX_ARRAYS
TOUCH = 5  # the first int of a touch has the bits of `trace`
SPARES = (TOUCHES + TOUCH * MAX_TOUCHES + LINE - 1) // LINE * LINE
SPARE, TURNS = 128, 4  # ints of a spare place, for what is outside or repeated, and how many are used in turn
ROW = SPARES + SPARE * TURNS
FAR = 1 << 20  # elements: no array of a record is as long
BEHIND = 128  # bytes behind a given array, so that the shortest has room for a vector


def _column(count: str) -> str:
    return f"row[{COUNTS.index(count)}]"


RECORDER = f"""
__global int *trace_row(__global int *log) {{
    size_t item = ((get_global_id(2) - get_global_offset(2)) * get_global_size(1)
                 + (get_global_id(1) - get_global_offset(1))) * get_global_size(0)
                 + (get_global_id(0) - get_global_offset(0));
    return log + log[{ROWS}] + item * {ROW};
}}
__global int *trace_state(__global int *log) {{
    return log + {HEAD} + (trace_row(log) - log - log[{ROWS}]) / {ROW} * {STATE};
}}
void trace_start(__global int *log) {{
    __global int *row = trace_row(log), *state = trace_state(log), *ids = row + {IDS};
    {" ".join(f"row[{column}] = 0;" for column in range(SITES))}
    {" ".join(f"state[{column}] = 0;" for column in range(STATE))}
    {" ".join(f"ids[{d}] = get_global_id({d});" for d in range(3))}
    {" ".join(f"ids[{d + 3}] = get_local_id({d});" for d in range(3))}
    {" ".join(f"ids[{d + 6}] = get_group_id({d});" for d in range(3))}
}}
void trace_array(__global int *log, int number, ulong address, int element) {{
    __global int *array = trace_row(log) + {ARRAYS} + {ARRAY_INTS} * number;
    array[{ADDRESS}] = (int)(address & 0xffffffff);
    array[{ADDRESS + 1}] = (int)(address >> 32);
    array[{ELEMENT}] = element;
}}
__global char *trace_local(__global int *log, int start) {{
    size_t group = (get_group_id(2) * get_num_groups(1) + get_group_id(1)) * get_num_groups(0) + get_group_id(0);
    return (__global char *)(log + log[{LOCALS}] + group * log[{LOCAL_INTS}]) + start;
}}
int trace_is_live(__global int *log) {{
    __global int *row = trace_row(log);
    return !{_column("left")} && {_column("met")} == log[{STOP}] - 1;
}}
int trace_meet(__global int *log, int site, int is_barrier, int flags) {{
    __global int *row = trace_row(log), *state = trace_state(log);
    if ({_column("left")}) {{
        return 1;
    }}
    if (is_barrier) {{
        if ({_column("barriers")} < {MAX_SITES}) {{
            row[{SITES} + {_column("barriers")}] = site;
        }}
        {_column("barriers")}++;
        {_column("fences")} += (flags & CLK_LOCAL_MEM_FENCE ? {LOCAL_FENCE} : 0)
                             + (flags & CLK_GLOBAL_MEM_FENCE ? {GLOBAL_FENCE} : 0);
    }}
    if (++{_column("met")} < log[{STOP}]) {{
        return 0;
    }}
    state[{STOPPED}] = site;
    {_column("left")} = 1;
    return 1;
}}
int trace_step(__global int *log, int line) {{
    __global int *row = trace_row(log), *state = trace_state(log);
    if ({_column("left")}) {{
        return 1;
    }}
    if (state[{ROUNDS}] < log[{STEPS}]) {{
        state[{ROUNDS}]++;
        return 0;
    }}
    state[{ENDLESS}] = line;
    {_column("left")} = 1;
    return 1;
}}
void trace_list(__global int *row, int what, long index, int part) {{
    int n = {_column("touches")}++;
    if (n < {MAX_TOUCHES}) {{
        __global int *touch = row + {TOUCHES} + {TOUCH} * n;
        touch[0] = what;
        touch[1] = (int)(index & 0xffffffff);
        touch[2] = (int)(index >> 32);
        touch[3] = {_column("fences")};
        touch[4] = part;
    }}
}}
ulong trace_base(__global int *array) {{
    return (ulong)(uint)array[{ADDRESS}] | (ulong)(uint)array[{ADDRESS + 1}] << 32;
}}
/* Lists an access of `bytes` bytes; returns its array, with where in it the access begins, or 0 if it is outside. */
__global int *trace_find(__global int *row, int what, ulong pointer, int bytes, long *first) {{
    int before = -1, after = -1;
    ulong from_start = 0, to_start = 0;
    for (int k = 0; k < ARRAY_COUNT; k++) {{
        __global int *array = row + {ARRAYS} + {ARRAY_INTS} * k;
        ulong base = trace_base(array);
        if (base <= pointer && (before < 0 || pointer - base < from_start)) {{
            before = k;
            from_start = pointer - base;
        }} else if (base > pointer && (after < 0 || base - pointer < to_start)) {{
            after = k;
            to_start = base - pointer;
        }}
    }}
    int nearest = before < 0 ? after : before;
    if (before >= 0 && after >= 0) {{
        ulong end = (row + {ARRAYS} + {ARRAY_INTS} * before)[{BYTES}];
        nearest = from_start <= end || from_start - end <= to_start ? before : after;
    }}
    __global int *array = row + {ARRAYS} + {ARRAY_INTS} * nearest;
    long start = (long)(pointer - trace_base(array)), size = array[{BYTES}], element = array[{ELEMENT}];
    {_column("global_accesses")} += nearest < GIVEN_COUNT;
    long last = start + bytes - 1;
    long from = start >= 0 ? start / element : -((element - 1 - start) / element);
    long to = last >= 0 ? last / element : -((element - 1 - last) / element);
    int width = array[{ELEMENT}], part = 0;  // in ints: with a long Mesa 22.3 found no part
    if ((int)(to - from) == 0 && bytes < width && width < {PART}) {{
        part = (int)start - (int)from * width + {PART} * bytes;
    }}
    for (int more = 0; more <= (int)(to - from); more++) {{  // with a long Mesa 22.3 ended the kernel's own loops
        long k = from + more;
        int exists = 0 <= k && (k + 1) * element <= size;
        trace_list(row, {ARRAY} * nearest + what + (exists ? {INSIDE} : 0) + (more ? {MORE} : 0), k, part);
    }}
    *first = start;
    return 0 <= start && start + bytes <= size ? array : 0;
}}
void trace_copy(__global char *to, __global char *from, int bytes) {{
    if (bytes == 4 && !((ulong)from & 3)) {{
        *(__global int *)to = *(__global int *)from;
    }} else if (bytes == 8 && !((ulong)from & 7)) {{
        *(__global long *)to = *(__global long *)from;
    }} else if (bytes == 16 && !((ulong)from & 15)) {{
        *(__global int4 *)to = *(__global int4 *)from;
    }} else {{
        for (int k = 0; k < bytes; k++) {{
            to[k] = from[k];
        }}
    }}
}}
__global char *trace_spare(__global int *row) {{
    {_column("spares")} = ({_column("spares")} + 1) % {TURNS};
    return (__global char *)(row + {SPARES} + {SPARE} * {_column("spares")});
}}
/* Returns room for a value of the work-item, the same in each launch, or 0 if there is none. */
__global char *trace_keep(__global int *log, __global int *row, int bytes) {{
    int align = max(bytes & -bytes, 4) / 4;
    align = min(align, {LINE});
    int start = ({_column("kept")} + align - 1) / align * align, end = start + (bytes + 3) / 4;
    if (end > log[{VALUE_INTS}]) {{
        trace_state(log)[{FULL}] = 1;
        {_column("left")} = 1;
        return 0;
    }}
    {_column("kept")} = end;
    size_t item = (row - log - log[{ROWS}]) / {ROW};
    return (__global char *)(log + log[{VALUES}] + item * log[{VALUE_INTS}] + start);
}}
/* Lists an access, and returns the address that it uses instead. */
__global char *trace_at(__global int *log, int what, __global char *pointer, int size, int count) {{
    __global int *row = trace_row(log);
    int bytes = size * count, reads = what & {READ}, is_atomic = what & {ATOMIC};
    __global char *spare = trace_spare(row), *kept = 0;
    if ({_column("left")}) {{
        return spare;
    }}
    long first;
    __global int *array = trace_find(row, what, (ulong)pointer, bytes, &first);
    int keeps = array && reads && log[{VALUE_INTS}] && !array[{CONSTANT}];
    if (keeps) {{
        kept = trace_keep(log, row, is_atomic ? 8 : bytes);
    }}
    if (is_atomic && {_column("pending")} < {DEPTH}) {{
        row[{STACK} + {_column("pending")}++] = kept ? (int)((__global int *)kept - log - log[{VALUES}]) : -1;
    }}
    if (bytes > {4 * SPARE}) {{  // a large structure
        trace_state(log)[{FULL}] = 1;
        return pointer;
    }}
    if (!array || (keeps && !kept)) {{
        for (int k = 0; k < bytes; k++) {{
            spare[k] = 0;
        }}
        return spare;
    }}
    int is_live = {_column("met")} == log[{STOP}] - 1;
    if (is_live) {{
        if (kept && !is_atomic) {{
            trace_copy(kept, pointer, bytes);
        }}
        return kept && !(what & {WRITE}) ? kept : pointer;
    }}
    if (!(what & {WRITE})) {{
        return kept ? kept : pointer;
    }}
    if (kept) {{
        trace_copy(spare, kept, bytes);
    }}
    return spare;
}}
/* Keeps what an atomic function returned. */
ulong trace_result(__global int *log, ulong value) {{
    __global int *row = trace_row(log);
    if ({_column("left")} || {_column("pending")} == 0) {{
        return value;
    }}
    int place = row[{STACK} + --{_column("pending")}];
    if (place >= 0 && trace_is_live(log)) {{
        __global int *kept = log + log[{VALUES}] + place;
        kept[0] = (int)(value & 0xffffffff);
        kept[1] = (int)(value >> 32);
    }}
    return value;
}}
__constant char *trace_constant(__global int *log, int what, __constant char *pointer, int size, int count) {{
    __global int *row = trace_row(log);
    if ({_column("left")}) {{
        return pointer;
    }}
    long first;
    return trace_find(row, what, (ulong)pointer, size * count, &first) ? pointer : pointer - first;
}}
#undef barrier
#undef work_group_barrier
#undef wait_group_events
#undef async_work_group_copy
#undef local
#define barrier(flags) (flags)
#define work_group_barrier(flags, ...) (flags)
#define wait_group_events(count, events) 0
#define __local __global
#define local __global
"""


def name_far_outside(listed: np.ndarray, rows: np.ndarray, arrays: Sequence[str], sites: Sequence[str]) -> None:
    """Give accesses far outside all arrays to the array that the kernel's text names, not to the nearest one.

    Args:
        listed: the accesses, changed in place; int32 of shape (accesses, 6): work-item, then a touch of the log.
        rows: of the work-items, int32 of shape (work-items, ROW).
        arrays: their names in the kernel.
        sites: the text of each access, by its number.
    """
    bits = 0xFFFFFFFF
    for place in np.flatnonzero(listed[:, 1] & INSIDE == 0):
        item, what, low, high = map(int, listed[place, :4])
        index, nearest = (high << 32) + (low & bits), what % SITE // ARRAY
        text = re.match(r"\s*(\w+)\s*\[", sites[what // SITE])
        if abs(index) < FAR or text is None or text[1] not in arrays:
            continue
        named = arrays.index(text[1])
        table = rows[item, ARRAYS:TOUCHES].reshape(MAX_ARRAYS, ARRAY_INTS)
        bases = [int(table[k, 0]) & bits | (int(table[k, 1]) & bits) << 32 for k in (nearest, named)]
        address = bases[0] + index * int(table[nearest, ELEMENT])
        index = (address - bases[1]) // int(table[named, ELEMENT])
        halves = np.array([index & bits, index >> 32 & bits], np.uint32).view(np.int32)
        listed[place, 1:4] = what + ARRAY * (named - nearest), *halves
