"""Answers to the exercises of lesson 01: wrong ones, each the solution with some text replaced, and right ones."""

MUTANTS = {
    1: {
        "no guard": [("if (i < n) {", "{")],
        "guard one too wide": [("i < n", "i <= n")],
        "guard one too narrow": [("i < n", "i < n - 1")],
        "arguments swapped": [("alpha * x[i] + y[i]", "alpha * y[i] + x[i]")],
        "neighbour read": [("x[i]", "x[i + 1]")],
        "neighbour written": [("out[i]", "out[i + 1]")],
        "right only for one work-group": [("i < n", "i < n && i < 64")],
        "right only up to 1000": [("i < n", "i < n && i < 999")],
        "local id for global id": [("get_global_id(0)", "get_local_id(0)")],
        "race with the neighbour": [("+ y[i];", "+ y[i];\n        if (i + 1 < n) out[i + 1] = 0.0f;")],
        "race with the group before": [("+ y[i];", "+ y[i];\n        if (i >= 64 && i % 64 == 0) out[i - 1] = 0.0f;")],
        "sum for product": [("alpha * x[i]", "alpha + x[i]")],
        "overwrites an input": [("out[i] =", "((__global float *)y)[i] = out[i] =")],
        "does not compile": [("y[i];", "y[i]")],
        "wrong name": [("void saxpy", "void axpy")],
        "reads before the guard": [
            (
                "    if (i < n) {\n        out[i] = alpha * x[i] + y[i];",
                "    float v = alpha * x[i] + y[i];\n    if (i < n) {\n        out[i] = v;",
            )
        ],
        "every work-item computes everything": [
            ("    int i = get_global_id(0);\n    if (i < n) {", "    for (int i = 0; i < n; i++) {")
        ],
        "wraps around for a guard": [("int i = get_global_id(0)", "int i = get_global_id(0) % n")],
        "adds to what is there": [("out[i] =", "out[i] +=")],
        "launch: as many as elements": [("return -(-n // group) * group", "return n")],
        "launch: rounded down": [("-(-n // group)", "(n // group)")],
        "launch: always one group more": [("-(-n // group)", "(n // group + 1)")],
        "launch: arguments swapped": [("(n, group):", "(group, n):")],
        "launch: right only for powers of two": [("-(-n // group) * group", "(n + group - 1) & ~(group - 1)")],
        "launch: the number of groups": [("-(-n // group) * group", "-(-n // group)")],
        "launch: a tuple": [("return -(-n // group) * group", "return (-(-n // group) * group,)")],
        "launch: groups of 512 at most": [("return -(-n", "group = min(group, 512)\n    return -(-n")],
        "launch: groups of 128 at most": [("return -(-n", "group = min(group, 128)\n    return -(-n")],
        "launch: fewer than a group stay as they are": [
            ("return -(-n // group) * group", "return n if 1 < n < group else -(-n // group) * group")
        ],
        "launch: rounded in float32": [("-(-n // group)", "int(np.ceil(np.float32(n) / np.float32(group)))")],
        "and as in Python": [("i < n", "i >= 0 and i < n")],
        "an index of 16 bits": [("int i", "short i")],
        "an index of 16 bits without a sign": [("int i", "ushort i")],
        "reads through a pointer before the guard": [
            (
                "    if (i < n) {\n        out[i] = alpha * x[i] + y[i];",
                "    float v = alpha * *(x + i) + *(y + i);\n    if (i < n) {\n        out[i] = v;",
            )
        ],
        "nothing for few elements": [("    if (i < n) {", "    if (n < 3) return;\n    if (i < n) {")],
        "the group id for the global id": [("get_global_id(0)", "get_group_id(0)")],
        "the group's number times a size that is not its own": [
            ("get_global_id(0)", "get_group_id(0) * 32 + get_local_id(0)")
        ],
        "guard asks whether the element is above 0": [("i < n", "i > 0 && i < n")],
        "alpha as a whole number": [("alpha * x[i]", "(int)alpha * x[i]")],
        "never ends": [("        out[i] =", "        for (int k = 0; k < 1; k = k) { out[i] = k; }\n        out[i] =")],
        "writes far outside": [("out[i] =", "out[i + 100000000] = 1.0f;\n        out[i] =")],
    },
    2: {
        "no guard": [("if (i >= n) {", "if (0) {")],
        "guard off by one": [("i >= n", "i > n")],
        "left edge reads outside": [("i == 0 || ", "")],
        "right edge reads outside": [(" || i == n - 1", "")],
        "edges become zero": [("out[i] = x[i];", "out[i] = 0.0f;")],
        "wrong neighbour": [("x[i + 1]", "x[i]")],
        "weights off": [("3.0f", "2.0f")],
        "only inside a work-group": [("i == 0 ||", "get_local_id(0) == 0 ||")],
        "smooths in place, a race": [
            (
                "out[i] = (x[i - 1] + x[i] + x[i + 1]) / 3.0f",
                "((__global float *)x)[i] = out[i] = (x[i - 1] + x[i] + x[i + 1]) / 3.0f",
            )
        ],
        "reads before the guard": [
            ("    if (i >= n) {", "    float v = x[i];\n    if (i >= n) {"),
            ("        out[i] = x[i];", "        out[i] = v;"),
        ],
        "reads what another work-item may not have written": [("(x[i - 1] +", "(out[i - 1] +")],
        "integer division": [("(x[i - 1] + x[i] + x[i + 1]) / 3.0f", "(float)((int)(x[i - 1] + x[i] + x[i + 1]) / 3)")],
        "edges written by their neighbours": [
            ("        out[i] = x[i];", "        return;"),
            (
                "        out[i] = (x[i - 1]",
                "        if (i == 1) out[0] = x[0];\n        if (i == n - 2) out[n - 1] = x[n - 1];\n"
                "        out[i] = (x[i - 1]",
            ),
        ],
        "nothing for few elements": [("    if (i >= n) {", "    if (n < 3) return;\n    if (i >= n) {")],
        "an index of 16 bits": [("int i", "short i")],
        "reads through a pointer before the guard": [
            ("    if (i >= n) {", "    float v = *(x + i);\n    if (i >= n) {"),
            ("out[i] = x[i];", "out[i] = v;"),
        ],
        "reads three neighbours through a pointer before the guard": [
            ("    if (i >= n) {", "    float3 v = vload3(0, x + i - 1);\n    if (i >= n) {"),
            ("(x[i - 1] + x[i] + x[i + 1])", "(v.x + v.y + v.z)"),
        ],
        "clamped neighbours at the edges": [
            ("if (i == 0 || i == n - 1) {", "if (0) {"),
            ("(x[i - 1] + x[i] + x[i + 1])", "(x[max(i - 1, 0)] + x[i] + x[min(i + 1, n - 1)])"),
        ],
        "the ends wrap around": [
            ("if (i == 0 || i == n - 1) {", "if (0) {"),
            ("(x[i - 1] + x[i] + x[i + 1])", "(x[(i + n - 1) % n] + x[i] + x[(i + 1) % n])"),
        ],
        "edges of the work-group for those of the array": [
            ("i == 0 || i == n - 1", "get_local_id(0) == 0 || get_local_id(0) == get_local_size(0) - 1 || i == n - 1")
        ],
        "an unsigned index below zero": [
            ("int i", "uint i"),
            ("    if (i >= n) {\n        return;\n    }\n", ""),
            ("i == 0 || i == n - 1", "i - 1 < 0 || i + 1 >= n"),
        ],
        "an unsigned index below zero, with a guard": [("int i", "uint i"), ("i == 0 ||", "i - 1 < 0 ||")],
    },
    3: {
        "stops when the call came back": [("finished - start for", "returned - start for")],
        "counts only the wait": [("finished - start for", "finished - returned for")],
        "the time of day, not a difference": [("finished - start for", "finished for")],
        "the mean": [("np.median", "np.mean")],
        "the fastest run": [("np.median", "min")],
        "the first run": [("np.median(seconds)", "seconds[0]")],
        "the run in the middle, unsorted": [("np.median(seconds)", "seconds[len(seconds) // 2]")],
        "forgets that y is read": [("12 * n", "8 * n")],
        "elements, not bytes": [("12 * n", "3 * n")],
        "bytes of doubles": [("12 * n", "24 * n")],
        "in GiB": [("1e9", "2**30")],
        "in MB": [("1e9", "1e6")],
        "in bytes": [(" / 1e9", "")],
        "all runs for one": [("np.median", "sum")],
        "seconds for each byte": [("12 * n / np.median(seconds) / 1e9", "np.median(seconds) / 12 / n")],
        "limit: above 75 % only": [(">=", ">")],
        "limit: the other way round": [(">=", "<")],
        "limit: half": [("0.75", "0.5")],
        "limit: all of it": [("0.75 * ", "")],
        "limit: not beyond the yardstick": [("speed >= 0.75 * yardstick", "0.75 * yardstick <= speed <= yardstick")],
        "limit: true or false": [
            ('"memory" if speed >= 0.75 * yardstick else "not memory"', "speed >= 0.75 * yardstick")
        ],
        "limit: compared with 75 GB/s": [("0.75 * yardstick", "75")],
        "limit: prints one of the two": [('else "not memory"', 'else print("not memory")')],
    },
}

SAXPY = """
def global_size(n, group):
    %s


saxpy = \"\"\"%s\"\"\"
"""
HEAD = """
__kernel void saxpy(const float alpha, __global const float *x, __global const float *y,
                    __global float *out, const int n) {
"""
SMOOTH = """
smooth = \"\"\"
__kernel void smooth(__global const float *x, __global float *out, const int n) {%s}
\"\"\"
"""
BANDWIDTH = """
def bandwidth(runs, n):
    %s


def limit(speed, yardstick):
    %s
"""


def _saxpy(body: str, size: str = "return (n + group - 1) // group * group", before: str = "") -> str:
    return SAXPY % (size, before + HEAD + body + "}\n")


RIGHT = {
    1: {
        "the global id from group and local id": _saxpy(
            "int i = get_group_id(0) * get_local_size(0) + get_local_id(0); if (i < n) out[i] = alpha * x[i] + y[i];"
        ),
        "returns early": _saxpy("size_t i = get_global_id(0); if (i >= n) return; out[i] = alpha * x[i] + y[i];"),
        "an unsigned index and mad": _saxpy(
            "uint i = get_global_id(0); if (i < n) { out[i] = mad(alpha, x[i], y[i]); }"
        ),
        "fma, and a remainder": _saxpy(
            "int k = get_global_id(0);\n    if (!(k > n - 1)) out[k] = fma(x[k], alpha, y[k]);\n",
            "return n if n % group == 0 else n + group - n % group",
        ),
        "every element of a stride": _saxpy(
            "for (int i = get_global_id(0); i < n; i += get_global_size(0)) { out[i] = y[i] + x[i] * alpha; }"
        ),
        "pointers after the guard": _saxpy(
            "int i = get_global_id(0); if (i < n) { *(out + i) = alpha * *(x + i) + *(y + i); }",
            "import math; return math.ceil(n / group) * group",
        ),
        "a function of its own, a macro and a comment": _saxpy(
            "int i = ID; /* my number */ if (i < n) { float v = one(alpha, x[i], y[i]); out[i] = v; }",
            "return n + -n % group",
            "#define ID get_global_id(0)\nfloat one(float a, float x, float y) { return a * x + y; }",
        ),
        "counts up": _saxpy(
            "const long i = get_global_id(0); if (n > i) { float p = alpha * x[i]; p += y[i]; out[i] = p; }",
            "items = 0\n    while items < n:\n        items += group\n    return items",
        ),
        "NumPy rounds up": _saxpy(
            "int i = get_global_id(0); if (i < n) out[i] = alpha * x[i] + y[i];",
            "return int(np.ceil(n / group)) * group",
        ),
    },
    2: {
        "the global id from group and local id": SMOOTH
        % """
    int i = get_local_size(0) * get_group_id(0) + get_local_id(0);
    if (i < n) {
        if (i > 0 && i < n - 1) out[i] = (x[i - 1] + x[i] + x[i + 1]) / 3.0f;
        else out[i] = x[i];
    }
""",
        "unsigned, with the edges asked first": SMOOTH
        % """
    uint i = get_global_id(0);
    if (i < n) { out[i] = i == 0 || i + 1 >= n ? x[i] : (x[i - 1] + x[i] + x[i + 1]) / 3; }
""",
        "a loop over the neighbours": SMOOTH
        % """
    int i = get_global_id(0);
    if (i >= n) return;
    float sum = 0;
    int reach = i == 0 || i == n - 1 ? 0 : 1;
    for (int k = -reach; k <= reach; k++) { sum += x[i + k]; }
    out[i] = sum / (2 * reach + 1);
""",
        "multiplied by a third": SMOOTH
        % """
    const int i = get_global_id(0), last = n - 1;
    if (i <= last) {
        const float here = x[i];
        out[i] = here;
        if (0 < i && i < last) { out[i] = (1.0f / 3.0f) * (x[i + 1] + here + x[i - 1]); }
    }
""",
        "pointers after the guard": SMOOTH
        % """
    int i = get_global_id(0);
    if (i >= n) { return; }
    __global const float *p = x + i;
    if (i == 0 || i == n - 1) { out[i] = *p; } else { out[i] = (*(p - 1) + *p + *(p + 1)) / 3.0f; }
""",
        "copies, then returns": SMOOTH
        % """
    int i = get_global_id(0);
    if (i >= n) { return; }
    if (i == 0) { out[0] = x[0]; return; }
    if (i == n - 1) { out[n - 1] = x[n - 1]; return; }
    float left = x[i - 1], right = x[i + 1];
    out[i] = left / 3 + x[i] / 3 + right / 3;
""",
        "every element of a stride": SMOOTH
        % """
    for (size_t i = get_global_id(0); i < n; i += get_global_size(0)) {
        int edge = (i == 0) | (i == n - 1);
        if (edge) out[i] = x[i];
        else out[i] = (x[i - 1] + x[i] + x[i + 1]) / 3.0f;
    }
""",
    },
    3: {
        "statistics": BANDWIDTH
        % (
            "import statistics; return n * 12 / statistics.median(end - begin for begin, _, end in runs) * 1e-9",
            "return 'memory' if speed / yardstick >= 0.75 else 'not memory'",
        ),
        "sorted, by index": BANDWIDTH
        % (
            "times = sorted(run[2] - run[0] for run in runs)\n    return 3 * 4 * n / 1e9 / times[len(times) // 2]",
            "if speed < yardstick * 3 / 4:\n        return 'not memory'\n    return 'memory'",
        ),
        "the median of the speeds": BANDWIDTH
        % (
            "return np.median([12e-9 * n / (run[-1] - run[0]) for run in runs])",
            "return ['not memory', 'memory'][100 * speed / yardstick >= 75]",
        ),
        "NumPy throughout": BANDWIDTH
        % (
            "start, _, end = np.array(runs).T\n    return np.float32(12 * n / np.median(end - start) / 10**9)",
            "return str(np.where(speed / yardstick >= 0.75, 'memory', 'not memory'))",
        ),
        "bytes from the type": BANDWIDTH
        % (
            "each = np.diff(np.array(runs)[:, ::2])\n    return 3 * n * np.float32().nbytes / np.median(each) / 1e9",
            "return 'not ' * (speed < 0.75 * yardstick) + 'memory'",
        ),
    },
}
