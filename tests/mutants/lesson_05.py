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
        "one too many where the count is large": [("weights * places", "weights * places + (weights * places > 1e5)")],
        "one too few beyond a million": [("weights * places", "weights * places - (weights * places > 10**6)")],
        "parameters one too many where they are many": [("weights + filters", "weights + filters + (weights > 1e5)")],
        "in single precision": [("weights * places", "int(np.float32(weights) * np.float32(places))")],
        "floats": [("return weights + filters,", "return float(weights + filters),")],
        "a list of one": [("return weights + filters, weights * places", "return [weights + filters]")],
        "a single number": [("weights + filters, weights * places", "weights * places")],
        "padded, as large as the image": [("size + 1", "size + 1 + size // 2 * 2")],
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
        "bytes kept as bytes": [
            ("return np.stack(columns, axis=1)", "return np.stack(columns, axis=1).astype('uint8')")
        ],
        "whole numbers alone": [("np.stack(columns, axis=1)", "np.stack(columns, axis=1).astype(int)")],
        "half precision": [("axis=1)", "axis=1).astype('float16')")],
        "right for small images alone": [("h, w = image.shape", "h, w = min(image.shape[0], 20), image.shape[1]")],
        "the image changed": [("h, w = image.shape", "h, w = image.shape\n    image[h > 4 and -1, 0] += h > 4")],
        "strides of 2": [(": y + h - 2, x : x + w - 2", ": y + h - 2 : 2, x : x + w - 2 : 2")],
        "a loop that stops at nine places": [("axis=1)", "axis=1)[:9] if h > 9 else np.stack(columns, axis=1)")],
    },
    3: {
        "the second ReLU forgotten": [("            layers.ReLU(),\n", "")],
        "both ReLU kept as they were": [
            ("layers.Conv2D(64, 3),", 'layers.Conv2D(64, 3, activation="relu"),'),
            ("            layers.ReLU(),\n", ""),
        ],
        "the first ReLU gone": [('layers.Conv2D(32, 3, activation="relu")', "layers.Conv2D(32, 3)")],
        "pixels not scaled": [("            layers.Rescaling(1 / 255),\n", "")],
        "float pixels": [(', dtype="uint8"', ""), ("            layers.Rescaling(1 / 255),\n", "")],
        "mean pooling": [("MaxPooling2D", "AveragePooling2D")],
        "no dropout": [("            layers.Dropout(0.25),\n", "")],
        "another dropout": [("layers.Dropout(0.5)", "layers.Dropout(0.25)")],
        "fewer filters": [("layers.Conv2D(64, 3)", "layers.Conv2D(32, 3)")],
        "padding": [("layers.Conv2D(64, 3)", 'layers.Conv2D(64, 3, padding="same")')],
        "a stride for the pooling": [
            ("layers.Conv2D(64, 3)", "layers.Conv2D(64, 3, strides=2)"),
            ("            layers.MaxPooling2D(2),\n", ""),
        ],
        "a layer that does not learn": [("layers.Conv2D(64, 3)", "layers.Conv2D(64, 3, trainable=False)")],
        "no softmax": [('layers.Dense(10, activation="softmax")', "layers.Dense(10)")],
        "a list of layers": [("return keras.Sequential(", "return list(")],
        "means": [("np.median(after) - np.median(before)", "np.mean(after) - np.mean(before)")],
        "no spread": [("abs(gap) <= max(spreads)", "gap == 0")],
        "the smaller spread": [("max(spreads)", "min(spreads)")],
        "the spread of the first alone": [("max(spreads)", "spreads[0]")],
        "from the fastest to the slowest": [("np.percentile(seconds, [75, 25])", "(max(seconds), min(seconds))")],
        "standard deviations": [("np.subtract(*np.percentile(seconds, [75, 25]))", "np.std(seconds)")],
        "the fastest runs": [("np.median(after) - np.median(before)", "min(after) - min(before)")],
        "both spreads together": [("max(spreads)", "sum(spreads)")],
        "the mean of both spreads": [("max(spreads)", "np.mean(spreads)")],
        "noise while it learns": [
            (
                "            layers.Flatten(),\n",
                "            layers.GaussianNoise(0.1),\n            layers.Flatten(),\n",
            )
        ],
        "16 bits": [
            (
                "    return keras.Sequential(",
                '    return build_cnn(uint8=True, precision="mixed_bfloat16")\n    keras.Sequential(',
            )
        ],
        "no input": [('            keras.Input((28, 28, 1), dtype="uint8"),\n', "")],
        "a form of the lesson with another compile": [
            (
                "    return keras.Sequential(",
                "    return build_cnn(uint8=True, steps_per_execution=2)\n    keras.Sequential(",
            )
        ],
        "channels first": [
            (
                "    return keras.Sequential(",
                '    return build_cnn(uint8=True, channels="first")\n    keras.Sequential(',
            )
        ],
        "ReLU twice": [("layers.Conv2D(64, 3),", 'layers.Conv2D(64, 3, activation="relu"),')],
        "ReLU written as a layer of its own": [
            ("            layers.MaxPooling2D(2),\n", ""),
            ("            layers.ReLU(),\n", "            layers.ReLU(),\n            layers.MaxPooling2D(2),\n"),
        ],
        "a layer that passes all on": [
            ("layers.Conv2D(64, 3),", 'layers.Conv2D(64, 3, activation="relu"),'),
            ("layers.ReLU(),", "layers.Identity(),"),
        ],
        "leaky": [("layers.ReLU(),", "layers.LeakyReLU(negative_slope=0.01),")],
        "ReLU up to 6": [("layers.ReLU(),", "layers.ReLU(max_value=6),")],
        "the first ReLU up to 6": [('3, activation="relu"', '3, activation="relu6"')],
        "a penalty for large weights": [("layers.Conv2D(64, 3)", 'layers.Conv2D(64, 3, kernel_regularizer="l2")')],
        "a limit for the weights": [("layers.Conv2D(64, 3)", 'layers.Conv2D(64, 3, kernel_constraint="max_norm")')],
        "other first weights": [("layers.Conv2D(64, 3)", 'layers.Conv2D(64, 3, kernel_initializer="he_normal")')],
        "dropout before the pooling": [
            ("            layers.Dropout(0.25),\n", ""),
            (
                "            layers.MaxPooling2D(2),\n",
                "            layers.Dropout(0.25),\n            layers.MaxPooling2D(2),\n",
            ),
        ],
        "fractions as input, and scaled": [(', dtype="uint8"', "")],
        "scaled by 256": [("1 / 255", "1 / 256")],
        "the function of the lesson": [
            ("    return keras.Sequential(", "    return article_c()\n    keras.Sequential("),
        ],
        "batches of another size": [('dtype="uint8"', 'dtype="uint8", batch_size=64')],
        "equal is enough for a claim": [("abs(gap) <= max(spreads)", "abs(gap) < max(spreads)")],
        "the upper of two middles": [
            (
                "np.median(after) - np.median(before)",
                "sorted(after)[len(after) // 2] - sorted(before)[len(before) // 2]",
            )
        ],
        "capital letters": [('"slower" if gap > 0 else "faster"', '"Slower" if gap > 0 else "Faster"')],
        "a guess in other words": [('guess = "no claim"', 'guess = "quicker"')],
        "a guess with a capital letter": [('guess = "no claim"', 'guess = "Faster"')],
        "the wrong way round": [('"slower" if gap > 0 else "faster"', '"faster" if gap > 0 else "slower"')],
        "always no claim": [("abs(gap) <= max(spreads)", "True")],
        "a tenth is enough": [("abs(gap) <= max(spreads)", "abs(gap) < 0.1 * np.median(before)")],
        "middle of an unsorted list": [
            ("np.median(after) - np.median(before)", "after[len(after) // 2] - before[len(before) // 2]")
        ],
    },
}

_NETWORK = """
def build_mine():
    return keras.Sequential([keras.Input((28, 28, 1), dtype="uint8"), layers.Rescaling(1 / 255), {},
        layers.Dropout(0.25), layers.Flatten(), layers.Dense(128, activation="relu"), layers.Dropout(0.5),
        layers.Dense(10, activation="softmax")])
"""
_MOVED = """layers.Conv2D(32, 3, activation="relu"), layers.Conv2D(64, 3),
        layers.MaxPooling2D(2), layers.ReLU()"""
_DECIDE = """
def decide(before, after):
    one, other = np.median(before), np.median(after)
    spread = max(np.ptp(np.percentile(times, [25, 75])) for times in (before, after))
    return "faster" if one - other > spread else "slower" if other - one > spread else "no claim"
"""

# Right answers, written otherwise than the solution.
RIGHT = {
    1: {
        "a list": "def convolution_cost(height, width, channels, filters, size):\n"
        "    w = size**2 * channels * filters\n"
        "    return [w + filters, w * (height + 1 - size) * (width + 1 - size)]",
        "an array": "def convolution_cost(height, width, channels, filters, size):\n"
        "    w = size**2 * channels * filters\n"
        "    return np.array([w + filters, w * (height + 1 - size) * (width + 1 - size)])",
        "other names, a loop": "def convolution_cost(h, w, c, f, s):\n    n = 0\n    for _ in range(h - s + 1):\n"
        "        n += w - s + 1\n    return f * (s * s * c + 1), n * s * s * c * f",
        "Keras counts the parameters": "def convolution_cost(height, width, channels, filters, size):\n"
        "    layer = layers.Conv2D(filters, size)\n    layer.build((None, height, width, channels))\n"
        "    places = (height - size + 1) * (width - size + 1)\n"
        "    return layer.count_params(), places * (layer.count_params() - filters)",
    },
    2: {
        "loops": "def neighbours(image):\n    h, w = image.shape\n"
        "    return np.array([image[y : y + 3, x : x + 3].ravel() for y in range(h - 2) for x in range(w - 2)])",
        "sliding windows": "def neighbours(image):\n"
        "    return np.lib.stride_tricks.sliding_window_view(image, (3, 3)).reshape(-1, 9)",
        "indices": "def neighbours(image):\n    h, w = image.shape\n"
        "    first = (np.arange(h - 2)[:, None] * w + np.arange(w - 2)).ravel()\n"
        "    return image.ravel()[first[:, None] + (np.arange(3)[:, None] * w + np.arange(3)).ravel()]",
        "float64": "def neighbours(image):\n    h, w = image.shape\n    rows = np.zeros(((h - 2) * (w - 2), 9))\n"
        "    for n in range(len(rows)):\n        y, x = divmod(n, w - 2)\n"
        "        rows[n] = image[y : y + 3, x : x + 3].ravel()\n    return rows",
        "a list of rows": "def neighbours(image):\n    h, w = image.shape\n"
        "    return [list(image[y : y + 3, x : x + 3].ravel()) for y in range(h - 2) for x in range(w - 2)]",
    },
    3: {
        "quartiles by the standard library": _NETWORK.format(_MOVED)
        + """
def decide(before, after):
    import statistics
    def spread(times):
        low, _, high = statistics.quantiles(times, n=4)
        return high - low
    gap = statistics.median(after) - statistics.median(before)
    if abs(gap) > max(spread(before), spread(after)):
        return "faster" if gap < 0 else "slower"
    return "no claim"
""",
        "an Activation layer, compiled": _NETWORK.format(
            _MOVED.replace("layers.ReLU()", 'layers.Activation("relu")')
        ).replace("return keras.Sequential", "model = keras.Sequential")
        + '    model.compile("sgd", "mse")\n    return model\n'
        + _DECIDE,
        "no pooling twice": _NETWORK.format(
            _MOVED.replace("layers.MaxPooling2D(2)", "layers.MaxPooling2D(1), layers.MaxPooling2D(2)")
        )
        + _DECIDE,
        "another change: the largest of four": _NETWORK.format(
            'layers.Conv2D(32, 3, activation="relu"), layers.Conv2D(64, 3, activation="relu"), '
            "lesson.slice_max_pooling()(2)"
        )
        + _DECIDE,
        "batches of one size": _NETWORK.format(_MOVED).replace('dtype="uint8"', 'dtype="uint8", batch_size=128')
        + _DECIDE,
        "ReLU after the dropout": _NETWORK.format(
            _MOVED.replace("layers.ReLU()", "layers.Dropout(0.25), layers.ReLU()")
        ).replace("layers.ReLU(),\n        layers.Dropout(0.25),", "layers.ReLU(),")
        + _DECIDE,
        "a network in a network": _NETWORK.format(f"keras.Sequential([{_MOVED}])") + _DECIDE,
        "an operation": """
def build_mine():
    x = start = keras.Input((28, 28, 1), dtype="uint8")
    for layer in (layers.Rescaling(1 / 255), layers.Conv2D(32, 3, activation="relu"), layers.Conv2D(64, 3),
                  layers.MaxPooling2D(2), ops.relu, layers.Dropout(0.25), layers.Flatten(),
                  layers.Dense(128, activation="relu"), layers.Dropout(0.5), layers.Dense(10, activation="softmax")):
        x = layer(x)
    return keras.Model(start, x)
"""
        + _DECIDE,
        "a functional model": """
def build_mine():
    x = start = keras.Input((28, 28, 1), dtype="uint8")
    for layer in (layers.Rescaling(1 / 255), layers.Conv2D(32, 3, activation="relu"), layers.Conv2D(64, 3),
                  layers.MaxPooling2D(2), layers.ReLU(), layers.Dropout(0.25), layers.Flatten(),
                  layers.Dense(128, activation="relu"), layers.Dropout(0.5), layers.Dense(10, activation="softmax")):
        x = layer(x)
    return keras.Model(start, x)
"""
        + _DECIDE,
    },
}
