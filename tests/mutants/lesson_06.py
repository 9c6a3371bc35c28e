"""Wrong answers to the exercises of lesson 06, each the solution with some text replaced, and right ones."""

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
MUTANTS = {1: BACKEND_OF, 2: DENSE}
RIGHT = {1: RIGHT_BACKEND_OF, 2: RIGHT_DENSE}
