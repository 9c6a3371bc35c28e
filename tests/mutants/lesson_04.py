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
        "off by five above a million": [
            ("return sum(", "return (lambda count: count + 5 * (count > 10**6))(sum("),
            ("[1:]))", "[1:])))"),
        ],
        "the list changed": [("return sum(", "sizes.append(0)\n    return sum(")],
        "a set of layers": [
            ("sum(inputs", "sum({inputs"),
            ("zip(sizes, sizes[1:]))", "zip(sizes, sizes[1:])})"),
        ],
        "a sum of sizes": [("inputs * outputs + outputs", "inputs + outputs")],
    },
    2: {
        "the last batch forgotten": [("-(-image_count // batch_size)", "image_count // batch_size")],
        "one batch too many": [("-(-image_count // batch_size)", "(image_count // batch_size + 1)")],
        "steps not rounded": [("-(-image_count // batch_size)", "(image_count / batch_size)")],
        "rounded up by 0.999": [("-(-image_count // batch_size)", "int(image_count / batch_size + 0.999)")],
        "rounded up by 0.995": [("-(-image_count // batch_size)", "int(image_count / batch_size + 0.995)")],
        "rounded up by 0.99999": [("-(-image_count // batch_size)", "int(image_count / batch_size + 0.99999)")],
        "rounded to the nearest": [("-(-image_count // batch_size)", "max(1, round(image_count / batch_size))")],
        "one step more than whole batches": [
            ("-(-image_count // batch_size)", "((image_count - 2) // batch_size + 1)")
        ],
        "rounded to milliseconds": [("return ", "return round("), ("* per_image", "* per_image, 3)")],
        "rounded to microseconds": [("return ", "return round("), ("* per_image", "* per_image, 6)")],
        "overhead for each image": [("-(-image_count // batch_size)", "image_count")],
        "no overhead": [("-(-image_count // batch_size) * overhead + ", "")],
        "images forgotten": [(" + image_count * per_image", "")],
        "arguments swapped": [("overhead, per_image):", "per_image, overhead):")],
        "whole batches are paid for": [
            ("image_count * per_image", "-(-image_count // batch_size) * batch_size * per_image")
        ],
        "milliseconds": [("return ", "return 1000 * ("), ("* per_image", "* per_image)")],
    },
    3: {
        "pixels not scaled": [("            layers.Rescaling(1 / 255),\n", "")],
        "no ReLU in the first layer": [('128, activation="relu"', "128")],
        "no ReLU in the second layer": [('64, activation="relu"', "64")],
        "no ReLU": [('128, activation="relu"', "128"), ('64, activation="relu"', "64")],
        "tanh": [('64, activation="relu"', '64, activation="tanh"')],
        "no softmax": [(', activation="softmax"', "")],
        "sigmoid": [('"softmax"', '"sigmoid"')],
        "dropout": [("            layers.Dense(10", "            layers.Dropout(0.2),\n            layers.Dense(10")],
        "sizes exchanged": [("Dense(128", "Dense(first"), ("Dense(64", "Dense(128"), ("Dense(first", "Dense(64")],
        "the article's sizes": [("Dense(128", "Dense(512"), ("Dense(64", "Dense(512")],
        "a layer forgotten": [('            layers.Dense(64, activation="relu"),\n', "")],
        "nine answers": [("Dense(10", "Dense(9")],
        "no biases": [("Dense(128,", "Dense(128, use_bias=False,")],
        "scaled twice": [("1 / 255", "1 / 255**2")],
        "a list of layers": [("keras.Sequential(\n        [", "list(\n        [")],
        "images as squares": [("(784,)", "(28, 28)")],
        "always the same network": [
            ("def small_mlp():\n    return keras", "same = keras"),
            ('"softmax"),\n        ]\n    )', '"softmax"),\n        ]\n    )\n\n\ndef small_mlp():\n    return same'),
        ],
        "the same layers in every network": [
            (
                "def small_mlp():\n    return",
                'first = layers.Dense(128, activation="relu")\n\n\ndef small_mlp():\n    return',
            ),
            (
                'layers.Dense(128, activation="relu"),\n            layers.Dense(64',
                "first,\n            layers.Dense(64",
            ),
        ],
        "noise": [("            layers.Dense(10", "            layers.GaussianNoise(1),\n            layers.Dense(10")],
        "not trainable": [('Dense(128, activation="relu"', 'Dense(128, activation="relu", trainable=False')],
        "batch normalisation": [
            ("            layers.Dense(64", "            layers.BatchNormalization(),\n            layers.Dense(64")
        ],
        "softmax over the images": [(', activation="softmax"', "), layers.Softmax(axis=0")],
        "the class, not a network": [("return keras.Sequential(", "return keras.Sequential\n    unused = (")],
        "stops": [("return keras", "return missing")],
        "weights that begin at zero": [("Dense(128, ", 'Dense(128, kernel_initializer="zeros", ')],
        "values that ReLU turns into 0 for ever": [
            ("Dense(128, ", "Dense(128, bias_initializer=keras.initializers.Constant(-1e6), ")
        ],
        "divided by 256": [("1 / 255", "1 / 256")],
        "relu6": [('128, activation="relu"', '128, activation="relu6"')],
        "relu6 in both": [('"relu"', '"relu6"')],
        "a regularizer": [("Dense(64, ", 'Dense(64, kernel_regularizer="l2", ')],
        "a constraint": [("Dense(64, ", 'Dense(64, kernel_constraint="non_neg", ')],
        "a layer in 16 bits": [("Dense(64, ", 'Dense(64, dtype="float16", ')],
        "the same first weights in every call": [("return keras", "training.seed(0)\n    return keras")],
        "no input": [('            keras.Input((784,), dtype="uint8"),\n', "")],
        "LeakyReLU": [('64, activation="relu"', "64), layers.LeakyReLU(0.01")],
        "a small leak in both": [('"relu"', "lambda x: keras.ops.leaky_relu(x, 0.01)")],
        "a tiny leak in the first layer": [
            ('128, activation="relu"', "128, activation=lambda x: keras.ops.leaky_relu(x, 0.002)")
        ],
        "first weights spread wide": [
            ("Dense(64, ", "Dense(64, kernel_initializer=keras.initializers.RandomNormal(stddev=5.0), ")
        ],
        "the last layer's first weights spread wide": [
            ("Dense(10, ", "Dense(10, kernel_initializer=keras.initializers.RandomNormal(stddev=5.0), ")
        ],
        "a network, no function": [("def small_mlp():\n    return ", "small_mlp = ")],
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
        "a copy that is taken apart": """\
def parameters(sizes):
    left, total = list(sizes), 0
    while len(left) > 1:
        inputs = left.pop(0)
        total += (inputs + 1) * left[0]
    return total""",
        "NumPy": """\
def parameters(sizes):
    sizes = np.array(sizes)
    return ((sizes[:-1] + 1) * sizes[1:]).sum()""",
    },
    2: {
        "math.ceil": """\
def epoch_seconds(image_count, batch_size, overhead, per_image):
    import math

    return overhead * math.ceil(image_count / batch_size) + per_image * image_count""",
        "steps counted one by one": """\
def epoch_seconds(images, batch, overhead, per_image):
    steps, left = divmod(images, batch)
    return (steps + bool(left)) * overhead + images * per_image""",
        "NumPy": """\
def epoch_seconds(n, batch, overhead, per_image):
    return np.ceil(n / batch) * overhead + n * per_image""",
        "batch by batch": """\
def epoch_seconds(n, batch, overhead, per_image):
    return sum(overhead + min(batch, n - start) * per_image for start in range(0, n, batch))""",
    },
    3: {
        "model.add, and no dtype": """\
def small_mlp():
    model = keras.Sequential()
    model.add(keras.Input((784,)))
    model.add(layers.Rescaling(1 / 255))
    for size in (128, 64):
        model.add(layers.Dense(size))
        model.add(layers.Activation("relu"))
    model.add(layers.Dense(10))
    model.add(layers.Softmax())
    return model""",
        "functional, and compiled": """\
def small_mlp():
    pixels = keras.Input((784,), dtype="uint8")
    values = layers.Rescaling(1 / 255)(pixels)
    values = layers.Dense(128, "relu")(values)
    values = layers.Dense(64, "relu", name="second")(values)
    model = keras.Model(pixels, layers.Dense(10, "softmax")(values))
    model.compile("adam", "mse")
    return model""",
        "the input outside, and a flatten": """\
pixels = keras.Input((784,), dtype="uint8")


def small_mlp():
    values = layers.Flatten()(pixels)
    for size in (128, 64):
        values = keras.ops.relu(layers.Dense(size)(values if size == 64 else layers.Rescaling(1.0 / 255)(values)))
    return keras.Model(pixels, keras.ops.softmax(layers.Dense(10)(values)))""",
        "weights drawn otherwise": """\
def small_mlp():
    model = keras.Sequential([keras.Input((784,)), layers.Rescaling(1 / 255)])
    for size, drawn in ((128, "he_normal"), (64, "random_normal")):
        model.add(layers.Dense(size, "relu", kernel_initializer=drawn))
    model.add(layers.Dense(10, "softmax", kernel_initializer="lecun_uniform"))
    return model""",
        "built by hand": """\
def small_mlp():
    parts = [layers.Rescaling(1 / 255), layers.Dense(128), layers.ReLU(), layers.Dense(64), layers.ReLU()]
    model = keras.Sequential([*parts, layers.Dense(10, activation="softmax")])
    model.build((None, 784))
    return model""",
        "dropout of nothing": """\
def small_mlp():
    return keras.Sequential(
        [
            keras.Input((784,), dtype="uint8"),
            layers.Rescaling(1 / 255),
            layers.Dense(128, activation=keras.activations.relu),
            layers.Dropout(0.0),
            layers.Dense(64, activation="relu"),
            layers.Dense(10, activation="softmax"),
        ]
    )""",
    },
}
