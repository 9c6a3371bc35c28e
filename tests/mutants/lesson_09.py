"""Wrong answers to the exercises of lesson 09, each the solution with some text replaced, and right ones."""

_BOTH = "return rank * images // size, (rank + 1) * images // size"

_NEWEST = """\
    whole = []
    for name in store.names():
        numbers = store.read(name)
        if numbers and len(numbers) == numbers[0] + 2:
            whole.append((numbers[1], numbers[2:]))
    return max(whole, default=None)"""

MUTANTS = {
    1: {
        "the rest is left out": [(_BOTH, "return rank * (images // size), (rank + 1) * (images // size)")],
        "the last one takes the rest": [
            (
                _BOTH,
                "each = images // size\n    return rank * each, images if rank == size - 1 else (rank + 1) * each",
            )
        ],
        "rounded up": [
            (
                _BOTH,
                "each = -(-images // size)\n    return min(rank * each, images), min((rank + 1) * each, images)",
            )
        ],
        "the end belongs to it": [("(rank + 1) * images // size", "(rank + 1) * images // size - 1")],
        "first and number": [("(rank + 1) * images // size", "images // size")],
        "ranks from 1": [(_BOTH, "return (rank - 1) * images // size, rank * images // size")],
        "everything for everybody": [(_BOTH, "return 0, images")],
        "everything for rank 0": [(_BOTH, "return (0, images) if rank == 0 else (images, images)")],
        "a range": [(_BOTH, "return range(rank * images // size, (rank + 1) * images // size)")],
        "floats": [(_BOTH, "return rank * images / size, (rank + 1) * images / size")],
        "divided first": [(_BOTH, "return int(rank * (images / size)), int((rank + 1) * (images / size))")],
        "rounded": [(_BOTH, "return int(rank * (images / size)), int((rank + 1) * (images / size) - 1e-9)")],
        "nothing returned": [("return rank", "result = rank")],
        "the example alone": [(_BOTH, "return ((0, 3), (3, 6), (6, 8), (8, 10))[rank % 4]")],
        "another one each time": [
            (
                _BOTH,
                "rank = (rank + len(calls) // 2) % size\n    calls.append(0)\n    " + _BOTH,
            ),
            ("def share", "calls = []\n\n\ndef share"),
        ],
    },
    2: {
        "half as many messages": [("2 * (n - 1)", "(n - 1)")],
        "n messages": [("(n - 1)", "n")],
        "latency once": [
            ("2 * (n - 1) * (latency + gradient_bytes / n", "latency + 2 * (n - 1) * (gradient_bytes / n")
        ],
        "latency forgotten": [("latency + ", "")],
        "the whole gradient in each message": [("gradient_bytes / n", "gradient_bytes")],
        "bits for bytes": [("gradient_bytes / n", "8 * gradient_bytes / n")],
        "two processes alone": [("2 * (n - 1)", "2"), ("gradient_bytes / n", "gradient_bytes / 2")],
        "a tree": [("2 * (n - 1) * (latency", "2 * np.log2(n) * (latency")],
    },
    3: {
        "every delivery counts": [('if number not in server["done"]', "if True")],
        "the set is not kept": [('        server["done"].add(number)', "        pass")],
        "the step before alone": [
            ('number not in server["done"]', 'number != server.get("last")'),
            ('server["done"].add(number)', 'server["done"].add(number)\n        server["last"] = number'),
        ],
        "in order alone": [('number not in server["done"]', 'number >= len(server["done"])')],
        "told by the gradient": [
            (
                'number not in server["done"]',
                'gradient.tobytes() not in server.setdefault("seen", set())',
            ),
            ('server["done"].add(number)', 'server["done"].add(number)\n    server["seen"].add(gradient.tobytes())'),
        ],
        "told by what all servers have seen": [
            ("def receive", "seen = set()\n\n\ndef receive"),
            ('number not in server["done"]', "number not in seen"),
            ('server["done"].add(number)', 'server["done"].add(number)\n    seen.add(number)'),
        ],
        "added": [(" - 0.1 * gradient", " + 0.1 * gradient")],
        "no learning rate": [("0.1 * gradient", "gradient")],
        "the gradient is changed": [
            ("    if number not in", "    gradient *= 0.1\n    if number not in"),
            ("0.1 * gradient", "gradient"),
        ],
        "undone the second time": [
            (
                '        server["done"].add(number)',
                '        server["done"].add(number)\n    else:\n'
                '        server["weights"] = server["weights"] + 0.1 * gradient',
            )
        ],
        "add returns nothing": [
            ('        server["done"].add(number)', '        server["done"] = server["done"].add(number)')
        ],
        "the number alone": [('server["done"].add(number)', 'server["done"] = number')],
        "a list": [('server["done"].add(number)', 'server["done"] = [*server["done"], number]')],
        "rounded": [("- 0.1 * gradient", "- (0.1 * gradient).round(2)")],
        "returned, not stored": [
            (
                '        server["weights"] = server["weights"] - 0.1 * gradient\n        server["done"].add(number)',
                '        return server["weights"] - 0.1 * gradient',
            )
        ],
        "a set of its own": [('server["done"].add(number)', 'server["done"] = {number}')],
    },
    4: {
        "one name": [('f"step {step}"', '"checkpoint"')],
        "one name, and everything caught": [
            (
                '    store.write(f"step {step}", [len(weights), step, *weights])',
                "    try:\n        store.write('a', [len(weights), step, *weights])\n"
                "    except:\n        store.write('a', [len(weights), step, *weights])",
            )
        ],
        "not looked whether whole": [("if numbers and len(numbers) == numbers[0] + 2", "if len(numbers) > 1")],
        "one number less is whole, too": [("len(numbers) == numbers[0] + 2", "len(numbers) >= numbers[0] + 1 > 1")],
        "an empty list is not expected": [("if numbers and", "if")],
        "the last name": [("max(whole, default=None)", "whole[-1] if whole else None")],
        "the oldest": [("max(", "min(")],
        "nothing in an empty store": [(", default=None", "")],
        "the step alone": [("max(whole, default=None)", "max(whole, default=[None])[0]")],
        "the others are deleted first": [
            (
                '    store.write(f"step',
                '    for name in store.names():\n        store.delete(name)\n    store.write(f"step',
            )
        ],
        "the number first, in a list of its own": [
            (
                '    store.write(f"step {step}", [len(weights), step, *weights])',
                '    store.write("newest", [step])\n    store.write(f"step {step}", weights)',
            ),
            (
                _NEWEST,
                '    if "newest" not in store.names() or not store.read("newest"):\n        return None\n'
                '    step = store.read("newest")[0]\n    return step, store.read(f"step {step}")',
            ),
        ],
        "the number last, over the old one": [
            (
                '    store.write(f"step {step}", [len(weights), step, *weights])',
                '    store.write(f"step {step}", weights)\n    store.write("newest", [step])',
            ),
            (
                _NEWEST,
                '    if "newest" not in store.names() or not store.read("newest"):\n        return None\n'
                '    step = store.read("newest")[0]\n    return step, store.read(f"step {step}")',
            ),
        ],
        "a mark that a weight can be": [
            ("[len(weights), step, *weights]", "[step, *weights, 0.0]"),
            ("if numbers and len(numbers) == numbers[0] + 2", "if len(numbers) > 1 and numbers[-1] == 0.0"),
            ("(numbers[1], numbers[2:])", "(numbers[0], numbers[1:-1])"),
        ],
        "remembered, not read": [
            ("def save", "kept = {}\n\n\ndef save"),
            ("    store.write", "    kept[0] = (step, weights)\n    store.write"),
            ("max(whole, default=None)", "kept.get(0)"),
        ],
        "nothing is written": [('store.write(f"step {step}", [len(weights), step, *weights])', "return step, weights")],
        "two places by the step's number": [('f"step {step}"', '"AB"[step % 2]')],
        "three places by the step's number": [('f"step {step}"', '"ABC"[step % 3]')],
        "all names but the last are deleted first": [
            (
                '    store.write(f"step {step}"',
                '    for name in store.names()[:-1]:\n        store.delete(name)\n    store.write(f"{step:05d}"',
            )
        ],
        "the last one is copied over the one before, whole or not": [
            (
                '    store.write(f"step {step}"',
                '    if "now" in store.names():\n        store.write("before", store.read("now"))\n'
                '    store.write("now"',
            )
        ],
        "remembered for each store": [
            ("def save", "kept = {}\n\n\ndef save"),
            ("step, *weights])", "step, *weights])\n    kept[id(store)] = (step, list(weights))"),
            ("max(whole, default=None)", "kept.get(id(store))"),
        ],
        "remembered, unless the store is empty": [
            ("def save", "kept = {}\n\n\ndef save"),
            ("step, *weights])", "step, *weights])\n    kept[0] = (step, list(weights))"),
            ("max(whole, default=None)", "kept.get(0) if whole else None"),
        ],
        "whole if both halves are equal": [
            ("[len(weights), step, *weights]", "[step, *weights, *weights]"),
            (
                "if numbers and len(numbers) == numbers[0] + 2",
                "half = len(numbers) // 2\n        if half and numbers[1 : half + 1] == numbers[half + 1 :]",
            ),
            ("(numbers[1], numbers[2:])", "(numbers[0], numbers[1 : half + 1])"),
        ],
        "the caller's list is changed": [
            (
                '    store.write(f"step {step}", [len(weights), step, *weights])',
                "    weights.insert(0, step)\n    weights.insert(0, len(weights) - 1)\n"
                '    store.write(f"step {step}", weights)',
            )
        ],
        "rounded": [("step, *weights]", "step, *[round(one, 2) for one in weights]]")],
    },
}

RIGHT = {
    1: {
        "the first ones take one more": """
def share(images, rank, size):
    each, more = divmod(images, size)
    first = rank * each + min(rank, more)
    return first, first + each + (rank < more)
""",
        "the last ones take one more": """
def share(images, rank, size):
    sizes = [(images + number) // size for number in range(size)]
    return [sum(sizes[:rank]), sum(sizes[: rank + 1])]
""",
        "an array": """
def share(images, rank, size):
    return np.array([rank * images // size, (rank + 1) * images // size])
""",
        "NumPy": """
def share(images, rank, size):
    part = np.array_split(np.arange(images), size)
    first = sum(len(one) for one in part[:rank])
    return np.int64(first), np.int64(first + len(part[rank]))
""",
    },
    2: {
        "two terms": """
def exchange_seconds(gradient_bytes, n, bytes_per_second, latency):
    messages = 2 * (n - 1)
    return messages * latency + messages / n * gradient_bytes / bytes_per_second
""",
        "a loop": """
def exchange_seconds(gradient_bytes, n, bytes_per_second, latency):
    total = 0.0
    for _ in range(1, n):
        total += 2 * latency + 2 * (gradient_bytes / n) / bytes_per_second
    return total
""",
        "from the library": """
def exchange_seconds(gradient_bytes, n, bytes_per_second, latency):
    return cluster.exchange_seconds(gradient_bytes, n, bytes_per_second, latency)
""",
    },
    3: {
        "returns early, in place": """
def receive(server, number, gradient):
    if number in server["done"]:
        return
    server["done"].add(number)
    server["weights"] -= 0.1 * gradient
""",
        "a new set, and an answer": """
def receive(server, number, gradient):
    new = number not in server["done"]
    server["done"] = server["done"] | {number}
    server["weights"] = server["weights"] - (0.1 * gradient if new else 0)
    return server
""",
        "compared by length": """
def receive(server, number, gradient):
    before = len(server["done"])
    server["done"].add(number)
    server["weights"] = server["weights"] - 0.1 * gradient * (len(server["done"]) - before)
""",
    },
    4: {
        "two names in turn": """
def save(store, step, weights):
    last = newest(store)
    kept = [name for name in store.names() if last and store.read(name)[:1] == [last[0]]]
    store.write("B" if kept == ["A"] else "A", [step, *weights, "end"])


def newest(store):
    found = None
    for name in store.names():
        numbers = store.read(name)
        if numbers and numbers[-1] == "end" and (found is None or numbers[0] > found[0]):
            found = numbers[0], numbers[1:-1]
    return found
""",
        "a second file that follows": """
def save(store, step, weights):
    store.write(f"weights {step}", weights)
    store.write(f"whole {step}", [])


def newest(store):
    steps = [int(name.split()[1]) for name in store.names() if name.startswith("whole")]
    return (max(steps), store.read(f"weights {max(steps)}")) if steps else None
""",
        "in float32": """
def save(store, step, weights):
    store.write(f"{step}", np.array([len(weights), *weights], "float32"))


def newest(store):
    whole = [int(one) for one in store.names() if store.read(one) and len(store.read(one)) == store.read(one)[0] + 1]
    return (max(whole), store.read(str(max(whole)))[1:]) if whole else None
""",
        "all but the newest whole one are deleted first": """
def save(store, step, weights):
    last = newest(store)
    for name in store.names():
        if not last or name != str(last[0]):
            store.delete(name)
    store.write(str(step), [*weights, None])


def newest(store):
    whole = [int(name) for name in store.names() if store.read(name)[-1:] == [None]]
    return (max(whole), store.read(str(max(whole)))[:-1]) if whole else None
""",
        "old ones are deleted afterwards": """
def save(store, step, weights):
    store.write(f"{step:06}", np.array([len(weights), *weights]))
    for name in store.names():
        if name != f"{step:06}":
            store.delete(name)


def newest(store):
    for name in reversed(store.names()):
        size, *weights = store.read(name) or [-1]
        if size == len(weights):
            return int(name), np.array(weights)
    return None
""",
    },
}
