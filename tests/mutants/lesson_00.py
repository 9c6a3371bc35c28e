"""Wrong answers to the exercises of lesson 00; each is the solution with some text replaced."""

SPIN = "while time.perf_counter() < end:\n        pass"

MUTANTS = {
    1: {
        "waits by asking for the time": [
            (
                "    time.sleep(0.1)",
                "    end = time.perf_counter() + 0.1\n    while time.perf_counter() < end:\n        pass",
            )
        ],
        "returns at once, and is called again": [("    time.sleep(0.1)", "    return None")],
        "waits for seconds": [("sleep(0.1)", "sleep(3)")],
        "waits for a second": [("sleep(0.1)", "sleep(1)")],
        "burns for a second": [("time.perf_counter() + 0.1", "time.perf_counter() + 1")],
        "does nothing, and the check's own loop is busy": [(SPIN, "pass")],
        "returns at once, the end forgotten": [(SPIN, "while time.perf_counter() < 0.1:\n        pass")],
        "prints once": [(SPIN, "print('busy')")],
        "called instead of handed over": [("\n\n\ndef fool", "\n\n\nwait = wait()\n\n\ndef fool")],
        "fools nobody": [(SPIN, "time.sleep(0.1)")],
        "asks the device": [(SPIN, "lesson.keep_busy(device)()")],
        "a name that does not exist": [("time.sleep(0.1)", "pause(0.1)")],
        "another process works": [
            (SPIN, "import subprocess, sys\n    subprocess.run([sys.executable, '-c', 'sum(range(10**7))'])")
        ],
    },
    2: {
        "swapped": [
            (
                "return 100 * running / seconds, 100 * work / (seconds * lanes)",
                "return 100 * work / (seconds * lanes), 100 * running / seconds",
            ),
        ],
        "shares, not percent": [("100 * running", "running"), ("100 * work", "work")],
        "more work-items than lanes": [("min(items, lanes)", "items")],
        "every kernel fills the card": [("min(items, lanes)", "lanes")],
        "the time that kernels took for the whole": [("(seconds * lanes)", "(max(running, 1e-9) * lanes)")],
        "always one second": [("running / seconds", "running"), ("(seconds * lanes)", "lanes")],
        "until the last end": [("running += end - start", "running = end")],
        "the number of kernels": [("running += end - start", "running += 1")],
        "the first kernel alone": [("in kernels:", "in kernels[:1]:")],
        "the first kernel alone, by its number": [("in kernels:", "in [kernels[0]]:")],
        "rounded": [
            (
                "100 * running / seconds, 100 * work / (seconds * lanes)",
                "round(100 * running / seconds), round(100 * work / (seconds * lanes))",
            )
        ],
        "fails for no kernels": [("100 * running / seconds,", "100 * running / seconds + 0 * kernels[0][0],")],
        "the last kernel alone": [("work += (", "work = (")],
        "waits for the first start": [("/ seconds, 100", "/ (seconds - kernels[0][0] if kernels else 1), 100")],
    },
    3: {
        "arguments swapped": [("(idle, busy):", "(busy, idle):")],
        "the gap without a sign": [("return np", "return abs(np"), (" > 5", ") > 5")],
        "no margin": [("> 5", "> 0")],
        "equal counts as larger": [("> 5", ">= 5")],
        "medians for quartiles": [("25", "50"), ("75", "50")],
        "quartiles swapped": [("busy, 25", "busy, 75"), ("idle, 75", "idle, 25")],
        "all of them, not three quarters": [
            ("np.percentile(busy, 25)", "min(busy)"),
            ("np.percentile(idle, 75)", "max(idle)"),
        ],
        "the 20th percentile": [("busy, 25", "busy, 20")],
        "the 80th percentile": [("idle, 75", "idle, 80")],
        "the 30th and the 70th": [("busy, 25", "busy, 30"), ("idle, 75", "idle, 70")],
        "means": [("np.percentile(busy, 25)", "np.mean(busy)"), ("np.percentile(idle, 75)", "np.mean(idle)")],
        "always": [("np.percentile(busy, 25) - np.percentile(idle, 75) > 5", "True")],
        "nothing for too few samples": [("if len(idle) < 3 or len(busy) < 3:", "if False:")],
        "one list may be short": [(" or ", " and ")],
        "empty alone is too few": [("len(idle) < 3 or len(busy) < 3", "not idle or not busy")],
        "few by the sum": [("len(idle) < 3 or len(busy) < 3", "len(idle) + len(busy) < 6")],
        "few by the product": [("len(idle) < 3 or len(busy) < 3", "len(idle) * len(busy) < 9")],
        "few in one list of both": [("len(idle) < 3 or len(busy) < 3", "len(idle + busy) < 6")],
        "the gap rounded": [
            (
                "return np.percentile(busy, 25) - np.percentile(idle, 75)",
                "return round(np.percentile(busy, 25) - np.percentile(idle, 75))",
            )
        ],
        "the gap cut to a whole number": [
            (
                "return np.percentile(busy, 25) - np.percentile(idle, 75)",
                "return int(np.percentile(busy, 25) - np.percentile(idle, 75))",
            )
        ],
        "almost six": [("> 5", "> 5.9")],
        "too few count as used": [("return False", "return True")],
    },
}

# Right answers, written differently.
RIGHT = {
    1: {
        "an event, and hashes": """\
import hashlib
import threading

def wait():
    threading.Event().wait(0.2)

def fool():
    hashlib.sha256(bytes(2**27)).digest()""",
        "a longer sleep, and a list": """\
def wait():
    time.sleep(0.3)
    return True

def fool():
    return len([n * n for n in range(2_000_000)])""",
        "prints all the time": """\
def wait():
    print("waiting")
    time.sleep(0.1)

def fool():
    end = time.perf_counter() + 0.1
    while time.perf_counter() < end:
        print("busy")""",
        "a lambda, and a function that hands on another": """\
wait = lambda: time.sleep(0.1)

def burn(seconds):
    start = time.process_time()
    while time.process_time() - start < seconds:
        sum(range(1000))

fool = lambda: burn(0.1)""",
    },
    2: {
        "sums": """\
def percentages(kernels, seconds, lanes):
    utilisation = sum(end - start for start, end, items in kernels) / seconds * 100
    busy = sum((end - start) * (items if items < lanes else lanes) for start, end, items in kernels)
    return utilisation, busy / seconds / lanes * 100""",
        "an array": """\
def percentages(kernels, seconds, lanes):
    table = np.array(kernels, float).reshape(-1, 3)
    took = table[:, 1] - table[:, 0]
    return np.array([took.sum(), (took * np.minimum(table[:, 2], lanes)).sum() / lanes]) / seconds * 100""",
    },
    3: {
        "quantile": """\
def is_used(idle, busy):
    if min(len(idle), len(busy)) < 3:
        return False
    return bool(np.quantile(busy, 0.25) > np.quantile(idle, 0.75) + 5)""",
        "statistics": """\
import statistics

def is_used(idle, busy):
    if min(len(idle), len(busy)) < 3:
        return False
    return statistics.quantiles(busy, n=4)[0] - statistics.quantiles(idle, n=4)[2] > 5""",
        "inclusive": """\
import statistics

def is_used(idle, busy):
    few = len(idle) < 3 or len(busy) < 3
    low, high = (few or statistics.quantiles(values, n=100, method="inclusive") for values in (busy, idle))
    return not few and low[24] - high[74] > 5""",
        "the lower neighbour": """\
def is_used(idle, busy):
    def percentile(values, p):
        return sorted(values)[int(p / 100 * (len(values) - 1))]

    return len(idle) >= 3 and len(busy) >= 3 and percentile(busy, 25) - percentile(idle, 75) > 5""",
        "the upper neighbour": """\
import math

def is_used(idle, busy):
    def percentile(values, p):
        return sorted(values)[math.ceil(p / 100 * (len(values) - 1))]

    return len(idle) >= 3 and len(busy) >= 3 and percentile(busy, 25) - percentile(idle, 75) > 5""",
        "halves of halves": """\
def is_used(idle, busy):
    if len(idle) < 3 or len(busy) < 3:
        return False
    below = [one for one in sorted(busy)[:len(busy) // 2]]
    above = [one for one in sorted(idle)[-(len(idle) // 2):]]
    return bool(np.median(below) > np.median(above) + 5)""",
        "sorted": """\
def is_used(idle, busy):
    if len(idle) < 3 or len(busy) < 3:
        return False
    return sorted(busy)[len(busy) // 4] - sorted(idle)[3 * len(idle) // 4] > 5""",
    },
}
