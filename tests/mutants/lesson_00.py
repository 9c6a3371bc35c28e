"""Wrong answers to the exercises of lesson 00; each is the solution with some text replaced."""

MUTANTS = {
    1: {
        "always the first device": [
            ('return kinds.index("gpu")', "return 0"),
            ('return kinds.index("cpu")', "return 0"),
        ],
        "CPU and GPU swapped": [
            ('if "gpu" in kinds', 'if "cpu" in kinds'),
            ('return kinds.index("gpu")', 'return kinds.index("cpu")'),
            ('    return kinds.index("cpu")\n', '    return kinds.index("gpu")\n'),
        ],
        "the last GPU": [('kinds.index("gpu")', 'len(kinds) - 1 - kinds[::-1].index("gpu")')],
        "off by one": [('kinds.index("gpu")', 'kinds.index("gpu") + 1')],
        "only the first three": [('if "gpu" in kinds', 'if "gpu" in kinds[:3]')],
        "takes what is not a GPU for a CPU": [('kinds.index("cpu")', "0")],
    },
    2: {
        "starts at one": [("range(10)", "range(1, 11)")],
        "nine digits": [("range(10)", "range(9)")],
        "only the digits that occur": [("for digit in range(10)", "for digit in sorted(set(labels.tolist()))")],
        "shares instead of counts": [(".sum()", ".mean()")],
        "right only for 200 labels": [
            ("(labels == digit).sum()", "(labels[-200:] == digit).sum() if len(labels) > 3 else 1")
        ],
        "counts the others": [("labels == digit", "labels != digit")],
    },
    3: {
        "arguments swapped": [("(idle, busy):", "(busy, idle):")],
        "the gap without a sign": [("return ", "return abs("), (" > 5", ") > 5")],
        "no margin": [("> 5", "> 0")],
        "equal counts as larger": [("> 5", ">= 5")],
        "medians for quartiles": [("25", "50"), ("75", "50")],
        "quartiles swapped": [("busy, 25", "busy, 75"), ("idle, 75", "idle, 25")],
        "all of them, not three quarters": [
            ("np.percentile(busy, 25)", "min(busy)"),
            ("np.percentile(idle, 75)", "max(idle)"),
        ],
        "means": [("np.percentile(busy, 25)", "np.mean(busy)"), ("np.percentile(idle, 75)", "np.mean(idle)")],
        "always": [("np.percentile(busy, 25) - np.percentile(idle, 75) > 5", "True")],
    },
}

# Right answers, written differently.
RIGHT = {
    1: {
        "a loop": """\
def choose(kinds):
    best = None
    for place, kind in enumerate(kinds):
        if kind == "gpu":
            return place
        if kind == "cpu" and best is None:
            best = place
    return best""",
    },
    2: {"bincount": "def count_labels(labels):\n    return np.bincount(labels, minlength=10)"},
    3: {
        "quantiles": "def is_used(idle, busy):\n    return bool(np.quantile(busy, 0.25) > np.quantile(idle, 0.75) + 5)"
    },
}
