"""Wrong answers to the exercises of lesson 01; each is the solution with some text replaced."""

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
    },
}
