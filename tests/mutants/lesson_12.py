"""Wrong answers to the exercises of lesson 12; each is the solution with some text replaced."""

LAST_BARRIER = """        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }"""

PART = "__local int part[64];"
TREE = """\
    part[me] = i < n ? x[i] : 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int step = 32; step > 0; step /= 2) {
        if (me < step) {
            part[me] += part[me + step];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (me == 0) {
        sums[get_group_id(0)] = part[0];
    }
"""
MEET = "\n    barrier(CLK_LOCAL_MEM_FENCE);"
SCALAR = f"""\
    if (me == 0) t = 0;{MEET}
    ADD;{MEET}
    if (me == 0) sums[get_group_id(0)] = t;
"""

MUTANTS = {
    1: {
        "second guard one too wide": [("i + 1 < n", "i + 1 <= n")],
        "second guard one too narrow": [("i + 1 < n", "i + 2 < n")],
        "second guard is the first": [("i + 1 < n", "i < n")],
        "one guard for both, too narrow": [("if (i < n)", "if (i + 1 < n)")],
        "no guard for the first": [("if (i < n)", "if (i <= n)")],
        "one element a work-item": [("2 * get_global_id(0)", "get_global_id(0)")],
        "clamped, so that the last is written twice": [
            (
                "    if (i + 1 < n) {\n        out[i + 1] = x[i + 1] * x[i + 1];",
                "    {\n        int k = min(i + 1, n);\n        out[k] = x[k] * x[k];",
            ),
        ],
        "reads before the guard": [
            (
                "    if (i + 1 < n) {\n        out[i + 1] = x[i + 1] * x[i + 1];",
                "    float v = x[i + 1];\n    if (i + 1 < n) {\n        out[i + 1] = v * v;",
            ),
        ],
        "reads inside the first guard": [
            ("        out[i] = x[i] * x[i];\n    }", "        out[i] = x[i] * x[i];\n        x[i + 1];\n    }"),
        ],
        "only even sizes": [("if (i < n)", "if (i < n && n % 2 == 0)")],
        "far outside": [("out[i + 1] =", "out[i + 300000000] =")],
        "one element a work-item, guarded": [
            ("2 * get_global_id(0)", "get_global_id(0)"),
            ("    if (i + 1 < n) {\n        out[i + 1] = x[i + 1] * x[i + 1];\n    }\n", ""),
        ],
        "reads beyond the end through a pointer": [
            ("    if (i + 1 < n) {", "    float v = *(x + i + 1);\n    if (i + 1 < n) {"),
            ("= x[i + 1] * x[i + 1]", "= v * v"),
        ],
        "reads beyond the end as a pair": [
            ("    if (i < n) {", "    float2 v = vload2(get_global_id(0), x);\n    if (i < n) {"),
            ("= x[i] * x[i]", "= v.x * v.x"),
            ("= x[i + 1] * x[i + 1]", "= v.y * v.y"),
        ],
        "index of 16 bits": [("int i =", "short i =")],
        "does not compile": [("x[i];\n", "x[i]\n")],
    },
    2: {
        "no barrier before the loop": [(": 0;\n    barrier(CLK_LOCAL_MEM_FENCE);", ": 0;")],
        "no barrier in the loop": [(LAST_BARRIER, "        }\n    }")],
        "no barrier at all": [
            (LAST_BARRIER, "        }\n    }"),
            (": 0;\n    barrier(CLK_LOCAL_MEM_FENCE);", ": 0;"),
        ],
        "barrier in the branch": [(LAST_BARRIER, "            barrier(CLK_LOCAL_MEM_FENCE);\n        }\n    }")],
        "no guard": [("i < n ? x[i] : 0", "x[i]")],
        "guard one too wide": [("i < n ?", "i <= n ?")],
        "guard one too narrow": [("i < n ?", "i < n - 1 ?")],
        "returns before the barrier": [("    part[me] =", "    if (i >= n) return;\n    part[me] =")],
        "stops one step early": [("step > 0", "step > 1")],
        "begins too late": [("step = 32", "step = 16")],
        "all write the sum": [("if (me == 0) ", "")],
        "another work-item's share": [("sums[get_group_id(0)] = part[0]", "sums[get_group_id(0)] = part[1]")],
        "sum of the wrong group": [("sums[get_group_id(0)]", "sums[0]")],
        "adds to what was there": [("sums[get_group_id(0)] =", "sums[get_group_id(0)] +=")],
        "a race in local memory": [("part[me] += part[me + step]", "part[0] += part[me + step]")],
        "one work-item does it all": [
            ("step > 0; step /= 2", "step < 0; step /= 2"),
            ("= part[0];", "= 0;\n        for (int k = 0; k < 64; k++) sums[get_group_id(0)] += part[k];"),
        ],
        "does not compile": [("int step", "int half")],
        "a local scalar that all change": [
            (PART, "__local int t;"),
            (TREE, SCALAR.replace("ADD", "t += i < n ? x[i] : 0")),
        ],
        "an atomic, no barrier after zero": [
            (PART, "__local int t;"),
            (TREE, SCALAR.replace("ADD", "if (i < n) atomic_add(&t, x[i])").replace(MEET, "", 1)),
        ],
        "an atomic, no barrier before the sum": [
            (PART, "__local int t;"),
            (TREE, SCALAR.replace("ADD;" + MEET, "if (i < n) atomic_add(&t, x[i]);")),
        ],
        "a fence for global memory": [
            ("barrier(CLK_LOCAL_MEM_FENCE);\n    for", "barrier(CLK_GLOBAL_MEM_FENCE);\n    for")
        ],
        "a barrier without a fence": [(LAST_BARRIER, LAST_BARRIER.replace("CLK_LOCAL_MEM_FENCE", "0"))],
        "one work-item sums by pointer": [
            ("step > 0; step /= 2", "step < 0; step /= 2"),
            (
                "= part[0];",
                "= 0;\n        for (__local int *p = part; p < part + 64; p++) sums[get_group_id(0)] += *p;",
            ),
        ],
        "atomics on sums, no tree": [
            (PART, ""),
            (
                TREE,
                "    if (me == 0) sums[get_group_id(0)] = 0;\n    barrier(CLK_GLOBAL_MEM_FENCE);\n"
                "    if (i < n) atomic_add(&sums[get_group_id(0)], x[i]);\n",
            ),
        ],
        "reads beyond the end through a pointer": [("i < n ? x[i] : 0", "*(x + i) * (i < n)")],
        "a barrier in a loop that not all go round": [
            ("for (int step = 32; step > 0; step /= 2)", "for (int step = 32; step > me; step /= 2)"),
        ],
        "a barrier while some still add": [
            (
                "for (int step = 32; step > 0; step /= 2) {\n        if (me < step) {",
                "int step = 32;\n    while (me < step) {\n        {",
            ),
            (LAST_BARRIER, LAST_BARRIER.replace("    }", "        step /= 2;\n    }", 1).replace("}\n", "}\n", 1)),
        ],
    },
    3: {
        "race before guard": [
            ('    if any(canary != -77 for canary in canaries):\n        return "guard"\n', ""),
            (
                '        return "race"\n',
                '        return "race"\n    if any(canary != -77 for canary in canaries):\n        return "guard"\n',
            ),
        ],
        "nearly right is right": [
            ("results[0] == expected", "abs(results[0] - expected) <= 1e-9 * abs(expected)"),
        ],
        "looks at the first canary": [("any(canary != -77 for canary in canaries)", "canaries[0] != -77")],
        "all must be dead": [("any(", "all(")],
        "two results are enough": [("len(set(results)) > 1", "results[0] != results[-1]")],
        "wrong is a race": [("len(set(results)) > 1", "any(one != expected for one in results)")],
        "no race": [("len(set(results)) > 1", "len(set(results)) > 9")],
        "never arguments": [('if results[0] == expected else "arguments"', "")],
        "sign of the canaries": [("canary != -77", "abs(canary) != 77")],
        "the sum of the canaries": [
            ("any(canary != -77 for canary in canaries)", "sum(canaries) != -77 * len(canaries)")
        ],
        "the largest canary": [("any(canary != -77 for canary in canaries)", "max(canaries) > -77")],
        "the smallest canary": [("any(canary != -77 for canary in canaries)", "min(canaries) != -77")],
        "the same object": [("results[0] == expected", "results[0] is expected")],
        "two different results are a race": [("len(set(results)) > 1", "len(set(results)) == 2")],
        "the sum of the results": [("len(set(results)) > 1", "sum(results) != len(results) * results[0]")],
        "too large is right": [("results[0] == expected", "results[0] >= expected")],
        "too small is right": [("results[0] == expected", "results[0] <= expected")],
        "sign of the results": [("results[0] == expected", "abs(results[0]) == abs(expected)")],
        "almost right": [("results[0] == expected", "abs(results[0] - expected) <= 1e-3")],
        "right without canaries": [("results[0] == expected", "results[0] == expected or not canaries")],
        "the first six neighbours": [
            ("len(set(results)) > 1", "any(one != other for one, other in zip(results[:6], results[1:7]))")
        ],
        "the first six canaries": [("for canary in canaries", "for canary in canaries[:6]")],
        "whole numbers of canaries": [("canary != -77", "int(canary) != -77")],
    },
    4: {
        "another symptom": [('("dead canary", "guard"', '("wrong", "guard"')],
        "no row of the table": [('"race"', '"atomics"')],
        "stray for unsigned": [('("crash", "unsigned", 3)', '("crash", "guard", 1)')],
        "a race for a barrier": [('("wrong", "barrier", 4)', '("wrong", "race", 2)')],
        "layout and arguments swapped": [
            ('"arguments", 5', '"layout", 6'),
            ('"layout", 6),\n}', '"arguments", 5),\n}'),
        ],
        "a fix that leaves the cause": [('"race", 2', '"race", 8')],
        "no fix": [('"race", 2', '"race", 0')],
        "no cause": [('("wrong", "race", 2)', '("wrong", "", 2)')],
        "a fix between two": [('"race", 2', '"race", 2.5')],
        "one letter too few": [('    "F": ("wrong", "layout", 6),\n', "")],
        "only the first": [
            (f'"{letter}": {answer}', f'"{letter}": ("", "", 0)')
            for letter, answer in {
                "B": '("dead canary", "guard", 1)',
                "C": '("crash", "unsigned", 3)',
                "D": '("wrong", "barrier", 4)',
                "E": '("wrong", "arguments", 5)',
                "F": '("wrong", "layout", 6)',
            }.items()
        ],
    },
}

SQUARES = """\
squares = \"\"\"
__kernel void squares(__global const float *x, __global float *out, const int n) {
BODY
}
\"\"\""""
SUMS = """\
group_sums = \"\"\"
HEAD__kernel void group_sums(__global const int *x, __global int *sums, const int n) {
BODY
}
\"\"\""""
SOLVED = f"    {PART}\n    int i = get_global_id(0), me = get_local_id(0);\n{TREE}"


def squares(body: str) -> str:
    """An answer to exercise 1 with this body of the kernel."""
    return SQUARES.replace("BODY", body)


def sums(body: str, head: str = "") -> str:
    """An answer to exercise 2 with this body of the kernel, and this before it."""
    return SUMS.replace("HEAD", head).replace("BODY", body)


RIGHT = {
    1: {
        "a loop over both": squares(
            "    int first = 2 * get_global_id(0);\n"
            "    for (int i = first; i < first + 2 && i < n; i++) out[i] = x[i] * x[i];"
        ),
        "leaves early": squares(
            "    int i = 2 * get_global_id(0);\n    if (i >= n) return;\n    out[i] = x[i] * x[i];\n"
            "    if (i + 1 >= n) return;\n    out[i + 1] = x[i + 1] * x[i + 1];"
        ),
        "group and local id": squares(
            "    int i = 2 * (get_group_id(0) * get_local_size(0) + get_local_id(0));\n"
            "    if (i < n) out[i] = x[i] * x[i];\n    i += 1;\n    if (i < n) out[i] = x[i] * x[i];"
        ),
        "half an array apart": squares(
            "    for (int i = get_global_id(0); i < n; i += get_global_size(0)) out[i] = x[i] * x[i];"
        ),
        "pairs, and the last one alone": squares(
            "    int k = get_global_id(0);\n"
            "    if (2 * k + 1 < n) {\n        float2 v = vload2(k, x);\n        vstore2(v * v, k, out);\n"
            "    } else if (2 * k < n) out[2 * k] = x[2 * k] * x[2 * k];"
        ),
        "through pointers": squares(
            "    int i = 2 * get_global_id(0);\n    if (i < n) *(out + i) = *(x + i) * *(x + i);\n"
            "    if (i + 1 < n) *(out + i + 1) = *(x + i + 1) * *(x + i + 1);"
        ),
    },
    2: {
        "two arrays in turn": sums(
            """    __local int a[64];
    __local int b[64];
    int i = get_global_id(0), me = get_local_id(0);
    a[me] = i < n ? x[i] : 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int s = 32; s > 0; s /= 2) {
        if (me < s) b[me] = a[me] + a[me + s];
        barrier(CLK_LOCAL_MEM_FENCE);
        if (me < s) a[me] = b[me];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (me == 0) sums[get_group_id(0)] = a[0];
"""
        ),
        "a macro round the barrier": sums(
            SOLVED.replace("barrier(CLK_LOCAL_MEM_FENCE)", "SYNC"), "#define SYNC barrier(CLK_LOCAL_MEM_FENCE)\n"
        ),
        "a branch that all take": sums(
            SOLVED.replace("        barrier(", "        if (step > 1) barrier(").replace(
                "    if (me == 0) {", "    barrier(CLK_LOCAL_MEM_FENCE);\n    if (me == 0) {"
            )
        ),
        "the barrier's newer name": sums(SOLVED.replace("barrier(", "work_group_barrier(")),
        "both fences": sums(SOLVED.replace("CLK_LOCAL_MEM_FENCE", "CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE")),
        "group and local id": sums(
            SOLVED.replace("i = get_global_id(0)", "i = get_group_id(0) * get_local_size(0) + get_local_id(0)")
        ),
        "steps that grow": sums(
            SOLVED.replace("int step = 32; step > 0; step /= 2", "int step = 1; step < 64; step *= 2").replace(
                "me < step", "me % (2 * step) == 0"
            )
        ),
        "a while": sums(
            SOLVED.replace(
                "for (int step = 32; step > 0; step /= 2) {", "int step = 32;\n    while (step > 0) {"
            ).replace(
                "        barrier(CLK_LOCAL_MEM_FENCE);\n    }",
                "        barrier(CLK_LOCAL_MEM_FENCE);\n        step /= 2;\n    }",
            )
        ),
        "the neighbour in a register": sums(
            SOLVED.replace(
                "if (me < step) {\n            part[me] += part[me + step];",
                "int more = me < step ? part[me + step] : 0;\n        if (me < step) {\n            part[me] += more;",
            )
        ),
    },
    3: {
        "by sets": """\
def silent_cause(canaries, results, expected):
    if set(canaries) - {-77}:
        return "guard"
    if set(results) == {expected}:
        return "right"
    return "race" if len(set(results)) > 1 else "arguments\"""",
        "by counting": """\
def silent_cause(canaries, results, expected):
    if list(canaries).count(-77) < len(canaries):
        return "guard"
    if max(results) != min(results):
        return "race"
    return ("arguments", "right")[results[0] == expected]""",
        "in loops": """\
def silent_cause(canaries, results, expected):
    for canary in canaries:
        if canary != -77:
            return "guard"
    for one, other in zip(results, results[1:]):
        if one != other:
            return "race"
    if results[-1] != expected:
        return "arguments"
    return "right\"""",
    },
    4: {
        "lists, another order, the rarer symptoms": """\
diagnosis = dict(
    F=["wrong", "layout", 6], E=["wrong", "arguments", 5], D=["no end", "barrier", 4], C=["no end", "unsigned", 3],
    B=["dead canary", "guard", 1], A=["wrong", "race", 2],
)""",
        "capitals, blanks, numbers as text": """\
diagnosis = {
    "A": ("Wrong", "Race ", "2"), "B": (" dead canary", "Guard", 1.0), "C": ("Crash", "UNSIGNED", 3),
    "D": ("No end", "Barrier", "4"), "E": ("wrong ", "arguments", 5), "F": ("wrong", "layout", 6.0),
}""",
    },
}
