"""Wrong answers to the exercises of lesson NN; each is the solution with some text replaced.

RIGHT: right answers that are written otherwise.
"""

MUTANTS = {
    1: {
        "starts at zero": [("found = numbers[0]", "found = 0.0")],
        "the smallest": [("number > found", "number < found")],
        "the last one": [("if number > found:", "if True:")],
        "leaves out the last one": [("in numbers:", "in numbers[:-1]:")],
    },
    2: {
        "upside down": [("np.median(before) / np.median(after)", "np.median(after) / np.median(before)")],
        "the means": [("np.median(before)", "np.mean(before)"), ("np.median(after)", "np.mean(after)")],
        "the best of each": [("np.median(before)", "min(before)"), ("np.median(after)", "min(after)")],
        "the seconds saved": [(" / ", " - ")],
    },
}

RIGHT = {
    1: {"Python's own": "largest = max", "sorted": "def largest(numbers):\n    return sorted(numbers)[-1]"},
    2: {
        "the standard library": "import statistics\n\n\ndef times_as_fast(before, after):\n"
        "    return statistics.median(before) / statistics.median(after)"
    },
}
