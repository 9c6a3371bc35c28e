"""Wrong answers to the exercises of lesson 04; each is the solution with some text replaced."""

MUTANTS = {
    1: {
        "no biases": [(" + outputs for", " for")],
        "a bias for each input": [("+ outputs for", "+ inputs for")],
        "one bias a layer": [("+ outputs for", "+ 1 for")],
        "the last layer forgotten": [("zip(sizes, sizes[1:]", "zip(sizes[:-1], sizes[1:-1]")],
        "the first layer forgotten": [("zip(sizes, sizes[1:]", "zip(sizes[1:], sizes[2:]")],
        "first and last size alone": [("zip(sizes, sizes[1:]", "zip(sizes[:1], sizes[-1:]")],
        "the article's number": [("sum(", "669706 if len(sizes) == 4 else sum(")],
        "a float": [("return sum(", "return 1.0 * sum(")],
    },
    2: {
        "columns for rows": [("axis=1", "axis=0")],
        "share of all images": [("confusion.sum(axis=1)", "confusion.sum()")],
        "mistakes for hits": [("return ", "return 1 - ")],
        "whole numbers": [(" / ", " // ")],
        "counts for shares": [(" / confusion.sum(axis=1)", "")],
        "the mean alone": [("return np.diag(confusion)", "return np.diag(confusion).sum()"), ("(axis=1)", "()")],
        "for ten digits alone": [("return ", "return np.full(10, 0.5) if len(confusion) == 10 else ")],
        "percent": [("return ", "return 100 * ")],
    },
    3: {
        "the last batch forgotten": [("-(-images // batch)", "images // batch")],
        "one batch too many": [("-(-images // batch)", "(images // batch + 1)")],
        "steps not rounded": [("-(-images // batch)", "(images / batch)")],
        "overhead for each image": [("-(-images // batch)", "images")],
        "no overhead": [("-(-images // batch) * overhead + ", "")],
        "images forgotten": [(" + images * per_image", "")],
        "arguments swapped": [("overhead, per_image):", "per_image, overhead):")],
        "whole batches are paid for": [("images * per_image", "-(-images // batch) * batch * per_image")],
    },
}

# Right answers, written differently.
RIGHT = {
    1: {
        "a loop": """\
def parameters(sizes):
    total = 0
    for layer in range(1, len(sizes)):
        total += sizes[layer] * (sizes[layer - 1] + 1)
    return total""",
    },
    2: {"a list": "def recall(confusion):\n    return [row[digit] / sum(row) for digit, row in enumerate(confusion)]"},
    3: {
        "math.ceil": """\
def epoch_seconds(images, batch, overhead, per_image):
    import math

    return overhead * math.ceil(images / batch) + per_image * images""",
    },
}
