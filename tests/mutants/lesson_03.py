"""Wrong answers to lesson 03's exercises that look right."""

MUTANTS = {
    1: {
        "sums": [("= >(", "= +(")],
        "the smallest": [("= >(", "= <(")],
        "every element": [("2 * x + j", "x + j")],
        "two neighbours": [("j < 3", "j < 2")],
        "four neighbours": [("j < 3", "j < 4")],
        "windows that are not whole": [("(N - 1) / 2", "(N + 1) / 2")],
        "the last window is missing": [("(N - 1) / 2", "(N - 2) / 2")],
        "starts one later": [("2 * x + j", "2 * x + j + 1")],
        "not above 100": [("O[x", "P[x"), ("j < 3;", "j < 3;\n    O = min(P, 100.0);")],
        "not below -100": [("O[x", "P[x"), ("j < 3;", "j < 3;\n    O = max(P, -100.0);")],
    },
    2: {
        "three statements": [
            ("    S[j: N] = +(D[i, j] * D[i, j]);", "    Q = D * D;\n    S[j: N] = +(Q[k, j]);"),
        ],
        "not squared": [("D[i, j] * D[i, j]", "D[i, j]")],
        "added": [("D[i, j] * D[i, j]", "D[i, j] + D[i, j]")],
        "by rows": [("S[j: N]", "S[i: M]")],
        "the largest": [("+(", ">(")],
        "A and B multiplied": [("D = A - B", "D = A * B")],
        "every pair of rows": [("D[i, j] * D[i, j]", "D[i, j] * D[k, j]")],
        "D twice A": [("D = A - B", "D = A - A")],
        "times the first row": [("D[i, j] * D[i, j]", "D[0, j] * D[i, j]")],
    },
    3: {
        "one chain": [
            ("    T[i, r: M, 16] = >(A[i, 16 * q + r]);\n", ""),
            ("O[i: M] = >(T[i, r])", "O[i: M] = >(A[i, j])"),
        ],
        "one chain and a copy": [("M, 16]", "M, 1]"), ("16 * q + r", "q + r")],
        "every chain over all": [("16 * q + r", "q")],
        "the first of sixteen": [("16 * q + r", "16 * q")],
        "half of the chains": [("M, 16]", "M, 8]")],
        "overlapping chains": [("16 * q + r", "q + r")],
        "sums": [("M, 16] = >(", "M, 16] = +(")],
        "the smallest of the largest": [("O[i: M] = >(", "O[i: M] = <(")],
        "the smallest": [(">(", "<(")],
        "by columns": [("A[i, 16 * q + r]", "A[16 * q + r, i]")],
        "ten steps alone": [("16 * q + r]);", "16 * q + r]), q < 10;")],
        "never below 0": [("    O[i: M]", "    P[i: M]"), ("(T[i, r]);", "(T[i, r]);\n    O = max(P, 0.0);")],
    },
    4: {
        "one too few": [("// stride + 1", "// stride")],
        "rounds up": [("last // stride + 1", "-(-last // stride) + 1")],
        "the gap forgotten": [("gap * (m - 1)", "(m - 1)")],
        "the stride forgotten": [("last // stride + 1", "last + 1")],
        "every x with a valid point": [("n - 1 - gap * (m - 1)", "n - 1")],
        "m elements and as many gaps": [("gap * (m - 1)", "gap * m")],
        "below zero": [(" if last >= 0 else 0", "")],
        "one window at least": [("else 0", "else 1")],
        "a float": [("last // stride + 1", "last / stride + 1")],
        "a window that fits exactly is left out": [("last >= 0", "last > 0")],
        "stride and gap swapped": [("n, m, stride, gap", "n, m, gap, stride")],
    },
}

# Right answers, written differently.
RIGHT = {
    1: {
        "another size": """\
windows = '''function (I[N]) -> (O) {
    O[x: (N - 3) / 2 + 1] = >(I[j + 2 * x]), j < 3;
}'''""",
        "bounded by two indices": """\
windows = '''function (I[N]) -> (O) {
    O[x: (N - 1) / 2] = >(I[i]), i - 2 * x < 3;
}'''""",
        "a comment with a division": """\
windows = '''function (I[N]) -> (O) {  // (N - 1) // 2 in Python
    O[x: (N - 1) / 2] = >(I[2 * x + j]), j < 3;
}'''""",
    },
    2: {
        "B - A, on two lines": """\
far = '''function (A[M, N], B[M, N]) -> (S) {
    D = B - A;  // the sign is gone in the square
    S[column: N]
        = +(D[k, column] * D[k, column]);
}'''""",
        "only the sum of a square": """\
far = '''function (X[R, C], Y[R, C]) -> (S) {
    Q = (X - Y) * (X - Y); S[j: C] = +(Q[i, j]);
}'''""",
        "pow": """\
far = '''function (A[M, N], B[M, N]) -> (S) {
    Q = pow(A - B, 2.0);
    S[j: N] = +(Q[i, j]);
}'''""",
    },
    3: {
        "with a constraint that changes nothing": """\
chains = '''function (A[M, N]) -> (O) {
    T[i, r: M, 16] = >(A[i, 16 * q + r]), r < 16;
    O[i: M] = >(T[i, r]);
}'''""",
        "sixty-four chains": """\
chains = '''function (A[M, N]) -> (O) {
    T[i, r: M, 64] = >(A[i, 64 * q + r]);
    O[i: M] = >(T[i, r]);
}'''""",
        "q from -1 on": """\
chains = '''function (A[M, N]) -> (O) {
    T[i, r: M, 16] = >(A[i, 16 * q + r + 1]);
    O[i: M] = >(T[i, r]);
}'''""",
        "each chain on neighbours": """\
chains = '''function (A[M, N]) -> (O) {
    T[i, r: M, 16] = >(A[i, N / 16 * r + q]), q < N / 16;
    O[i: M] = >(T[i, r]);
}'''""",
        "three statements": """\
chains = '''function (A[M, N]) -> (O) {
    T[i, r: M, 64] = >(A[i, r + 64 * q]);
    U[i, r: M, 8] = >(T[i, 8 * q + r]);
    O[i: M] = >(U[i, r]);
}'''""",
        "T lies the other way": """\
chains = '''function (A[M, N]) -> (O) {
    T[r, i: 16, M] = >(A[i, 16 * q + r]);
    O[i: M] = >(T[r, i]);
}'''""",
    },
    4: {
        "counted": """\
def results(n, m, stride, gap):
    x = 0
    while stride * x + gap * (m - 1) < n:
        x += 1
    return x""",
        "the field's formula": """\
def results(n, m, stride, gap):
    return max(0, (n - gap * (m - 1) - 1) // stride + 1)""",
        "len of a range": """\
def results(n, m, stride, gap):
    return len(range(0, n - gap * (m - 1), stride))""",
    },
}
