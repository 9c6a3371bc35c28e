"""What an OpenCL kernel writes while it is recorded: the layout of its log, and the OpenCL C that writes it.

`opencl_rewriter` puts this code before the learner's kernel, and `opencl_recorder` reads the log.
"""

from __future__ import annotations

from helpers.judge.trace import ARRAY, GLOBAL_FENCE, INSIDE, LOCAL_FENCE, MAX_ARRAYS, MORE

MAX_TOUCHES = 128  # of one work-item; what comes after is counted, not listed
MAX_SITES = 8  # barriers of one work-item that are listed
MAX_STEPS = 1 << 15  # rounds of loops of one work-item: under 2 s, when Windows resets a GPU, and llvmpipe's own 65,535
# The ints of one work-item: counts, its first barriers (lines and numbers), its ids in three dimensions, its arrays
# (address in two ints, bytes, bytes of an element), then its touches (array and kind, index in two ints, barriers met
# before).
COUNTS = ("global_accesses", "barriers", "fences", "steps", "endless", "touches", "order")
SITES = len(COUNTS)
IDS = SITES + MAX_SITES
ARRAYS, ARRAY_INTS = IDS + 9, 4
HEADER = ARRAYS + ARRAY_INTS * MAX_ARRAYS
TOUCH = 4  # the first int of a touch has the bits of `trace`
ROW = HEADER + TOUCH * MAX_TOUCHES
SPARE = 128  # bytes behind a given array, for accesses that lie outside: the longest vector
BARRIER_LINE = 1 << 16  # a barrier is listed as its line plus BARRIER_LINE times its number among all in the source

RECORDER = f"""
__global int *trace_row(__global int *log) {{
    size_t item = ((get_global_id(2) - get_global_offset(2)) * get_global_size(1)
                 + (get_global_id(1) - get_global_offset(1))) * get_global_size(0)
                 + (get_global_id(0) - get_global_offset(0));
    return log + item * {ROW};
}}
void trace_start(__global int *log) {{
    __global int *row = trace_row(log) + {IDS};
    for (int d = 0; d < 3; d++) {{
        row[d] = get_global_id(d);
        row[3 + d] = get_local_id(d);
        row[6 + d] = get_group_id(d);
    }}
}}
void trace_array(__global int *log, int number, ulong address, int bytes, int element) {{
    __global int *array = trace_row(log) + {ARRAYS} + {ARRAY_INTS} * number;
    array[0] = (int)(address & 0xffffffff);
    array[1] = (int)(address >> 32);
    array[2] = bytes;
    array[3] = element;
}}
void trace_barrier(__global int *log, int flags, int site) {{
    __global int *row = trace_row(log);
    if (row[1] < {MAX_SITES}) {{
        row[{SITES} + row[1]] = site;
    }}
    row[1]++;
    row[6] = (int)((uint)row[6] * 31 + (uint)site);
    row[2] += (flags & CLK_LOCAL_MEM_FENCE ? {LOCAL_FENCE} : 0) + (flags & CLK_GLOBAL_MEM_FENCE ? {GLOBAL_FENCE} : 0);
}}
int trace_step(__global int *log, int line) {{
    __global int *row = trace_row(log);
    if (row[3] < {MAX_STEPS}) {{
        row[3]++;
        return 0;
    }}
    row[4] = row[4] ? row[4] : line;
    return 1;
}}
void trace_list(__global int *row, int what, long index) {{
    int n = row[5]++;
    if (n < {MAX_TOUCHES}) {{
        __global int *touch = row + {HEADER} + {TOUCH} * n;
        touch[0] = what;
        touch[1] = (int)(index & 0xffffffff);
        touch[2] = (int)(index >> 32);
        touch[3] = row[2];
    }}
}}
long trace_index(__global int *log, int is_local, int what, ulong pointer, int size, long index, int count) {{
    __global int *row = trace_row(log);
    int before = -1, after = -1;
    ulong from_start = 0, to_start = 0;
    for (int k = is_local ? GIVEN_COUNT : 0; k < (is_local ? ARRAY_COUNT : GIVEN_COUNT); k++) {{
        __global int *array = row + {ARRAYS} + {ARRAY_INTS} * k;
        ulong base = (ulong)(uint)array[0] | (ulong)(uint)array[1] << 32;
        int is_declared = array[3] > 0;  // its address may be 0: there local memory begins on many GPUs
        if (is_declared && base <= pointer && (before < 0 || pointer - base < from_start)) {{
            before = k;
            from_start = pointer - base;
        }} else if (base > pointer && (after < 0 || base - pointer < to_start)) {{
            after = k;
            to_start = base - pointer;
        }}
    }}
    int nearest = before < 0 ? after : before;
    if (before >= 0 && after >= 0) {{
        ulong end = (row + {ARRAYS} + {ARRAY_INTS} * before)[2];
        nearest = from_start <= end || from_start - end <= to_start ? before : after;
    }}
    __global int *array = row + {ARRAYS} + {ARRAY_INTS} * nearest;
    ulong base = (ulong)(uint)array[0] | (ulong)(uint)array[1] << 32;
    long first = (long)(pointer - base) + index * size, bytes = array[2], element = array[3];
    int inside = 0 <= first && first + (long)count * size <= bytes;
    row[0] += !is_local;
    long last = first + (long)count * size - 1;
    long from = first >= 0 ? first / element : -((element - 1 - first) / element);
    long to = last >= 0 ? last / element : -((element - 1 - last) / element);
    for (int more = 0; more <= (int)(to - from); more++) {{  // with a long Mesa 22.3 ended the kernel's own loops
        long k = from + more;
        int exists = 0 <= k && (k + 1) * element <= bytes;
        trace_list(row, {ARRAY} * nearest + what + (exists ? {INSIDE} : 0) + (more ? {MORE} : 0), k);
    }}
    long spare = is_local ? 0 : (bytes + {SPARE - 1}) / {SPARE} * {SPARE};
    return inside ? index : (spare - (long)(pointer - base)) / size;
}}
"""

# Drivers make some of these functions macros of their own: hence `trace_wait`, which still calls the driver's. A flag
# that is no constant ends the process in LLVM's translator to SPIR-V, as under Debian's drivers for Intel and AMD GPUs:
# https://github.com/KhronosGroup/SPIRV-LLVM-Translator/issues/1805
MET = f"trace_barrier(trace_log, flags, __COUNTER__ * {BARRIER_LINE} + __LINE__)"
BARRIERS = f"""
void trace_wait(void) {{
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
}}
#undef barrier
#undef work_group_barrier
#define work_group_barrier(flags) barrier(flags)
#define barrier(flags) ({MET}, trace_wait())
"""
# Barriers are recorded, but nobody waits: not even divergent barriers can hang.
DRY_BARRIERS = BARRIERS.replace("trace_wait())", "(void)0)")
