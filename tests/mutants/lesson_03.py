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
}
