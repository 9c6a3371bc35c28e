"""Keep the pages: write the doctor's findings and what computes on a GPU into docs/, new lessons into README's table.

And follow links.
"""

from __future__ import annotations

import argparse
import itertools
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from helpers import ROOT, doctor
from helpers.commands import lesson_files
from helpers.commands.files import write
from helpers.compute.host import Host, binder_link
from helpers.doctor.findings import Failure
from helpers.errors import WorkshopError
from helpers.maintain import on_gpu, rules

PAGES = ("README.md", "data/README.md", "docs/**/*.md")
SECONDS = 20.0  # for each address
PLACEHOLDER = "OWNER/REPOSITORY"  # stands for an address that is known once the workshop is published
BROWSER = {"User-Agent": "Mozilla/5.0 (any-gpu-workshop, checking its links)"}  # some sites refuse programs
UNCLEAR = (401, 403, 405, 429, 503)  # what sites say to programs, though a browser may get the page

# The machines that advice is shown for: by page, and where a failure belongs to one system by the start of its id.
LINUX = Host("Linux", "x86_64", (3, 12), "venv", nvidia=False)
WINDOWS = Host("Windows", "x86_64", (3, 12), "venv", nvidia=False)
MAC = Host("Darwin", "arm64", (3, 12), "venv", nvidia=False)
BY_HAND = Host("Linux", "x86_64", (3, 12), "own", nvidia=False)  # as AMD's packages are installed
SESSION = Host("Linux", "x86_64", (3, 13), "own", nvidia=True)  # of Colab and Kaggle
HOSTS = {"amd-linux": BY_HAND, "amd-windows": WINDOWS, "directml": WINDOWS, "apple": MAC, "hosted": SESSION}
OWN_SYSTEM = {
    "windows-wsl": LINUX,
    "amd-wsl": LINUX,
    "windows-": WINDOWS,
    "apple-": MAC,
    "hosted-colab": SESSION,
    "hosted-kaggle": SESSION,
}
ON_EVERY_SYSTEM = (  # of those on pages for several systems
    "opencl-no-device", "opencl-gpu-missing", "webgpu-no-such-adapter", "webgpu-no-adapter", "webgpu-does-not-compute",
    "devices-late",
)  # fmt: skip
LABELS = {"Linux": "Linux", "Windows": "Windows", "Darwin": "macOS"}
GPUS = {  # for a page's titles, where a failure's own example is of another maker; the others keep it
    "amd-linux": "AMD Radeon RX 6600 XT", "amd-windows": "AMD Radeon RX 6600 XT", "apple": "Apple M4 GPU",
    "directml": "AMD Radeon RX 6600 XT", "intel": "Intel Arc A770", "nvidia": "NVIDIA GeForce RTX 4080",
}  # fmt: skip
NAMED = ("gpu", "device", "adapter")  # the keys of examples that hold a GPU's name
FAMILIES = {  # the families of failures whose headings are not their names
    "host": "The computer", "windows": "Windows and WSL", "hosted": "Colab, Kaggle, containers", "nvidia": "NVIDIA",
    "amd": "AMD", "opencl": "OpenCL", "webgpu": "WebGPU", "devices": "Devices that are listed and do not compute",
}  # fmt: skip
EVERY_FAILURE = "failures"  # the page that has them all, with what to do
README = ROOT / "README.md"
ROW = re.compile(r"^\| (\d\d) \| \[.*\n", re.MULTILINE)  # of its table of lessons
HEAD = re.compile(r"# (.*)\n[^|]*\|.*\n\|[-:| ]+\n\|([^|]*)\|\D*(\d+)")  # a lesson's: title, goal, minutes
BLOCK = re.compile(r"(?<=<!-- findings -->\n).*?(?=<!-- end of findings -->)", re.DOTALL)
LESSONS = re.compile(r"(?<=<!-- lessons -->\n).*?(?=<!-- end of lessons -->)", re.DOTALL)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments."""
    parser.add_argument("--list", action="store_true", help="print every outside link and where it stands")
    parser.add_argument("--outside", action="store_true", help="ask the network whether the outside links still work")


def run(args: argparse.Namespace) -> int:
    """Write the failures into the pages, print the links that lead nowhere, and return 1 if any does."""
    update()
    wrong = [f"{name(path)}: {problem}" for path in every_file() for problem in broken(path)]
    found = outside()
    if args.list:
        print("\n".join(f"{url}  ({', '.join(places)})" for url, places in sorted(found.items())))
    if args.outside:
        wrong += ask_all(found)
    print("\n".join(wrong) or f"Every link inside leads somewhere; {len(found)} lead outside.")
    return int(any("unclear" not in line for line in wrong))


def update() -> None:
    """Bring up to date what the pages tell of the doctor's failures and of lessons; name the pages that changed."""
    for path, text in outdated().items():
        write(path, text)
        print(f"{name(path)}: brought up to date")


def outdated() -> dict[Path, str]:
    """Return each page of which a generated part is old, with its new text."""
    new = {path: with_lessons(path, with_findings(path, path.read_text(encoding="utf-8"))) for path in pages()}
    new[README] = with_rows(README.read_text(encoding="utf-8"))
    return {path: text for path, text in new.items() if text != path.read_text(encoding="utf-8")}


def with_rows(text: str) -> str:
    """Return README's text with a row for each lesson that its table lacks, and none for a lesson that is gone.

    A new row has title, goal and minutes of the lesson's first cell; rows that are there stay. A lesson with notes for
    its author is a draft, and has no row yet.
    """
    lessons = lesson_files.every()
    rows = {row[1]: row[0] for row in ROW.finditer(text) if row[1] in {path.name[:2] for path in lessons}}
    for path in lessons:
        notebook = lesson_files.read(path)
        number, head = path.name[:2], HEAD.match(notebook.cells[0].source)
        if head and number not in rows and not rules.author_notes(notebook):
            title, goal, minutes = map(str.strip, head.groups())
            goal = goal[:1].lower() + goal[1:]
            rows[number] = f"| {number} | [{title}](notebooks/{path.name}) | {goal} | {minutes} |\n"
    table = "".join(rows[number] for number in sorted(rows))
    return re.sub(f"(?:{ROW.pattern})+", lambda _: table, text, count=1, flags=re.MULTILINE)


def pages() -> list[Path]:
    """Return the pages for platforms."""
    return sorted((ROOT / "docs").glob("*.md"))


def failures() -> list[Failure]:
    """Return the failures that the pages tell of, the most fundamental first."""
    return [failure for failure in doctor.KNOWN.values() if failure.pages]


def with_findings(path: Path, text: str) -> str:
    """Return a page's text with the failures that the doctor knows between its two marks.

    The page `failures` has them all, each with what to do; every other page has links to those that name it.
    """
    if path.stem == EVERY_FAILURE:
        families: dict[str, str] = {}
        for failure in failures():
            families[failure.family] = families.get(failure.family, "") + entry(failure)
        found = "".join(f"## {FAMILIES.get(one, one.title())}\n\n{text}" for one, text in families.items())
    else:
        named = [failure for failure in failures() if path.stem in failure.pages]
        found = "".join(f"- {link_text(failure, path.stem)}\n" for failure in named)
    return BLOCK.sub(lambda _: found, text)


def with_lessons(path: Path, text: str) -> str:
    """Return a page's text with the table of lessons that compute on a GPU between its two marks, if it has them."""
    return LESSONS.sub(lambda _: on_gpu.table(path.stem), text)


def host_for(failure: Failure, page: str) -> Host:
    """Return the machine for which a failure's advice is shown on a page."""
    own = next((host for start, host in OWN_SYSTEM.items() if failure.id.startswith(start)), None)
    return own or HOSTS.get(page, LINUX)


def link_text(failure: Failure, page: str) -> str:
    """Return a failure as a link to what to do, with an example of the page's own maker."""
    found = failure.found(host_for(failure, page), **(dict(failure.example) | own_example(failure, page)))
    what = re.sub(r"([\[\]])", r"\\\1", found.what)
    return f"[{what}]({EVERY_FAILURE}.md#{failure.id})"


def own_example(failure: Failure, page: str) -> dict[str, str]:
    """Return what a failure's example says otherwise on the page of another maker."""
    own, example = GPUS.get(page, ""), failure.example
    maker = own.split()[:1]
    others = [key for key in NAMED if own and example.get(key, own).replace("Tesla", "NVIDIA").split()[:1] != maker]
    found = dict.fromkeys(others, own)
    if own and page != "nvidia":
        words = [key for key in ("reason", "says") if re.search("CUDA|cudnn", example.get(key, ""))]
        found |= dict.fromkeys(words, "the reason in its own words")
        found |= {"framework": "PyTorch"} if "device" in found and words else {}
    return found


def entry(failure: Failure) -> str:
    """Return a failure with its reason and what to do, for each system on which that differs."""
    hosts = [host_for(failure, page) for page in failure.pages]
    hosts += [WINDOWS, MAC] if failure.id in ON_EVERY_SYSTEM else []
    advice: dict[str, list[Host]] = {}
    for host in dict.fromkeys(hosts):  # the same in every clone: without the address that it came from
        text = failure.shown(host).next.replace(binder_link(), binder_link(Path("nowhere")))
        advice.setdefault(text, []).append(host)
    makers = {key for page in failure.pages for key in own_example(failure, page)} & set(NAMED)
    shown = failure.found(hosts[0], **dict(failure.example) | dict.fromkeys(makers, "your GPU"))
    what = re.sub("^your", "Your", shown.what)
    lines = [f'<a id="{failure.id}"></a>', "", f"### {what}", "", f"**Why:** {shown.why}", ""]
    several = len(advice) > 1
    for text, same in advice.items():
        names = dict.fromkeys(map(label, same))
        systems = " and ".join(
            one for one in names if one.partition(",")[0] == one or one.partition(",")[0] not in names
        )
        lines += [f"**Next{f', {systems}' if several else ''}:**", "", *blocks(text, same[0]), ""]
    places = ", ".join(f"[{title(page)}]({page}.md)" for page in failure.pages)
    return "\n".join([*lines, f"Pages: {places}. Source: {failure.source}.".replace("..", "."), "", ""])


def title(page: str) -> str:
    """Return a page's first heading."""
    file = ROOT / "docs" / f"{page}.md"
    return file.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ") if file.is_file() else page


def label(host: Host) -> str:
    """Return what a system is called, with how the packages came to it where that changes what is typed."""
    by_hand = {BY_HAND: ", environment made by hand", SESSION: ", Colab and Kaggle"}
    return LABELS[host.system] + by_hand.get(host, "")


def blocks(advice: str, host: Host) -> list[str]:
    """Return advice as lines of Markdown: its commands, which are indented there, in blocks that can be copied."""
    lines: list[str] = []
    for is_command, group in itertools.groupby(advice.splitlines(), lambda line: line.startswith("    ")):
        text = [line.strip() for line in group if line.strip()]
        text = text if is_command else [re.sub(r"docs/([\w-]+\.md)", r"[\1](\1)", line) for line in text]
        is_command = is_command and not all(map(is_outside, text))
        windows = host.system == "Windows" or any(line.startswith(("py ", "wsl ")) for line in text)
        fence = "powershell" if windows else "sh"
        lines += ["", f"```{fence}", *text, "```", ""] if is_command else text
    return "\n".join(lines).strip().splitlines()


def every_file(root: Path = ROOT) -> list[Path]:
    """Return the pages and the lessons whose links are kept."""
    pages = [path for pattern in PAGES for path in sorted(root.glob(pattern))]
    return [*pages, *sorted((root / "notebooks").glob("*.ipynb"))]


def name(path: Path) -> str:
    """Return a file's path from the workshop's folder on."""
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name


def prose(path: Path) -> str:
    """Return a file's Markdown; of a notebook that of its cells, with a blank line between them."""
    if path.suffix != ".ipynb":
        return path.read_text(encoding="utf-8")
    return "\n\n".join(cell.source for cell in lesson_files.read(path).cells if cell.cell_type == "markdown")


def tokens(markdown: str) -> Iterator[dict[str, Any]]:
    """Yield mistune's tokens of a text, in their order, each before those in it."""
    import mistune

    def walk(items: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for item in items:
            yield item
            yield from walk(item.get("children", []))

    parse = mistune.create_markdown(renderer="ast", plugins=["table", "url"])
    yield from walk(parse(markdown))


def text_of(token: dict[str, Any]) -> str:
    """Return what a reader sees of a token."""
    return token.get("raw", "") + "".join(map(text_of, token.get("children", [])))


def links(markdown: str) -> list[str]:
    """Return the targets of a text's links and images, those in HTML tags too."""
    found = []
    for token in tokens(markdown):
        if token["type"] in ("link", "image"):
            found.append(token["attrs"]["url"])
        elif token["type"] in ("block_html", "inline_html"):
            found += re.findall(r"\b(?:href|src)=[\"']([^\"']+)", token["raw"])
    return [target for target in found if not target.startswith(("data:", "mailto:"))]


def anchors(markdown: str) -> set[str]:
    """Return what a link to this text may have after its #: headings, as GitHub names them, and ids in HTML tags."""
    found: set[str] = set()
    for token in tokens(markdown):
        if token["type"] == "heading":
            slug = re.sub(r"[^\w\- ]", "", text_of(token).strip().lower()).replace(" ", "-")
            same = [f"{slug}-{number}" for number in range(1, 100)]
            found.add(next(one for one in [slug, *same] if one not in found))
        elif token["type"] in ("block_html", "inline_html"):
            found |= set(re.findall(r"\b(?:id|name)=[\"']([^\"']+)", token["raw"]))
    return found


def is_outside(target: str) -> bool:
    """Say whether a link leads out of the workshop."""
    return re.match(r"[a-z][a-z+.-]+:", target) is not None


def broken(path: Path) -> list[str]:
    """Return what is wrong with the links of one file that stay inside the workshop."""
    found = []
    for target in links(prose(path)):
        if is_outside(target):
            continue
        place, _, anchor = target.partition("#")
        file = (path.parent / place) if place else path
        if not file.exists():
            found.append(f"a link leads to {target}, which is not there")
        elif anchor and file.suffix in (".md", ".ipynb"):
            there = anchors(prose(file))
            if anchor not in there and anchor.lower() not in there:
                found.append(f"a link leads to {target}, and there is no such heading; there are {sorted(there)}")
    return found


def outside(root: Path = ROOT) -> dict[str, list[str]]:
    """Return every link that leads outside, and the files in which it stands."""
    found: dict[str, list[str]] = {}
    for path in every_file(root):
        for target in dict.fromkeys(links(prose(path))):
            if is_outside(target) and PLACEHOLDER not in target:
                found.setdefault(target.partition("#")[0], []).append(name(path))
    return found


def ask(url: str, seconds: float = SECONDS) -> str:
    """Return what is wrong with an address; empty if a page is there, "unclear" where the site does not tell."""
    import requests

    try:
        for method in ("HEAD", "GET"):  # some sites know no HEAD
            with requests.request(
                method, url, headers=BROWSER, timeout=seconds, stream=True, allow_redirects=True
            ) as page:
                status = page.status_code
            if status < 400:
                return ""
    except requests.RequestException as error:
        return f"no answer ({type(error).__name__})"
    return f"{'unclear' if status in UNCLEAR else 'gone'} (status {status})"


def ask_all(found: dict[str, list[str]]) -> list[str]:
    """Ask every address, several at once, and return a line for each that is not right.

    Raises:
        WorkshopError: none of them could be reached.
    """
    with ThreadPoolExecutor(8) as pool:
        answers = dict(zip(found, pool.map(ask, found), strict=True))
    if found and all(answer.startswith("no answer") for answer in answers.values()):
        raise WorkshopError(
            "None of the outside links could be reached.",
            f"The first said: {next(iter(answers.values()))}. There seems to be no network here.",
            "Repeat the command where there is one.",
        )
    return [f"{', '.join(found[url])}: {url}: {answer}" for url, answer in sorted(answers.items()) if answer]
