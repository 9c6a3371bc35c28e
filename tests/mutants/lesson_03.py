"""Wrong answers to lesson 03's exercises that look right."""

MUTANTS = {
    1: {
        "rows with rows": [("G[i, j: N, N]", "G[i, j: M, M]"), ("A[k, i] * A[k, j]", "A[i, k] * A[j, k]")],
        "added": [("A[k, i] * A[k, j]", "A[k, i] + A[k, j]")],
        "the largest product": [("+(", ">(")],
        "every column with itself": [("A[k, i] * A[k, j]", "A[k, i] * A[k, i]")],
        "too few rows": [("N, N]", "N - N / 3, N]")],
        "a transposed input": [("(A[M, N])", "(A[N, M])")],
        "not every row": [("A[k, j])", "A[k, j]), k < 3")],
    },
    2: {
        "sums": [("= >(", "= +(")],
        "the smallest": [("= >(", "= <(")],
        "every element": [("2 * x + j", "x + j")],
        "two neighbours": [("j < 3", "j < 2")],
        "four neighbours": [("j < 3", "j < 4")],
        "windows that are not whole": [("(N - 1) / 2", "(N + 1) / 2")],
        "the last window is missing": [("(N - 1) / 2", "(N - 2) / 2")],
        "starts one later": [("2 * x + j", "2 * x + j + 1")],
    },
    3: {
        "looks ahead": [("I[i - k]", "I[i + k]")],
        "the filter turned round": [("K[k]", "K[L - 1 - k]")],
        "the whole convolution": [("O[i: N]", "O[i: N + L - 1]")],
        "starts one later": [("I[i - k]", "I[i - k - 1]")],
        "added": [("* K[k]", "+ K[k]")],
        "three steps alone": [("K[k])", "K[k]), k < 3")],
        "the largest": [("+(", ">(")],
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
        "other letters, on two lines": """\
gram = '''function (X[R, C]) -> (G) {
    G[a, b: C, C]
        = +(X[r, b] * X[r, a]);
}'''""",
        "a transposed copy first": """\
gram = '''function (A[M, N]) -> (G) {
    T[j, i: N, M] = =(A[i, j]);
    G[i, j: N, N] = +(T[i, k] * A[k, j]);
}'''""",
    },
    2: {
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
    3: {
        "by the place in I": """\
echo = '''function (I[N], K[L]) -> (O) {
    O[i: N] = +(K[i - j] * I[j]);
}'''""",
        "with a constraint that changes nothing": """\
echo = '''function (I[N], K[L]) -> (O) {
    O[i: N] = +(I[i - k] * K[k]), i - k < N;
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
