"""Wrong answers to the exercises of lesson 10, each the solution with some text replaced, and right ones."""

MUTANTS = {
    1: {
        "counts nodes, not time": [('+ event["dur"]', "+ 1")],
        "a share, not percent": [("100 * time / whole", "time / whole")],
        "of the operators": [('["provider"]\n', '["op_name"]\n')],
        "microseconds": [("100 * time / whole", "time")],
        "the last node alone": [('took.get(provider, 0) + event["dur"]', 'event["dur"]')],
        "of the longest provider": [("sum(took.values())", "max(took.values(), default=1)")],
        "of all events": [("sum(took.values())", 'sum(event["dur"] for event in events)')],
        "rounded": [("100 * time / whole", "round(100 * time / whole)")],
        "whole percents": [("100 * time / whole", "100 * time // whole")],
        "the nodes' number for the whole": [("sum(took.values())", "len(events)")],
        "the first provider alone": [
            ("    return {", "    first = next(iter(took), None)\n    return {"),
            ("in took.items()}", "in took.items() if provider == first}"),
        ],
        "a list": [
            ("return {provider: 100 * time / whole for", "return [(provider, 100 * time / whole) for"),
            ("took.items()}", "took.items()]"),
        ],
        "convolutions alone": [('event["cat"] == "Node"', 'event["args"].get("op_name") == "Conv"')],
        "no copies": [
            ('event["cat"] == "Node"', 'event["cat"] == "Node" and "Memcpy" not in event["args"]["op_name"]')
        ],
        "stops without nodes": [
            ("    whole = sum(took.values())\n", "    whole = sum(took.values())\n    1 / whole\n")
        ],
        "processor and the rest": [
            (
                'provider = event["args"]["provider"]',
                'provider = "CPUExecutionProvider" if "CPU" in event["args"]["provider"] else "GPU"',
            )
        ],
        "events emptied": [("    return {", "    events.clear()\n    return {")],
    },
    2: {
        "order of the axes": [("np.moveaxis(pictures, -1, 0)", "pictures.reshape(-1, 28, 28)")],
        "turned": [("np.moveaxis(pictures, -1, 0)", "pictures.T")],
        "colours": [("(1 - images)", "images")],
        "range": [("255 * (1 - images)", "1 - images")],
        "256": [("255 *", "256 *")],
        "cut off, not rounded": [("np.rint(255 * (1 - images))", "(255 * (1 - images))")],
        "rounded up": [("np.rint", "np.ceil")],
        "no channel": [("[..., None]", "")],
        "channel first": [("[..., None]", "[:, None]")],
        "float32": [('.astype("uint8")', '.astype("float32")')],
        "signed bytes": [('.astype("uint8")', '.astype("int8")')],
        "upside down": [("np.moveaxis(pictures, -1, 0)", "np.moveaxis(pictures, -1, 0)[:, ::-1]")],
        "black or white": [("np.rint(255 * (1 - images))", "255 * (images < 0.5)")],
        "inverted in bytes, before rounding": [("np.rint(255 * (1 - images))", "255 - 255 * images")],
        "changes what it got": [
            ("    images =", "    pictures[:] = 1 - pictures\n    images ="),
            ("(1 - images)", "images"),
        ],
        "the first picture alone": [("[..., None]", "[:1, ..., None]")],
        "in another order": [("[..., None]", "[::-1, ..., None]")],
        "stretched to the whole range": [
            ("    return", "    images = (images - images.min()) / (images.max() - images.min())\n    return")
        ],
    },
    3: {
        "0 left out": [("min(values.min(), 0), max(values.max(), 0)", "values.min(), values.max()")],
        "0 left out below": [("min(values.min(), 0)", "values.min()")],
        "0 left out above": [("max(values.max(), 0)", "values.max()")],
        "256 steps": [("/ 255", "/ 256")],
        "127 steps": [("/ 255", "/ 127")],
        "symmetric": [
            ("low, high = min(values.min(), 0), max(values.max(), 0)", "high = abs(values).max(); low = -high")
        ],
        "zero point 0": [("int(np.rint(-low / scale))", "0")],
        "zero point 128": [("int(np.rint(-low / scale))", "128")],
        "zero point cut off": [("int(np.rint(-low / scale))", "int(-low / scale)")],
        "zero point rounded up": [("int(np.rint(-low / scale))", "int(np.ceil(-low / scale))")],
        "zero point with a fraction": [("int(np.rint(-low / scale))", "-low / scale")],
        "bytes cut off": [("np.rint(values / scale)", "np.trunc(values / scale)")],
        "bytes rounded down": [("np.rint(values / scale)", "np.floor(values / scale)")],
        "not clipped": [
            (
                "np.clip(np.rint(values / scale) + zero_point, 0, 255)",
                "(np.rint(values / scale) + zero_point).astype(int)",
            )
        ],
        "zero point subtracted": [("+ zero_point", "- zero_point")],
        "zero point left out": [(" + zero_point, 0", ", 0")],
        "the type is float": [('.astype("uint8")', "")],
        "signed": [('.astype("uint8")', '.astype("int8")')],
        "two things": [("return scale, zero_point, quantised", "return scale, quantised")],
        "another order": [("return scale, zero_point, quantised", "return zero_point, scale, quantised")],
        "1 / scale": [("return scale,", "return 1 / scale,")],
        "from the smallest value": [
            ("np.rint(values / scale) + zero_point", "np.rint((values - values.min()) / scale)")
        ],
        "a list": [('.astype("uint8")', '.astype("uint8").tolist()')],
    },
}

RIGHT = {
    1: {
        "providers first": """
def shares(events):
    nodes = [event for event in events if event["cat"] == "Node"]
    providers = {node["args"]["provider"] for node in nodes}
    whole = sum(node["dur"] for node in nodes)
    return {
        one: sum(node["dur"] for node in nodes if node["args"]["provider"] == one) / whole * 100 for one in providers
    }
""",
        "a counter": """
def shares(events):
    from collections import Counter

    took = Counter()
    for event in events:
        if event["cat"] == "Node":
            took[event["args"]["provider"]] += event["dur"]
    return Counter({one: 100 * took[one] / took.total() for one in took})
""",
        "arrays": """
def shares(events):
    nodes = [(event["args"]["provider"], event["dur"]) for event in events if event["cat"] == "Node"]
    if not nodes:
        return {}
    names, times = zip(*nodes)
    names, times = np.array(names), np.array(times)
    return {str(one): 100 * times[names == one].sum() / times.sum() for one in np.unique(names)}
""",
    },
    2: {
        "a loop": """
def prepare(pictures):
    result = np.zeros((pictures.shape[2], 28, 28, 1), "uint8")
    for i in range(pictures.shape[2]):
        result[i, :, :, 0] = np.round((1 - pictures[:, :, i]) * 255)
    return result
""",
        "transposed, and a half added": """
def prepare(pictures):
    return (255.5 - 255 * pictures.transpose(2, 0, 1)[..., np.newaxis]).astype(np.uint8)
""",
        "bytes first": """
def prepare(pictures):
    ink = 255 - np.rint(pictures * 255).astype("uint8")
    return np.expand_dims(np.rollaxis(ink, 2), 3)
""",
        "einsum": """
def prepare(pictures):
    white = np.einsum("hwn->nhw", pictures)
    return np.around(255.0 * (1.0 - white.astype(float))).astype("uint8").reshape(len(white), 28, 28, 1)
""",
    },
    3: {
        "float64": """
def quantise(values):
    x = values.astype(float)
    low, high = np.append(x, 0).min(), np.append(x, 0).max()
    scale = (high - low) / 255
    zero = round(-low / scale)
    result = np.round(x / scale) + zero
    result[result < 0] = 0
    result[result > 255] = 255
    return scale, zero, result.astype(np.uint8)
""",
        "one at a time": """
def quantise(values):
    low, high = 0.0, 0.0
    for value in values:
        low, high = min(low, float(value)), max(high, float(value))
    scale = (high - low) / 255
    zero = round(-low / scale)
    return [scale, zero, np.array([max(0, min(255, round(float(v) / scale) + zero)) for v in values], "uint8")]
""",
        "NumPy's numbers": """
def quantise(values):
    low = np.minimum(values.min(), np.float32(0))
    high = np.maximum(values.max(), np.float32(0))
    scale = np.float32((high - low) / np.float32(255))
    zero = np.uint8(np.rint(-low / scale))
    return scale, zero, np.clip(np.rint(values / scale).astype(int) + int(zero), 0, 255).astype("uint8")
""",
    },
}
