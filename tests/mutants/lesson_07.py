"""Wrong answers to the exercises of lesson 07, each the solution with some text replaced, and right ones."""

MUTANTS = {
    1: {
        "GPU:1 found in GPU:10": [('place.split("device:")[1] != wanted', "wanted not in place")],
        "GPU:1 found at the start of GPU:10": [("[1] != wanted", "[1][: len(wanted)] != wanted")],
        "those in their place": [("!= wanted", "== wanted")],
        "places for names": [("sorted(name for", "sorted(place for")],
        "not sorted": [("sorted(name for", "list(name for")],
        "the kind alone": [("[1] != wanted", "[1][:3] != wanted[:3]")],
        "the number alone": [('split("device:")[1] != wanted', 'split(":")[-1] != wanted.split(":")[-1]')],
        "a set": [("sorted(name", "set(name")],
        "a tuple": [("sorted(", "tuple(sorted("), ("!= wanted)", "!= wanted))")],
        "a place of fixed length": [('place.split("device:")[1]', "place[39:]")],
        "GPU:10 and GPU:11 alone thought of": [
            (
                'place.split("device:")[1] != wanted',
                'wanted not in place or wanted + "0" in place or wanted + "1" in place',
            )
        ],
        "the end alone": [('place.split("device:")[1] != wanted', "not place.endswith(wanted)")],
        "how many": [("sorted(", "sum("), ("name for", "1 for")],
        "task 0 alone": [
            ('place.split("device:")[1] != wanted', 'place != "/job:localhost/replica:0/task:0/device:" + wanted')
        ],
        "names in small letters": [("sorted(name for", "sorted(name.lower() for")],
        "a fixed number of slashes": [
            ('place.split("device:")[1] != wanted', '(place.split("/") + [""] * 9)[4] != "device:" + wanted')
        ],
        "places with a job alone": [(".items() if", '.items() if "/job:" in place and')],
        "places of task 0 alone": [(".items() if", '.items() if "task:0" in place and')],
    },
    2: {
        "placed, and waits after each order": [
            ("x = step(x)", "x = step(x); float(x)"),
            ("y = step(y)", "y = step(y); float(y)"),
        ],
        "waits for both in each round": [("losses += [x, y]", "losses += [float(x), float(y)]")],
        "waits in the first round alone": [
            ("losses += [x, y]", "losses += [x, y] if losses else [float(x), float(y)]")
        ],
        "waits every four rounds": [("losses += [x, y]", "losses += [x, y]; len(losses) % 8 or float(y)")],
        "one model after the other, each in its thread": [
            (
                "    losses = []\n    for _ in range(count):\n        x = step(x)\n        y = step(y)\n"
                "        losses += [x, y]\n",
                "    from threading import Thread\n\n    chains = [[x], [y]]\n\n    def train(chain):\n"
                "        for _ in range(count):\n            chain.append(step(chain[-1]))\n\n"
                "    for chain in chains:\n        thread = Thread(target=train, args=(chain,))\n"
                "        thread.start()\n        thread.join()\n"
                "    losses = [x for pair in zip(chains[0][1:], chains[1][1:]) for x in pair]\n",
            )
        ],
        "waits for one in each round": [("losses += [x, y]", "losses += [float(x), y]")],
        "waits without a number": [("losses += [x, y]", "losses += [x.block_until_ready(), y]")],
        "waits by printing": [("x = step(x)", "x = step(x); print(x)")],
        "waits by str": [("x = step(x)", "x = step(x); str(x)")],
        "waits by repr": [("x = step(x)", "x = step(x); repr(x)")],
        "waits by an f-string": [("x = step(x)", "x = step(x); f'{x:.3f}'")],
        "waits by a comparison": [("y = step(y)", "y = step(y); y == 0 or None")],
        "waits by asking whether it is true": [("y = step(y)", "y = step(y); assert y")],
        "waits by comparing in an if": [("x = step(x)", "x = step(x); 1 if x < 0.5 else 0")],
        "waits by int": [("x = step(x)", "x = step(x); int(x)")],
        "waits by round": [("losses += [x, y]", "losses += [x, y]; round(y, 2)")],
        "waits for a number computed of it": [("x = step(x)", "x = step(x); float(x + 1)")],
        "waits by max": [("x = step(x)", "x = step(x); max(x, 3.0)")],
        "swaps the devices in each round": [
            (
                "        x = step(x)\n",
                "        x, y = put(x, len(losses) // 2 % 2), put(y, 1 - len(losses) // 2 % 2)\n        x = step(x)\n",
            )
        ],
        "by way of the other device": [("put(b, 1)", "put(put(b, 0), 1)")],
        "never placed": [("put(b, 1)", "put(b, 0)")],
        "both on device 1": [("put(a, 0)", "put(a, 1)")],
        "one device after the other": [
            ("        y = step(y)\n", ""),
            (
                "        losses += [x, y]\n",
                "        losses.append(x)\n    float(x)\n    for i in range(count):\n"
                "        y = step(y)\n        losses.insert(2 * i + 1, y)\n",
            ),
        ],
        "arrays for numbers": [("[float(loss) for loss in losses]", "losses")],
        "the last losses alone": [("in losses]", "in [x, y]]")],
        "in another order": [("in losses]", "in losses[::2] + losses[1::2]]")],
        "every step twice": [("x = step(x)", "step(x); x = step(x)")],
        "one step too few": [("range(count)", "range(count - 1)")],
        "the first model twice": [("put(b, 1)", "put(a, 1)")],
        "one thread for each device": [
            (
                "    losses = []\n",
                "    from concurrent.futures import ThreadPoolExecutor\n    losses = []\n"
                "    one, other = ThreadPoolExecutor(1), ThreadPoolExecutor(1)\n",
            ),
            ("x = step(x)", "x = one.submit(step, x).result()"),
            ("y = step(y)", "y = other.submit(step, y).result()"),
        ],
        "text": [("float(loss)", "str(float(loss))")],
    },
    3: {
        "text": [
            (
                "return operations / (cores * 2 * gigahertz * 1e9)",
                "return str(operations / (cores * 2 * gigahertz * 1e9))",
            )
        ],
        "one matrix alone": [("2 * (power - 1) * 2", "(power - 1) * 2")],
        "as many products as the power says": [("(power - 1)", "power")],
        "additions forgotten": [("* 2 * size", "* size")],
        "one operation a cycle": [("cores * 2 *", "cores *")],
        "gigahertz taken for hertz": [(" * 1e9", "")],
        "megahertz": [("1e9", "1e6")],
        "n squared": [("size**3", "size**2")],
        "a single core": [("(cores * 2", "(2")],
        "the other way round": [("operations / (", "1 / operations * (")],
        "whole seconds": [("operations / (", "operations // (")],
    },
    4: {
        "None hides all": [("return list(range(count))", "return []")],
        "invalid numbers are skipped": [("break", "continue")],
        "-1 is the last GPU": [("0 <= int(number) < count", "int(number) < count")],
        "one number too many": [("< count", "<= count")],
        "sorted": [("return seen", "return sorted(seen)")],
        "text for numbers": [("seen.append(int(number))", "seen.append(number)")],
        "an invalid number hides all": [("            break", "            return []")],
        "digits for numbers": [('value.split(",")', 'value.replace(",", "").replace("-", "")')],
        "how many": [("return seen", "return len(seen)")],
        "-2 is a GPU": [("not 0 <= int(number) < count", "int(number) == -1 or int(number) >= count")],
        "floats": [("int(number))", "float(number))")],
        "a range": [("list(range(count))", "range(count)")],
        "a tuple": [("return seen", "return tuple(seen)")],
        "the empty value shows all": [("if value is None", "if not value")],
        "new names for old ones": [("return seen", "return list(range(len(seen)))")],
    },
}

RIGHT = {
    1: {
        "a loop": """
def misplaced(places, wanted):
    elsewhere = []
    for name in sorted(places):
        if not places[name].endswith("device:" + wanted):
            elsewhere.append(name)
    return elsewhere
""",
        "what stands behind the last slash, in the order of small letters": """
def misplaced(places, wanted):
    elsewhere = {name for name, place in places.items() if place.rpartition("/")[2] != f"device:{wanted}"}
    return sorted(elsewhere, key=str.lower)
""",
        "two fields compared": """
def misplaced(places, wanted):
    return [name for name in sorted(places) if places[name].split(":")[-2:] != wanted.split(":")]
""",
    },
    2: {
        "one device gets all its orders first": """
def progress(put, step, a, b, count):
    chains = []
    for device, start in enumerate([a, b]):
        x, chain = put(start, device), []
        for _ in range(count):
            x = step(x)
            chain.append(x)
        chains.append(chain)
    return [float(x) for pair in zip(*chains) for x in pair]
""",
        "numbers one round late": """
def progress(put, step, a, b, count):
    x, y = put(a, 1), put(b, 0)
    before, losses = [], []
    for _ in range(count):
        x, y = step(x), step(y)
        losses += [float(one) for one in before]
        before = [x, y]
    return losses + [float(one) for one in before]
""",
        "waits once, then reads": """
def progress(put, step, a, b, count):
    import numpy as np

    x, y = put(a, 0), put(b, 1)
    losses = []
    for _ in range(count):
        x, y = step(x), step(y)
        losses.extend((x, y))
    y.block_until_ready()
    return [np.asarray(one) for one in losses]
""",
        "computes with what is not there yet": """
def progress(put, step, a, b, count):
    x, y = put(a, 0), put(b, 1)
    losses = []
    for _ in range(count):
        x, y = step(x), step(y)
        losses += [2 * x + 0, 2 * y - 0.0]
    return [round(float(loss / 2), 12) for loss in losses]
""",
        "put again where it is": """
def progress(put, step, a, b, count):
    x, y = put(a, 0), put(b, 1)
    losses = []
    for _ in range(count):
        x, y = step(put(x, 0)), step(put(y, 1))
        losses += [x, y]
    return [loss.item() for loss in losses]
""",
        "b first": """
def progress(put, step, a, b, count):
    second = put(b, 1)
    first = a
    losses = [None] * (2 * count)
    for i in range(count):
        second = step(second)
        first = step(first)
        losses[2 * i], losses[2 * i + 1] = first, second
    return list(map(float, losses))
""",
    },
    3: {
        "n - 1 additions": """
def least_seconds(size, power, cores, gigahertz):
    operations = 2 * (power - 1) * size**2 * (size + size - 1)
    return operations / (2 * cores) / (gigahertz * 1e9)
""",
        "a multiplication and an addition in one cycle": """
def least_seconds(size, power, cores, gigahertz):
    cycles = 2 * (power - 1) * size**3 / cores
    return cycles / gigahertz / 10**9
""",
    },
    4: {
        "stops at as many as there are": """
def visible(value, count):
    seen = []
    if value is None:
        return list(range(count))
    for text in value.split(",")[:count] if value else []:
        number = int(text)
        if number < 0 or number >= count:
            return seen
        seen += [number]
    return seen
""",
        "by recursion": """
def visible(value, count):
    if value is None:
        return [*range(count)]
    first, _, rest = value.partition(",")
    if first == "" or int(first) < 0 or int(first) >= count:
        return []
    return [int(first)] + visible(rest, count)
""",
        "a function made by partial": """
from functools import partial


def seen_by(missing, value, count):
    if value is missing:
        return list(range(count))
    numbers = [int(number) for number in value.split(",") if number]
    wrong = [i for i, number in enumerate(numbers) if number not in range(count)]
    return numbers[: wrong[0]] if wrong else numbers


visible = partial(seen_by, None)
""",
        "takewhile": """
def visible(value, count):
    from itertools import takewhile

    if value is None:
        return list(range(count))
    return list(takewhile(lambda number: number in range(count), map(int, value.split(",") if value else [])))
""",
    },
}
