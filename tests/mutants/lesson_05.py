"""Wrong answers to the exercises of lesson 05; each is the solution with some text replaced."""

MUTANTS = {
    1: {
        "biases forgotten": [("weights + filters", "weights")],
        "a bias for each channel": [("weights + filters", "weights + channels")],
        "channels forgotten": [("size * size * channels * filters", "size * size * filters")],
        "filters forgotten": [("size * size * channels * filters", "size * size * channels")],
        "places as large as the image": [("(height - size + 1) * (width - size + 1)", "height * width")],
        "off by one": [("size + 1) * (width - size + 1)", "size) * (width - size)")],
        "square images alone": [("(width - size + 1)", "(height - size + 1)")],
        "filters of 3 x 3 alone": [("size * size", "9"), ("size + 1", "2")],
        "biases multiplied too": [("weights * places", "(weights + filters) * places")],
        "answers swapped": [("weights + filters, weights * places", "weights * places, weights + filters")],
        "places added": [("weights * places", "weights + places")],
    },
    2: {
        "columns before rows": [("for y in range(3) for x in range(3)", "for x in range(3) for y in range(3)")],
        "flipped": [("image[y : y + h - 2, x : x + w - 2]", "image[2 - y : h - y, 2 - x : w - x]")],
        "rows and columns of the result swapped": [("axis=1", "axis=0")],
        "places column by column": [(".ravel()", ".T.ravel()")],
        "square images alone": [("w - 2", "h - 2")],
        "the last place forgotten": [("h - 2", "h - 3")],
        "the corner alone": [("image[y : y + h - 2, x : x + w - 2]", "image[: h - 2, : w - 2]")],
        "four dimensions": [(".ravel()", "")],
    },
    3: {
        "the smallest": [("np.maximum", "np.minimum")],
        "the mean": [
            ("np.maximum(image[::2], image[1::2])", "(image[::2] + image[1::2]) / 2"),
            ("np.maximum(rows[:, ::2], rows[:, 1::2])", "(rows[:, ::2] + rows[:, 1::2]) / 2"),
        ],
        "rows alone": [("return np.maximum(rows[:, ::2], rows[:, 1::2])", "return rows")],
        "every other pixel": [("np.maximum(image[::2], image[1::2])", "image[::2]")],
        "negative numbers forgotten": [("image[1::2])", "image[1::2].clip(0))")],
        "halves instead of neighbours": [("image[::2], image[1::2]", "*np.split(image, 2)")],
        "neighbours that overlap": [("image[::2], image[1::2]", "image[:-1], image[1:]")],
        "the sum": [("np.maximum(rows[:, ::2], rows[:, 1::2])", "rows[:, ::2] + rows[:, 1::2]")],
    },
}
