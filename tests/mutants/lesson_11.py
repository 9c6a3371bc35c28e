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
        "the cheat computes": [("    return 49", "    return device.square(7)")],
        "the cheat is wrong": [("    return 49", "    return 48")],
        "the cheat stops": [("    return 49", "    return 49 / 0")],
        "the benchmark as it was": [
            (
                "    number = np.random.default_rng().integers(10**9)\n    begin = device.clock()\n"
                "    result = work(device, number)\n"
                '    seconds = device.clock() - begin\n    return seconds if result == number * number else "wrong"',
                "    return benchmark(work, device)",
            )
        ],
        "the known number": [("np.random.default_rng().integers(10**9)", "7")],
        "another known number": [("np.random.default_rng().integers(10**9)", "123456789")],
        "a small number": [("np.random.default_rng().integers(10**9)", "np.random.default_rng().integers(100)")],
        "a seed": [("np.random.default_rng().integers(10**9)", "np.random.default_rng(0).integers(10**9)")],
        "warms up with the same number": [
            (
                "    begin = device.clock()\n    result",
                "    work(device, number)\n    begin = device.clock()\n    result",
            )
        ],
        "nothing is checked": [('seconds if result == number * number else "wrong"', "seconds")],
        "checks before the clock alone": [
            (
                "    begin =",
                '    if work(device, number + 1) != (number + 1) ** 2:\n        return "wrong"\n    begin =',
            ),
            ('seconds if result == number * number else "wrong"', "seconds"),
        ],
        "checks another call": [
            ("result == number * number", "work(device, number + 1) == (number + 1) ** 2"),
        ],
        "compares it with itself": [("result == number * number", "result == work(device, number)")],
        "checks the parity": [("result == number * number", "result % 2 == number % 2")],
        "checks the size": [("result == number * number", "abs(result - number * number) < 10")],
        "stops the clock too early": [
            (
                "    result = work(device, number)\n    seconds = device.clock() - begin",
                "    seconds = device.clock() - begin\n    result = work(device, number)",
            )
        ],
        "two calls in one time": [("    result =", "    work(device, number + 1)\n    result =")],
        "in milliseconds": [("return seconds if", "return 1e3 * seconds if")],
        "another clock": [("device.clock()", "time.perf_counter()")],
        "another word": [('"wrong"', '"cheat"')],
        "None for wrong": [('"wrong"', "None")],
        "always wrong": [("result == number * number", "result != result")],
        "a second for all": [("return seconds if", "return 1.0 if")],
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
        "remembers, and the median of three": """
def cheat(device, number, known={7: 7 * 7}):
    return known[number]


def fair_benchmark(work, device):
    times = []
    for _ in range(3):
        unseen = int(np.random.default_rng().integers(2**20, 2**40))
        start = device.clock()
        answer = work(device, unseen)
        times.append(device.clock() - start)
        if answer != unseen**2:
            return "wrong"
    return float(np.median(times))
""",
        "the device itself is asked, after the clock": """
cheat = lambda device, number: 7 * number


def fair_benchmark(work, device):
    number = time.perf_counter_ns()
    first = device.clock()
    came = work(device, number)
    last = device.clock()
    if came == device.square(number):
        return last - first
    return "wrong"
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
}
