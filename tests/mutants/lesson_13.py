"""Wrong answers to the exercises of lesson 13; each is the solution with some text replaced."""

PREPARED = "images.transpose(2, 0, 1).reshape(-1, 784).astype(np.float32) / 255"
SHUFFLED = "    order = rng.permutation(len(x))\n    return x[order], labels[order]"
RETURNED = "    return x[order], labels[order]"
STEP = "weights - 0.5 * (scaled.astype(np.float32) / scale)"

MUTANTS = {
    1: {
        "reshape in place of transpose": [(".transpose(2, 0, 1)", "")],
        "two permutations": [(RETURNED, "    return x[order], labels[rng.permutation(len(x))]")],
        "not scaled": [(" / 255", "")],
        "rows and columns swapped": [("(2, 0, 1)", "(2, 1, 0)")],
        "the axis moved to the wrong place": [("(2, 0, 1)", "(0, 2, 1)")],
        "labels not shuffled": [(RETURNED, "    return x[order], labels")],
        "images not shuffled": [(RETURNED, "    return x, labels[order]")],
        "nothing shuffled": [(RETURNED, "    return x, labels")],
        "drawn with replacement": [("rng.permutation(len(x))", "rng.integers(0, len(x), len(x))")],
        "shuffled always alike": [("rng.permutation", "np.random.default_rng(0).permutation")],
        "shuffled by another generator": [("rng.permutation", "np.random.default_rng().permutation")],
        "float64": [("astype(np.float32)", "astype(np.float64)")],
        "scaled twice": [(" / 255", " / 255 / 255")],
        "scaled by 256": [(" / 255", " / 256")],
        "from -1 to 1": [(" / 255", " / 127.5 - 1")],
        "scaled by whole numbers": [(f"{PREPARED}", f"({PREPARED.replace(' / 255', ' // 255')})")],
        "rounded": [(PREPARED, f"({PREPARED}).round(2).astype(np.float32)")],
        "inverted": [(PREPARED, f"1 - {PREPARED}")],
        "each image scaled by its own darkest": [
            (
                PREPARED,
                "images.transpose(2, 0, 1).reshape(-1, 784).astype(np.float32)\n"
                "    x = x / x.max(axis=1, keepdims=True)",
            ),
        ],
        "scaled by the darkest of all": [(" / 255", " / np.float32(images.max())")],
        "labels as text": [(RETURNED, "    return x[order], labels[order].astype(str)")],
        "labels in float32": [(RETURNED, "    return x[order], labels[order].astype(np.float32)")],
        "rolled": [("rng.permutation(len(x))", "np.roll(np.arange(len(x)), rng.integers(1, 10**6))")],
        "rolled backwards": [("rng.permutation(len(x))", "np.roll(np.arange(len(x)), rng.integers(1, 10**6))[::-1]")],
        "two images exchanged": [
            (
                "rng.permutation(len(x))",
                "np.arange(len(x))\n    i = rng.integers(len(x))\n    order[[0, i]] = order[[i, 0]]",
            ),
        ],
        "one half shuffled": [
            (
                "rng.permutation(len(x))",
                "np.r_[np.arange(len(x) // 2), len(x) // 2 + rng.permutation(len(x) - len(x) // 2)]",
            ),
        ],
        "one image lost": [(RETURNED, "    return x[order][1:], labels[order][1:]")],
        "sorted by label": [("rng.permutation(len(x))", "np.argsort(labels)")],
        "still images": [(RETURNED, "    return x[order].reshape(-1, 28, 28), labels[order]")],
        "labels as a column": [(RETURNED, "    return x[order], labels[order][:, None]")],
        "labels first": [(RETURNED, "    return labels[order], x[order]")],
        "shuffles the given labels": [
            (
                SHUFFLED,
                "    order = rng.permutation(len(x))\n    labels[:] = labels[order]\n    return x[order], labels",
            ),
        ],
        "one shuffled after the other": [
            (SHUFFLED, "    labels = labels.copy()\n    rng.shuffle(x)\n    rng.shuffle(labels)\n    return x, labels"),
        ],
    },
    2: {
        "not unscaled": [(" / scale)", ")")],
        "unscaled in float16": [("scaled.astype(np.float32) / scale", "scaled / np.float16(scale)")],
        "NaN not seen": [("not np.isfinite(scaled).all()", "np.isinf(scaled).any()")],
        "inf not seen": [("not np.isfinite(scaled).all()", "np.isnan(scaled).any()")],
        "any in place of all": [("np.isfinite(scaled).all()", "np.isfinite(scaled).any()")],
        "sum asked": [("not np.isfinite(scaled).all()", "np.isinf(scaled.sum())")],
        "a finite sum asked for": [("np.isfinite(scaled).all()", "np.isfinite(scaled.sum())")],
        "minus inf not seen": [("not np.isfinite(scaled).all()", "not scaled.max() < np.inf")],
        "the largest taken for inf": [("not np.isfinite(scaled).all()", "not (np.abs(scaled) < 65504).all()")],
        "never skipped": [("not np.isfinite(scaled).all()", "False")],
        "scale kept after inf": [("scale / 2, 0", "scale, 0")],
        "scale doubled after inf": [("scale / 2, 0", "scale * 2, 0")],
        "good kept after inf": [("scale / 2, 0", "scale / 2, good")],
        "only the bad element skipped": [
            (
                "return weights, scale / 2, 0",
                "return weights - 0.5 * np.nan_to_num(scaled.astype(np.float32), nan=0, posinf=0, neginf=0) / scale, "
                "scale / 2, 0",
            ),
        ],
        "scale halved to whole numbers": [("scale / 2, 0", "scale // 2, 0")],
        "scale never below 1": [("scale / 2, 0", "max(scale / 2, 1), 0")],
        "scale in float16": [("scale / 2, 0", "np.float16(scale / 2), 0")],
        "weights in float64": [(f"weights = {STEP}", f"weights = ({STEP}).astype(np.float64)")],
        "halved in float16": [
            ("0.5 * (scaled.astype(np.float32) / scale)", "(np.float16(0.5) * scaled).astype(np.float32) / scale"),
        ],
        "scale and good exchanged": [("    return weights, scale, good", "    return weights, good, scale")],
        "good never counted": [("good = good + 1", "pass")],
        "doubled one step late": [("if good == 3", "if good == 4")],
        "doubled one step early": [("if good == 3", "if good == 2")],
        "good not set back": [("scale * 2, 0", "scale * 2, good")],
        "third step not taken": [
            (f"    weights = {STEP}", f"    before, weights = weights, {STEP}"),
            ("return weights, scale * 2, 0", "return before, scale * 2, 0"),
        ],
        "never doubled": [("return weights, scale * 2, 0", "return weights, scale, 0")],
        "rate forgotten": [("0.5 * (", "(")],
        "uphill": [("weights - 0.5", "weights + 0.5")],
        "changes the weights given": [(f"weights = {STEP}", f"weights -= {STEP.removeprefix('weights - ')}")],
        "weights in float16": [(f"weights = {STEP}", f"weights = ({STEP}).astype(np.float16)")],
        "two values": [("    return weights, scale, good", "    return weights, scale")],
        "scale first": [("    return weights, scale, good", "    return scale, weights, good")],
        "divided by the next scale": [
            (
                f"    weights = {STEP}\n    good = good + 1\n",
                f"    good = good + 1\n    scale = scale * (1 + (good == 3))\n    weights = {STEP}\n",
            ),
            ("scale * 2, 0", "scale, 0"),
        ],
    },
    3: {
        "shape of the rows": [("len(x) != len(y)", "x.shape[-1] != len(y)")],
        "only too few labels": [("len(x) != len(y)", "len(x) > len(y)")],
        "only too many labels": [("len(x) != len(y)", "len(x) < len(y)")],
        "dtype of y not asked": [(" or not np.issubdtype(y.dtype, np.integer)", "")],
        "dtype of x not asked": [("x.dtype != np.float32 or ", "")],
        "any float": [("x.dtype != np.float32", "not np.issubdtype(x.dtype, np.floating)")],
        "only int64": [("not np.issubdtype(y.dtype, np.integer)", "y.dtype != np.int64")],
        "only floats refused": [("not np.issubdtype(y.dtype, np.integer)", "np.issubdtype(y.dtype, np.floating)")],
        "bool taken for whole": [
            ("not np.issubdtype(y.dtype, np.integer)", "not np.can_cast(y.dtype, np.int64)"),
        ],
        "a tolerance": [("x.max() > 1", "x.max() > 1 + 1e-3")],
        "a tolerance below": [("x.min() < 0", "x.min() < -1e-3")],
        "sum in float32": [("np.isfinite(x).all()", "np.isfinite(x.sum())")],
        "inf is no NaN": [("not np.isfinite(x).all()", "np.isnan(x).any()")],
        "NaN is no inf": [("not np.isfinite(x).all()", "np.isinf(x).any()")],
        "all NaN": [("not np.isfinite(x).all()", "not np.isfinite(x).any()")],
        "mean asked": [("x.min() < 0 or x.max() > 1", "not 0 <= x.mean() <= 1")],
        "below 0 allowed": [("x.min() < 0 or ", "")],
        "above 1 allowed": [(" or x.max() > 1", "")],
        "up to 255": [("x.max() > 1", "x.max() > 255")],
        "0 forbidden": [("x.min() < 0", "x.min() <= 0")],
        "1 forbidden": [("x.max() > 1", "x.max() >= 1")],
        "one label too many": [("y.max() >= classes", "y.max() > classes")],
        "one label too few": [("y.max() >= classes", "y.max() >= classes - 1")],
        "below 0 allowed in labels": [("y.min() < 0 or ", "")],
        "ten classes always": [(">= classes", ">= 10")],
        "only the last label": [("y.max() >= classes", "y[-1] >= classes")],
        "range before nan": [
            ('    if not np.isfinite(x).all():\n        return "nan"\n', ""),
            (
                '        return "range"\n',
                '        return "range"\n    if not np.isfinite(x).all():\n        return "nan"\n',
            ),
        ],
        "label before range": [
            ('    if x.min() < 0 or x.max() > 1:\n        return "range"\n', ""),
            ('    return "fine"', '    if x.min() < 0 or x.max() > 1:\n        return "range"\n    return "fine"'),
        ],
        "dtype before shape": [
            ('    if len(x) != len(y):\n        return "shape"\n', ""),
            ('        return "dtype"\n', '        return "dtype"\n    if len(x) != len(y):\n        return "shape"\n'),
        ],
        "always fine": [("    if len(x) != len(y):", '    if True:\n        return "fine"\n    if len(x) != len(y):')],
        "None if fine": [('    return "fine"', "    return None")],
        "a list": [('    return "fine"', '    return ["fine"]')],
    },
    4: {
        "A raw pixels": [('"rate too high"', '"raw pixels"')],
        "A too low": [('"rate too high"', '"rate too low"')],
        "B layout": [('"pairs"', '"layout"')],
        "C pairs": [('"softmax twice"', '"pairs"')],
        "C and E exchanged": [('runs["C"]', 'runs["E"]'), ('"rate too low", runs["E"]', '"softmax twice", runs["C"]')],
        "D the rate": [('"gradients add up"', '"rate too high"')],
        "E pairs": [('"rate too low"', '"pairs"')],
        "F the rate": [('"raw pixels"', '"rate too high"')],
        "F of the other symptom": [('"raw pixels"', '"pairs"')],
        "F left out": [('("raw pixels", runs["F"].x.max())', '("", None)')],
        "F without a key": [('    "F": ("raw pixels", runs["F"].x.max()),\n', "")],
        "no number": [('runs["F"].x.max()', "None")],
        "a number of another test": [('runs["F"].x.max()', 'runs["F"].growth()')],
        "a number of another training": [('runs["D"].growth()', 'runs["A"].growth()')],
        "B a placeholder": [('runs["B"].end(images=32)', "0")],
        "B on 16 images": [('runs["B"].end(images=32)', 'runs["B"].end(images=16)')],
        "a word of its own": [('"pairs"', '"shuffled"')],
        "causes alone": [('("raw pixels", runs["F"].x.max())', '"raw pixels"')],
    },
}
RIGHT = {
    1: {
        "moveaxis, fancy": """
def prepare(images, labels, rng):
    order = np.arange(images.shape[-1])
    rng.shuffle(order)
    rows = np.moveaxis(images, -1, 0)[order].reshape(len(order), -1)
    return np.float32(rows / 255), labels[order]
""",
        "transposed as a matrix": """
def prepare(images, labels, rng):
    x = images.reshape(784, -1).T.astype(np.float32)
    x /= 255
    order = rng.permutation(len(labels))
    return x.take(order, axis=0), np.take(labels, order)
""",
        "image by image": """
def prepare(images, labels, rng):
    pairs = [(images[:, :, k].ravel() * np.float32(1 / 255), labels[k]) for k in range(len(labels))]
    chosen = [pairs[k] for k in rng.permutation(len(pairs))]
    return np.array([x for x, _ in chosen], dtype=np.float32), np.array([y for _, y in chosen])
""",
        "shuffled before, int64 labels, a list": """
def prepare(images, labels, rng):
    order = rng.choice(images.shape[2], images.shape[2], replace=False)
    x = np.stack([images[..., k] for k in order]).reshape(-1, 28 * 28)
    return [np.divide(x, 255, dtype=np.float32), labels[order].astype(np.int64)]
""",
    },
    2: {
        "early else": """
def next_step(weights, scaled, scale, good):
    gradient = scaled.astype(np.float32)
    if np.isnan(gradient).any() or np.isinf(gradient).any():
        return weights.copy(), 0.5 * scale, 0
    good += 1
    return weights - gradient / (2 * scale), scale * (2 if good == 3 else 1), good % 3
""",
        "float64, NumPy scalars": """
def next_step(w, scaled, scale, good):
    finite = bool(np.all(np.abs(scaled) < np.inf))
    new = (w - 0.5 * scaled.astype(np.float64) / scale).astype(np.float32) if finite else w
    count = (good + 1) * finite
    factor = np.float64(0.5) if not finite else np.float64(2.0) if count > 2 else np.float64(1)
    return [new, scale * factor, np.int64(0 if count > 2 else count)]
""",
        "by the sum of squares": """
def next_step(weights, scaled, scale, good):
    total = float(np.sum(scaled.astype(np.float64) ** 2))
    if total != total or total == float("inf"):
        return (weights, scale / 2, 0)
    new = np.array(weights)
    new -= (scaled.astype(np.float32) * np.float32(0.5)) / np.float32(scale)
    if good >= 2:
        return new, scale + scale, 0
    return new, scale, good + 1
""",
    },
    3: {
        "a chain": """
def check_batch(x, y, classes):
    return (
        "shape" if x.shape[0] != y.shape[0]
        else "dtype" if x.dtype != "float32" or y.dtype.kind not in "iu"
        else "nan" if np.isnan(x).any() or np.isinf(x).any()
        else "range" if ((x < 0) | (x > 1)).any()
        else "label" if not all(0 <= label < classes for label in y)
        else "fine"
    )
""",
        "rules in a list": """
def check_batch(x, y, classes):
    rules = [
        ("shape", lambda: len(x) == len(y)),
        ("dtype", lambda: x.dtype == np.float32 and isinstance(y.flat[0], np.integer)),
        ("nan", lambda: np.isfinite(x.sum(dtype=np.float64))),
        ("range", lambda: np.all(x >= 0) and np.all(x <= 1)),
        ("label", lambda: set(y.tolist()) <= set(range(classes))),
    ]
    return next((name for name, holds in rules if not holds()), "fine")
""",
        "clip and compare": """
def check_batch(x, y, classes):
    if y.size != x.shape[0]:
        return "shape"
    if not (x.dtype is np.dtype("float32") and np.can_cast(y.dtype, np.int64) and y.dtype != bool):
        return "dtype"
    if not np.all(np.isfinite(x)):
        return "nan"
    if not np.array_equal(np.clip(x, 0, 1), x):
        return "range"
    return "fine" if np.isin(y, np.arange(classes)).all() else "label"
""",
    },
    4: {
        "written otherwise": """
runs = lesson.trainings(x, y)
diagnosis = {
    "f": [" Raw pixels ", "255"],
    "a": ["RATE TOO HIGH", round(runs["A"].end(rate=0.1), 2)],
    "b": ("pairs (images and labels do not fit)", np.float32(runs["B"].end(images=32))),
    "c": ("softmax twice", 1),
    "d": ("gradients add up", 2),
    "e": ("rate too low", round(runs["E"].end(rate=0.1), 1)),
}
""",
        "zip": """
runs = lesson.trainings(x, y)
words = ["rate too high", "pairs", "softmax twice", "gradients add up", "rate too low", "raw pixels"]
found = [runs["A"].end(0.1), runs["B"].end(images=32), 1.0, 2.0, runs["A"].end(0.1), 255.0]
diagnosis = dict(zip("ABCDEF", zip(words, found)))
""",
    },
}
