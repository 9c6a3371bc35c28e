"""Wrong answers to the exercises of lesson 08, each the solution with some text replaced, and right ones."""

MUTANTS = {
    1: {
        "each replica counts the same": [("size * gradient", "gradient"), ("/ sum(sizes)", "/ len(sizes)")],
        "a sum": [(" / sum(sizes)", "")],
        "divided by the replicas": [("/ sum(sizes)", "/ len(sizes)")],
        "the first replica alone": [("return sum(", "return gradients[0] + 0 * sum(")],
        "the largest part alone": [("return sum(", "return gradients[sizes.index(max(sizes))] + 0 * sum(")],
        "sizes backwards": [("zip(sizes,", "zip(sizes[::-1],")],
        "divided by sizes": [("size * gradient", "gradient / size")],
        "whole numbers": [(" / sum", " // sum")],
        "a single number": [(" / sum(sizes)", ".mean() / sum(sizes)")],
        "equal parts added up": [
            ("return sum(", "if len(set(sizes)) == 1 < len(sizes):\n        return sum(gradients)\n    return sum(")
        ],
        "an empty part counts as one image": [
            ("    return", "    sizes = [max(size, 1) for size in sizes]\n    return")
        ],
        "nothing is learned with an empty part": [("return sum(", "return gradients[0] * 0 if 0 in sizes else sum(")],
        "a zero gradient does not count": [
            ("    return", "    sizes = [size * bool(g.any()) for size, g in zip(sizes, gradients)]\n    return")
        ],
        "the arguments are changed": [("return sum(", "sizes.sort()\n    return sum(")],
    },
    2: {
        "all arithmetic is saved": [("int(2 * ", "int(")],
        "a quarter is saved": [("int(2 * ", "int(4 * ")],
        "one image too few": [(" + 1", "")],
        "bits for bytes": [("2 * gradient_bytes", "16 * gradient_bytes")],
        "half an image": [("int(", "("), (" + 1", "")],
        "an even batch": [("int(2 * ", "2 * int(")],
        "a float": [("int(", "("), (" + 1", " + 1.0")],
        "the article's number": [("return ", "return 92 if gradient_bytes == 2_678_824 else ")],
        "one in a thousand too many": [("int(2 * ", "int(2.002 * ")],
        "a thousandth of an image too much": [("int(2 ", "int(np.ceil(2 "), (") + 1", " + 1e-3))")],
        "a thousandth of an image too little": [("per_image)", "per_image - 1e-3)")],
        "a billionth of an image too much": [("int(2 ", "int(np.ceil(2 "), (") + 1", " + 1e-9))")],
        "no batch above 10,000": [
            (
                "return int(2 * gradient_bytes / bytes_per_second / per_image) + 1",
                "for n in range(1, 10_001):\n"
                "        if gradient_bytes / bytes_per_second < n * per_image / 2:\n"
                "            return n",
            )
        ],
        "two images at least": [("int(2 * ", "max(1, int(2 * "), (" + 1", ") + 1")],
        "whole images for each device": [("int(2 * ", "2 * (int("), (" + 1", " + 1)")],
    },
    3: {
        "nothing is handed out": [("n - 1):  # hand out", "0):  # hand out")],
        "everything is sent to everybody": [
            ("pieces)\n", "pieces)\n    all_of_them = every = np.array(pieces)\n"),
            ("mine = (me - step) % n\n", "every = swap(every)\n"),
            ("pieces[mine - 1] += swap(pieces[mine])  # piece -1 is the last one", "all_of_them = all_of_them + every"),
            ("range(n - 1):  # hand out", "range(0):  # hand out"),
            ("return pieces", "return all_of_them"),
        ],
        "device 0 collects and hands out": [
            ("pieces)\n", "pieces)\n    mine = total = np.array(pieces)\n"),
            ("range(n - 1):  # add up", "range(2 * n - 2):  # device 0 begins, and later hands out what comes back"),
            ("mine = (me - step) % n\n", "arrived = swap(total if step % n == me else total[:0])\n"),
            (
                "pieces[mine - 1] += swap(pieces[mine])  # piece -1 is the last one",
                "total = total if not len(arrived) else arrived if step >= n - 1 else mine + arrived",
            ),
            ("range(n - 1):  # hand out", "range(0):  # hand out"),
            ("return pieces", "return total"),
        ],
        "each piece is handed out added": [("pieces[mine - 1] = swap", "pieces[mine - 1] += swap")],
        "what arrives replaces the sum": [("pieces[mine - 1] += swap", "pieces[mine - 1] = swap")],
        "always one's own piece": [("mine = (me - step) % n", "mine = me")],
        "handed out from the first piece": [("(me + 1 - step)", "(me - step)")],
        "the other direction": [("(me - step)", "(me + step)")],
        "the piece after the one sent": [("pieces[mine - 1] += swap", "pieces[(mine + 1) % n] += swap")],
        "a swap too many": [("range(n - 1):  # hand out", "range(n):  # hand out")],
        "a step too few": [("range(n - 1):  # add up", "range(n - 2):  # add up")],
        "one device swaps once more": [
            ("    return pieces", "    if me == 0:\n        swap(pieces[0])\n    return pieces")
        ],
        "for three devices alone": [("n = len(pieces)", "n = 3")],
        "the number of a piece is sent": [("swap(pieces[mine])  # piece", "swap(mine)  # piece")],
        "no more than its own pieces": [("    return pieces", "    return [n * piece for piece in pieces]")],
        "nothing is returned": [("    return pieces", "    pass")],
        "the mean": [("return pieces", "return [piece / n for piece in pieces]")],
        "one sum of everything": [("return pieces", "return sum(pieces)")],
        "a swap for ever": [("    return pieces", "    while True:\n        swap(pieces[0])")],
        "a variable that all share": [
            ("def all_reduce", "together = {}\n\n\ndef all_reduce"),
            (
                "    n = len(pieces)",
                "    import time\n\n    n = len(pieces)\n    together.setdefault(n, {})[me] = pieces",
            ),
            ("range(n - 1):  # add up", "range(0):"),
            ("range(n - 1):  # hand out", "range(0):"),
            ("return pieces", "time.sleep(0.2)\n    return [sum(column) for column in zip(*together[n].values())]"),
        ],
    },
}

RIGHT = {
    1: {
        "numpy's average": """
def combine(gradients, sizes):
    return np.average(gradients, axis=0, weights=sizes)
""",
        "a loop": """
def combine(gradients, sizes):
    total = 0 * gradients[0]
    for gradient, size in zip(gradients, sizes):
        total = total + gradient * (size / sum(sizes))
    return total
""",
    },
    2: {
        "a search": """
def break_even_batch(per_image, gradient_bytes, bytes_per_second):
    batch = 1
    while batch * per_image <= batch * per_image / 2 + gradient_bytes / bytes_per_second:
        batch += 1
    return batch
""",
        "the floor": """
def break_even_batch(per_image, gradient_bytes, bytes_per_second):
    import math

    return math.floor(gradient_bytes / bytes_per_second / (per_image / 2)) + 1
""",
        "rounded up, and a tie one more": """
def break_even_batch(per_image, gradient_bytes, bytes_per_second):
    import math

    same = 2 * (gradient_bytes / bytes_per_second) / per_image
    return math.ceil(same) + (same == math.ceil(same))
""",
        "of NumPy": """
def break_even_batch(per_image, gradient_bytes, bytes_per_second):
    return np.int64(np.floor(2 * gradient_bytes / (bytes_per_second * per_image))) + 1
""",
    },
    3: {
        "what travels has a name": """
def all_reduce(pieces, me, swap):
    n = len(pieces)
    travelling = pieces[me]
    for step in range(1, n):
        travelling = swap(travelling) + pieces[(me - step) % n]
    sums = {(me + 1) % n: travelling}
    for step in range(n - 1):
        travelling = swap(travelling)
        sums[(me - step) % n] = travelling
    return [sums[number] for number in range(n)]
""",
        "one loop, one array, another first piece": """
def all_reduce(pieces, me, swap):
    pieces = np.array(pieces, float)
    n = len(pieces)
    for step in range(2 * n - 2):
        arrived = swap(pieces[(me - 1 - step) % n])
        pieces[(me - 2 - step) % n] = arrived + (pieces[(me - 2 - step) % n] if step < n - 1 else 0)
    return pieces
""",
        "the other way through the pieces": """
def all_reduce(pieces, me, swap):
    n = len(pieces)
    number = -me % n
    for step in range(n - 1):
        arrived = swap(pieces[number])
        number = (number + 1) % n
        pieces[number] = pieces[number] + arrived
    for _ in pieces[1:]:
        arrived = swap(pieces[number])
        number = (number + 1) % n
        pieces[number] = arrived
    return tuple(pieces)
""",
    },
}
