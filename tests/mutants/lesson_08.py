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
        "two images at least": [("int(2 * ", "max(1, int(2 * "), (" + 1", ") + 1")],
        "whole images for each device": [("int(2 * ", "2 * (int("), (" + 1", " + 1)")],
    },
    3: {
        "the bubble": [("return parts /", "return 1 - parts /")],
        "no bubble": [("(parts + devices - 1)", "parts")],
        "one turn too many": [("devices - 1", "devices")],
        "for two devices alone": [("devices - 1", "1")],
        "the other way round": [("return parts /", "return devices /")],
        "percent": [("return parts", "return 100 * parts")],
        "whole numbers": [(" / ", " // ")],
        "one piece": [("return parts", "return 1")],
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
        "one less the bubble": """
def busy_share(devices, parts):
    return 1 - (devices - 1) / (parts + devices - 1)
""",
        "turns counted": """
def busy_share(devices, parts):
    turns = devices + parts - 1
    return sum(1 for turn in range(turns) if turn < parts) / turns
""",
    },
}
