"""Wrong answers to lesson 02's exercises that look right."""

MUTANTS = {
    1: {
        "forgets the registers of the vectors": [("rows * vectors + vectors + 1 <=", "rows * vectors + 1 <=")],
        "forgets the register of the number": [("rows * vectors + vectors + 1 <=", "rows * vectors + vectors <=")],
        "one register too few": [("<= registers", "< registers")],
        "a register for each number of A": [("rows * vectors + vectors + 1", "rows * vectors + vectors + rows")],
        "multiply-adds for one load": [("(rows + vectors) / (rows * vectors)", "(rows * vectors) / (rows + vectors)")],
        "square blocks alone": [("if rows", "if rows == vectors and rows")],
        "one vector": [("in range(1, registers + 1):\n            if", "in (1,):\n            if")],
        "the most": [('float("inf")', "0"), ("min(", "max(")],
    },
    2: {
        "no barrier": [("barrier(CLK_LOCAL_MEM_FENCE);", "")],
        "no left neighbour of the group": [("near[0] = x[i - 1];", "near[0] = 0;")],
        "no right neighbour of the group": [("near[l + 2] = x[i + 1];", "near[l + 2] = 0;")],
        "reads before the array": [("l == 0 && i > 0", "l == 0")],
        "reads past the array": [("l == last && i + 1 < n", "l == last")],
        "reads past the array where a group ends": [("l == last && i + 1 < n", "l == last && i < n")],
        "groups of 64 alone": [("l == last &&", "l == 63 &&")],
        "the place behind 64": [("near[l + 2] = x[i + 1]", "near[65] = x[i + 1]")],
        "returns before the barrier": [
            ("    near[l + 1] = i < n ? x[i] : 0;", "    if (i >= n) return;\n    near[l + 1] = x[i];")
        ],
        "no guard": [("if (i >= n) {\n        return;\n    }", "")],
        "sums neighbours from global memory": [
            ("(near[l] + near[l + 1] + near[l + 2])", "(x[i - 1] + x[i] + x[i + 1])")
        ],
        "every work-item reads its neighbours": [("l == 0 && i > 0", "i > 0 && i <= n"), ("near[0]", "near[l]")],
        "the edges are smoothed": [("if (i == 0 || i == n - 1)", "if (i < 0)")],
        "own element twice": [("near[l] + near[l + 1] + near[l + 2]", "near[l] + near[l + 1] + near[l + 1]")],
    },
}
