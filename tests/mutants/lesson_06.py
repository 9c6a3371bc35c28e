"""Wrong answers to the exercises of lesson 06, each the solution with some text replaced, and right ones."""

MUTANTS = {
    1: {
        "NumPy inside": [
            ("from keras import ops", "import numpy as ops"),
            (
                "mean, variance = ops.moments(x, axes=-1, keepdims=True)",
                "mean, variance = ops.mean(x, axis=-1, keepdims=True), ops.var(x, axis=-1, keepdims=True)",
            ),
        ],
        "TensorFlow still": [("ops.sqrt(variance", "__import__('tensorflow').sqrt(variance")],
        "the mean stays": [("(x - mean)", "x")],
        "divided by the variance": [("ops.sqrt(variance + 0.001)", "(variance + 0.001)")],
        "another axis": [("axes=-1", "axes=0")],
        "one mean for all": [("axes=-1", "axes=tuple(range(len(x.shape)))")],
        "the axis is dropped": [(", keepdims=True", "")],
        "no small number": [(" + 0.001", "")],
        "the small number outside of the root": [("ops.sqrt(variance + 0.001)", "(ops.sqrt(variance) + 0.001)")],
        "the gradient stops at the mean": [("(x - mean)", "(x - ops.stop_gradient(mean))")],
        "the import outside": [("    from keras import ops\n", "")],
        "methods of JAX' and PyTorch's arrays": [
            (
                "mean, variance = ops.moments(x, axes=-1, keepdims=True)",
                "mean = x.mean(-1, keepdims=True); variance = ((x - mean) ** 2).mean(-1, keepdims=True)",
            )
        ],
        "nothing handed back": [("return (x - mean)", "(x - mean)")],
        "the second axis": [("axes=-1", "axes=[1]")],
        "not on TensorFlow": [
            (
                "    from keras import ops\n",
                "    from keras import backend, ops\n    assert backend.backend() != 'tensorflow'\n",
            )
        ],
        "to NumPy and back": [("(x - mean)", "ops.convert_to_tensor(ops.convert_to_numpy(x - mean))")],
    },
    2: {
        "what it was built for": [("torch.accelerator.is_available()", "torch.accelerator.current_accelerator()")],
        "always cuda": [("torch.accelerator.current_accelerator().type", "'cuda'")],
        "the processor in silence": [
            ('        raise RuntimeError(f"{wanted} was asked for, and here is only {there}")', '        return "cpu"')
        ],
        "the accelerator in silence": [
            ('        raise RuntimeError(f"{wanted} was asked for, and here is only {there}")', "        return there")
        ],
        "no processor beside an accelerator": [('(there, "cpu")', "(there,)")],
        "what is wanted, there or not": [('(there, "cpu")', '(there, "cpu", "cuda", "mps", "xpu")')],
        "an error of another kind": [("RuntimeError", "ValueError")],
        "an error handed back": [("        raise RuntimeError(f", "        return RuntimeError(f")],
        "the error's name handed back": [
            (
                '        raise RuntimeError(f"{wanted} was asked for, and here is only {there}")',
                '        return "a RuntimeError"',
            )
        ],
        "always the processor": [("wanted is None", "wanted is None and not (there := 'cpu')[3:]")],
        "nothing wanted is an error": [("wanted is None", "wanted == 'cpu'")],
        "only cuda and the processor": [("torch.accelerator.is_available()", "torch.cuda.is_available()")],
    },
}

RIGHT = {
    1: {
        "mean and var": """
def standardise(x):
    import keras

    centred = x - keras.ops.mean(x, axis=-1, keepdims=True)
    return centred * keras.ops.rsqrt(keras.ops.var(x, -1, keepdims=True) + 1e-3)
""",
        "the variance by hand": """
def standardise(x):
    from keras.ops import expand_dims, mean, square

    centre = expand_dims(mean(x, -1), -1)
    width = expand_dims(mean(square(x), -1), -1) - centre**2
    return (x - centre) / (width + 0.001) ** 0.5
""",
        "a function inside": """
def standardise(x):
    from keras import ops as k

    def average(y):
        return k.sum(y, axis=-1, keepdims=True) / y.shape[-1]

    away = k.subtract(x, average(x))
    return k.divide(away, k.sqrt(average(away * away) + 0.001))
""",
    },
    2: {
        "older modules": """
def pick_device(torch, wanted=None):
    there = ["cpu"]
    if torch.cuda.is_available():
        there.insert(0, "cuda")
    if torch.backends.mps.is_available():
        there.insert(0, "mps")
    if torch.xpu.is_available():
        there.insert(0, "xpu")
    if wanted and wanted not in there:
        raise RuntimeError("not here: " + wanted)
    return torch.device(wanted or there[0])
""",
        "a device, looked for": """
def pick_device(torch, wanted=None):
    found = torch.accelerator.current_accelerator(check_available=True)
    choices = {"cpu": torch.device("cpu")}
    if found is not None:
        choices[found.type] = found
    try:
        return list(choices.values())[-1] if wanted is None else choices[wanted]
    except KeyError:
        raise RuntimeError(f"no {wanted} here") from None
""",
        "by trying": """
def pick_device(torch, wanted=None):
    built_for = torch.accelerator.current_accelerator()
    if wanted is None:
        wanted = str(built_for) if torch.accelerator.device_count() else "cpu"
    return torch.ones(1, device=wanted).device.type
""",
        "early returns": """
def pick_device(torch, wanted=None):
    if wanted == "cpu":
        return "cpu"
    if not torch.accelerator.is_available():
        if wanted is not None:
            raise RuntimeError(f"{wanted} is not here")
        return "cpu"
    here = torch.accelerator.current_accelerator()
    if wanted in (None, here.type):
        return here
    raise RuntimeError(f"{wanted} is not here, {here} is")
""",
    },
}

# Part 2

BACKEND_OF = {
    "the last line counts": [
        ('            return variable\n    return "no Keras"', "            pass\n    return variable")
    ],
    "the first line counts": [("            variable = name", "            return name")],
    "TensorFlow does not import Keras": [('("keras", "tensorflow")', '("keras",)')],
    "tensorflow.keras alone does": [
        ('name.split(".")[0] in ("keras", "tensorflow")', 'name.startswith(("keras", "tensorflow.keras"))')
    ],
    "the four names of the examples": [
        (
            'name.split(".")[0] in ("keras", "tensorflow")',
            'name in ("keras", "keras.layers", "tensorflow", "tensorflow.keras")',
        )
    ],
    "a search for keras": [
        ('name.split(".")[0] in ("keras", "tensorflow")', '"keras" in name or name == "tensorflow"')
    ],
    "one dot at most": [
        ('name.split(".")[0] in ("keras", "tensorflow")', '"keras" in name.split(".")[::3] or name == "tensorflow"')
    ],
    "whole names alone": [('name.split(".")[0] in', "name in")],
    "no default": [('variable = "tensorflow"', "variable = None")],
    "TensorFlow without a variable, too": [('"no Keras"', '"tensorflow"')],
    "what was set, without Keras": [('"no Keras"', "variable")],
    "any import": [('elif name.split(".")[0] in ("keras", "tensorflow"):', "else:")],
    "TensorFlow brings its own": [
        ("            return variable", '            return "tensorflow" if "tensorflow" in name else variable')
    ],
    "the first setting": [
        ("            variable = name", '            variable = next(x[4:] for x in lines if x[:3] == "set")')
    ],
    "None": [('"no Keras"', "None")],
}
DENSE = {
    "no ReLU": [("max(S + B, 0.0)", "S + B")],
    "no bias": [("S + B", "S")],
    "bias after the ReLU": [("max(S + B, 0.0)", "max(S, 0.0) + B")],
    "the largest product": [("+(X", ">(X")],
    "smaller than 0": [("max(", "min(")],
    "at least 1": [("0.0", "1.0")],
    "bias subtracted": [("S + B", "S - B")],
    "bias in every product": [("X[i, k] * W[k, j]", "(X[i, k] + B[j]) * W[k, j]")],
    "W twice": [("S + B", "S + S + B")],
    "absolute values": [("max(S + B, 0.0)", "abs(S + B)")],
}
RIGHT_BACKEND_OF = {
    "prefixes": """
def backend_of(lines):
    chosen = None
    for line in lines:
        if line.startswith("set "):
            chosen = line[4:]
        if line.startswith(("import keras", "import tensorflow")):
            return chosen or "tensorflow"
    return "no Keras"
""",
    "the first import, then the last setting before it": """
def backend_of(lines):
    loads = [i for i, line in enumerate(lines) if "keras" in line or line.startswith("import tensorflow")]
    if not loads:
        return "no Keras"
    return (["set tensorflow"] + [line for line in lines[: loads[0]] if line.startswith("set")])[-1].split()[1]
""",
    "a program of its own": """
def backend_of(lines):
    state = {"variable": "tensorflow", "keras": None}
    for line in lines:
        words = line.replace(".", " ").split()
        if words[0] == "set":
            state["variable"] = words[1]
        if words[0] == "import" and {"keras", "tensorflow"} & set(words) and not state["keras"]:
            state["keras"] = state["variable"]
    return state["keras"] or "no Keras"
""",
}
RIGHT_DENSE = {
    "four statements": """
dense = '''function (X[M, K], W[K, N], B[N]) -> (Y) {
    S[a, b: M, N] = +(X[a, c] * W[c, b]);
    T = B + S;
    Y = max(0.0, T);
}'''
""",
    "a condition": """
dense = '''function (X[M, K], W[K, N], B[N]) -> (Y) {
    S[i, j: M, N] = +(W[k, j] * X[i, k]);  // the product
    T = S + B;
    Y = T < 0.0 ? 0.0 : T;
}'''
""",
    "half the sum with its absolute value": """
dense = '''function (X[M, K], W[K, N], B[N]) -> (Y) {
    S[i, j: M, N] = +(X[i, k] * W[k, j]);
    Y = (S + B + abs(S + B)) * 0.5;
}'''
""",
}
MUTANTS |= {3: BACKEND_OF, 4: DENSE}
RIGHT |= {3: RIGHT_BACKEND_OF, 4: RIGHT_DENSE}
