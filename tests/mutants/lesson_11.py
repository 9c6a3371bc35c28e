"""Wrong answers to the exercises of lesson 11, each the solution with some text replaced, and right ones."""

MUTANTS = {
    1: {
        "never waits": [("        device.wait()\n", "")],
        "waits once, at the end": [
            ("        device.wait()\n", ""),
            ("    low, middle", "    device.wait()\n    low, middle"),
        ],
        "counts the first run": [("seconds[1:]", "seconds")],
        "drops the last run": [("seconds[1:]", "seconds[:-1]")],
        "one run too few": [("range(1 + repeats)", "range(repeats)")],
        "drops two runs": [("seconds[1:]", "seconds[2:]")],
        "reads the clock before the wait": [
            (
                "        device.wait()\n        seconds.append(device.clock() - begin)",
                "        seconds.append(device.clock() - begin)\n        device.wait()",
            )
        ],
        "the clock starts after the start": [
            (
                "        begin = device.clock()\n        device.start()",
                "        device.start()\n        begin = device.clock()",
            )
        ],
        "another clock": [("device.clock()", "time.perf_counter()")],
        "one start for all": [
            ("    for _", "    begin = device.clock()\n    for _"),
            ("        begin = device.clock()\n        device.start()", "        device.start()"),
        ],
        "starts them all, then waits": [("        device.wait()\n", "        device.start()\n        device.wait()\n")],
        "never too noisy": [('"too noisy" if high - low > 0.05 * middle else ', "")],
        "always too noisy": [("high - low > 0.05 * middle", "high >= low")],
        "noise in seconds": [("> 0.05 * middle", "> 0.05")],
        "half a millisecond": [("> 0.05 * middle", "> 0.0005")],
        "noise of the range": [("high - low >", "max(seconds[1:]) - min(seconds[1:]) >")],
        "noise of the standard deviation": [("high - low >", "np.std(seconds[1:]) >")],
        "noise of half the distance": [("high - low >", "high - middle >")],
        "ten percent": [("0.05", "0.10")],
        "two percent": [("0.05", "0.02")],
        "of the mean": [("0.05 * middle", "0.05 * np.mean(seconds[1:])")],
        "the first run is not waited for": [
            ("    for _", "    device.start()\n    for _"),
            ("range(1 + repeats)", "range(repeats)"),
            ("seconds[1:]", "seconds"),
        ],
        "waits before the start alone": [
            ("        device.wait()\n", ""),
            ("        begin =", "        device.wait()\n        begin ="),
        ],
        "of the smallest": [("0.05 * middle", "0.05 * min(seconds)")],
        "the other way round": [("low > 0.05", "low < 0.05")],
        "mean for median": [("else (low, middle, high)", "else (low, np.mean(seconds[1:]), high)")],
        "smallest and largest": [("[25, 50, 75]", "[0, 50, 100]")],
        "median first": [("(low, middle, high)", "(middle, low, high)")],
        "in milliseconds": [("(low, middle, high)", "(1e3 * low, 1e3 * middle, 1e3 * high)")],
        "the median alone": [("(low, middle, high)", "middle")],
        "another word": [('"too noisy"', '"noisy"')],
        "None for noise": [('"too noisy"', "None")],
        "five runs, whatever is asked": [("range(1 + repeats)", "range(6)")],
        "throws away the slowest run": [
            ("    low, middle", "    seconds.remove(max(seconds))\n    low, middle"),
            ("seconds[1:]", "seconds"),
        ],
        "few runs are never too noisy": [("> 0.05 * middle", "> 0.05 * middle and repeats >= 5")],
        "until it is quiet": [
            (
                "    return ",
                "    if high - low > 0.05 * middle:\n        return fair_time(device, repeats)\n    return ",
            )
        ],
    },
    2: {
        "arithmetic mean": [("np.exp(np.mean(np.log(ratios)))", "np.mean(ratios)")],
        "harmonic mean": [("np.exp(np.mean(np.log(ratios)))", "len(both) / sum(1 / ratio for ratio in ratios)")],
        "median": [("np.exp(np.mean(np.log(ratios)))", "np.median(ratios)")],
        "the other way round": [("speeds[task] / reference[task]", "reference[task] / speeds[task]")],
        "not over the reference": [("speeds[task] / reference[task]", "speeds[task]")],
        "no root": [("np.exp(np.mean(np.log(ratios)))", "np.prod(ratios)")],
        "root of all the reference's tasks": [
            ("np.exp(np.mean(np.log(ratios)))", "np.prod(ratios) ** (1 / len(reference))")
        ],
        "square root": [("np.exp(np.mean(np.log(ratios)))", "np.prod(ratios) ** 0.5")],
        "without the hundred": [("100 * ", "")],
        "all tasks of the reference": [("len(both)", "len(reference)")],
        "all tasks of the machine": [("len(both)", "len(speeds)")],
        "a missing one counts as equal": [
            ("    return", "    ratios += [1.0] * (len(reference) - len(both))\n    return")
        ],
        "a missing one counts as nearly nothing": [
            ("    return", "    ratios += [1e-9] * (len(reference) - len(both))\n    return")
        ],
        "None is not looked for": [("reference[task] is not None and speeds.get(task) is not None", "task in speeds")],
        "a key is not looked for": [("speeds.get(task)", "speeds[task]")],
        "the reference has all": [("reference[task] is not None and ", "")],
        "in the order of the tasks": [
            (
                "    ratios = [speeds[task] / reference[task] for task in both]",
                "    ratios = [a / b for a, b in zip(speeds.values(), reference.values()) if a and b]",
            )
        ],
        "the points alone": [(", len(both)", "")],
        "the tasks first": [
            (
                "return 100 * np.exp(np.mean(np.log(ratios))), len(both)",
                "return len(both), 100 * np.exp(np.mean(np.log(ratios)))",
            )
        ],
        "whole points": [("100 * np.exp(np.mean(np.log(ratios)))", "round(100 * np.exp(np.mean(np.log(ratios))))")],
        "equal ratios fall together": [
            (
                "ratios = [speeds[task] / reference[task] for task in both]",
                "ratios = list({speeds[task] / reference[task] for task in both})",
            )
        ],
        "the ratio of the sums": [
            ("np.exp(np.mean(np.log(ratios)))", "sum(speeds[t] for t in both) / sum(reference[t] for t in both)")
        ],
        "the machine is tidied": [("    both =", "    speeds.pop('MLP', None)\n    both =")],
    },
    3: {
        "A is other work": [('"above the limit"', '"other work"')],
        "A: one product": [("18 * 2 * 10_000**3", "2 * 10_000**3")],
        "A: additions forgotten": [("18 * 2 * 10_000**3", "18 * 10_000**3")],
        "A: in GFLOP/s": [(" / 860e9", " / 1e9")],
        "B is fair": [('"saving, not speed-up"', '"fair"')],
        "B: two": [("40 / 19", "2")],
        "B: 1.52": [("40 / 19", "1.52")],
        "B: the time saved": [("40 / 19", "52")],
        "B: the other way round": [("40 / 19", "19 / 40")],
        "C is fair": [('"other work"', '"fair"')],
        "C: the side": [("(224 / 28) ** 2", "224 / 28")],
        "C: 25": [("(224 / 28) ** 2", "25")],
        "D is noise": [('"first call counted"', '"within the spread"')],
        "D: the mean of the others": [('"first call counted", 10)', '"first call counted", 11)')],
        "D: the mean": [('"first call counted", 10)', '"first call counted", 188.8)')],
        "D: in seconds": [('"first call counted", 10)', '"first call counted", 0.01)')],
        "E is fair": [('"within the spread"', '"fair"')],
        "E: the gap": [("3 / 10", "3")],
        "E: spread over gap": [("3 / 10", "10 / 3")],
        "E: half the spread": [("3 / 10", "3 / 5")],
        "F is within the spread": [('"fair"', '"within the spread"')],
        "F: the other way round": [("30 / 20", "20 / 30")],
        "F: a text": [("30 / 20", '"1.5"')],
        "F: yes": [("30 / 20", "True")],
        "F: nothing yet": [('"F": ("fair", 30 / 20)', '"F": ("", 0)')],
        "F is left out": [('    "F": ("fair", 30 / 20),\n', "")],
        "no verdict of the six": [('"fair"', '"good"')],
        "verdict alone": [('("fair", 30 / 20)', '"fair"')],
    },
    4: {
        "whole seconds": [("work[task] / machines", "work[task] // machines")],
        "the time for each task it has": [("for task in work)", "for task in work) / len(machines[name])")],
        "counts one of what is not needed": [
            (
                "return sum(work[task] / machines[name][task] for task in work)",
                "return sum(work.get(task, 1) / speed for task, speed in machines[name].items())",
            )
        ],
        "the first machine's tasks": [("for task in work)", "for task in next(iter(machines.values())))")],
        "rounds to seconds": [
            (
                "return sum(work[task] / machines[name][task] for task in work)",
                "return round(sum(work[task] / machines[name][task] for task in work))",
            )
        ],
        "the largest geometric mean": [
            (
                "sum(work[task] / machines[name][task] for task in work)",
                "-np.mean(np.log(list(machines[name].values())))",
            )
        ],
        "the largest mean speed": [
            ("sum(work[task] / machines[name][task] for task in work)", "-np.mean(list(machines[name].values()))")
        ],
        "work times speed": [("work[task] / machines[name][task]", "-work[task] * machines[name][task]")],
        "speed over work": [
            (
                "sum(work[task] / machines[name][task] for task in work)",
                "-sum(machines[name][task] / work[task] for task in work if work[task])",
            )
        ],
        "one second for each task": [("work[task] / machines", "1 / machines")],
        "the longest task alone": [("return sum(", "return max(")],
        "the largest task alone": [
            ("sum(work[task] / machines[name][task] for task in work)", "-machines[name][max(work, key=work.get)]")
        ],
        "the shortest task": [("return sum(", "return min(")],
        "the slowest": [("return min(machines", "return max(machines")],
        "the first machine": [("return min(machines, key=seconds)", "return next(iter(machines))")],
        "the last machine": [("return min(machines, key=seconds)", "return list(machines)[-1]")],
        "red": [("return min(machines, key=seconds)", 'return "red"')],
        "its seconds": [("return min(machines, key=seconds)", "return min(map(seconds, machines))")],
        "its speeds": [("return min(machines, key=seconds)", "return machines[min(machines, key=seconds)]")],
        "a list": [("return min(machines, key=seconds)", "return [min(machines, key=seconds)]")],
        "weighted geometric mean": [
            (
                "sum(work[task] / machines[name][task] for task in work)",
                "-sum(work[task] * np.log(machines[name][task]) for task in work)",
            )
        ],
        "nothing to do counts as one": [("work[task] / machines", "(work[task] or 1) / machines")],
        "every task of the machines": [
            (
                "sum(work[task] / machines[name][task] for task in work)",
                "sum(work.get(task, 1_000) / speed for task, speed in machines[name].items())",
            )
        ],
    },
}

RIGHT = {
    1: {
        "the first run apart": """
def fair_time(device, repeats):
    def once():
        start = device.clock()
        device.start()
        device.wait()
        return device.clock() - start

    once()
    quartiles = np.percentile([once() for _ in range(repeats)], [25, 50, 75])
    if quartiles[2] - quartiles[0] > quartiles[1] / 20:
        return "too noisy"
    return tuple(quartiles)
""",
        "the clock is read once a run": """
def fair_time(device, repeats):
    device.start()
    device.wait()
    clocks = [device.clock()]
    while len(clocks) <= repeats:
        device.start()
        device.wait()
        clocks.append(device.clock())
    q1, q2, q3 = np.quantile(np.diff(clocks), (0.25, 0.5, 0.75))
    return [q1, q2, q3] if (q3 - q1) / q2 <= 0.05 else "too noisy"
""",
        "statistics": """
def fair_time(device, repeats):
    import statistics

    times = []
    for number in range(repeats + 1):
        before = device.clock()
        device.start()
        device.wait()
        after = device.clock()
        if number > 0:
            times.append(after - before)
    q = statistics.quantiles(times, n=4, method="inclusive")
    return "too noisy" if q[2] - q[0] > 0.05 * q[1] else tuple(q)
""",
        "waits before it starts the clock, too": """
def fair_time(device, repeats):
    times = np.empty(repeats)
    device.start()
    for number in range(repeats):
        device.wait()
        begin = device.clock()
        device.start()
        device.wait()
        times[number] = device.clock() - begin
    low, middle, high = (np.percentile(times, q) for q in (25, 50, 75))
    return (low, middle, high) if high - low <= 0.05 * middle else "too noisy"
""",
    },
    2: {
        "of the library": """
def score_of(speeds, reference):
    from statistics import geometric_mean

    ratios = [speeds[t] / reference[t] for t in speeds if speeds[t] and reference.get(t)]
    return 100 * geometric_mean(ratios), len(ratios)
""",
        "a root": """
def score_of(speeds, reference):
    product, count = 1, 0
    for task, speed in speeds.items():
        if speed is None or reference.get(task) is None:
            continue
        product *= speed / reference[task]
        count += 1
    return (100 * product ** (1 / count), count)
""",
        "logarithms of both": """
def score_of(speeds, reference):
    shared = {t for t in speeds.keys() & reference.keys() if speeds[t] is not None and reference[t] is not None}
    away = np.mean([np.log2(speeds[t]) - np.log2(reference[t]) for t in shared])
    return [np.float64(100 * 2**away), len(shared)]
""",
    },
    3: {
        "as numbers, and rounded": """
diagnosis = {
    "F": ["Fair", 1.5],
    "E": ["within the spread", 0.3],
    "D": ["first call counted", 10.0],
    "C": ["other work", 64],
    "B": ["saving, not speed-up", 2.1],
    "A": ["above the limit", 3],
}
""",
        "with NumPy": """
diagnosis = {
    "a": ("above the limit", np.float64(36e12) / 13.8 / 0.86e12),
    "b": ("saving, not speed-up", 1 / (1 - 0.525)),
    "c": ("other work", np.int64(224 * 224) // (28 * 28)),
    "d": ("first call counted", np.median([900, 10, 10, 14, 10])),
    "e": ("within the spread", (100 - 97) / (105 - 95)),
    "f": ("fair", 1.5),
}
""",
        "in another order of words": """
verdicts = "above the limit;saving, not speed-up;other work;first call counted;within the spread;fair".split(";")
diagnosis = dict(zip("ABCDEF", zip(verdicts, (3.03, 2.105, 64, 10, 0.3, 1.5))))
""",
    },
    4: {
        "a loop": """
def choose(machines, work):
    best, least = None, float("inf")
    for name, speeds in machines.items():
        total = 0
        for task, amount in work.items():
            total += amount / speeds[task]
        if total < least:
            best, least = name, total
    return best
""",
        "arrays": """
def choose(machines, work):
    names = list(machines)
    times = [np.dot([1 / machines[name][task] for task in work], list(work.values())) for name in names]
    return names[int(np.argmin(times))]
""",
        "the mean speed for this work": """
def choose(machines, work):
    def speed(name):
        return sum(work.values()) / sum(work[task] / machines[name][task] for task in work if work[task] > 0)

    return sorted(machines, key=speed)[-1]
""",
    },
}
