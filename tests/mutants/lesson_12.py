"""Wrong answers to the exercises of lesson 12; each is the solution with some text replaced."""

LAST_BARRIER = """        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }"""

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
    },
    3: {
        "race before guard": [
            ('    if any(canary != -77 for canary in canaries):\n        return "guard"\n', ""),
            (
                '        return "race"\n',
                '        return "race"\n    if any(canary != -77 for canary in canaries):\n        return "guard"\n',
            ),
        ],
        "looks at the first canary": [("any(canary != -77 for canary in canaries)", "canaries[0] != -77")],
        "all must be dead": [("any(", "all(")],
        "two results are enough": [("len(set(results)) > 1", "results[0] != results[-1]")],
        "wrong is a race": [("len(set(results)) > 1", "any(one != expected for one in results)")],
        "no race": [("len(set(results)) > 1", "len(set(results)) > 9")],
        "never arguments": [('if results[0] == expected else "arguments"', "")],
        "sign of the canaries": [("canary != -77", "abs(canary) != 77")],
    },
}
