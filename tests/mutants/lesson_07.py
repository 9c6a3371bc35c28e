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
        "how many": [("sorted(", "sum("), ("name for", "1 for")],
        "task 0 alone": [
            ('place.split("device:")[1] != wanted', 'place != "/job:localhost/replica:0/task:0/device:" + wanted')
        ],
        "places of task 0 alone": [(".items() if", '.items() if "task:0" in place and')],
    },
    2: {
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
    3: {
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
        "two fields compared": """
def misplaced(places, wanted):
    return [name for name in sorted(places) if places[name].split(":")[-2:] != wanted.split(":")]
""",
    },
    2: {
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
    3: {
        "by recursion": """
def visible(value, count):
    if value is None:
        return [*range(count)]
    first, _, rest = value.partition(",")
    if first == "" or int(first) < 0 or int(first) >= count:
        return []
    return [int(first)] + visible(rest, count)
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
