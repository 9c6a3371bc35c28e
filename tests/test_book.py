"""The book: its pages, made of the lessons and of docs/, and the site, looked at in Chromium without a network."""

import importlib.util
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from helpers import ROOT
from helpers.commands import book, lesson_files
from helpers.errors import WorkshopError
from helpers.maintain import screenshots

PICTURES = ROOT / "build" / "screenshots" / "book"
LESSON, PLATFORM = "notebooks/01-add-vectors-with-opencl.html", "docs/platforms.html"
LOOKED_AT = {"front": "index.html", "lesson": LESSON, "platform": PLATFORM, "run": "record.html"}
SIZES = {"desktop": (1400, 900), "phone": (360, 740)}
BINDER = "https://mybinder.org/v2/gh/OWNER/REPOSITORY/HEAD?urlpath=lab/tree/notebooks/00-check-your-setup.ipynb"
needs_sphinx = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("sphinx", "myst_nb", "pydata_sphinx_theme")),
    reason="what builds the book is not installed: python3 workshop.py book",
)


# ------------------------------------------------------------------------------------------------ pages


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    return folder, book.prepare(folder)


def links(text, path):
    """Return some Markdown with its links as the book has them, and the files that are shipped for it."""
    shipped = []
    return book.with_links(text, ROOT / path, shipped), [file.relative_to(ROOT).as_posix() for file in shipped]


def test_every_lesson_and_every_page_stands_once_in_the_contents(prepared):
    folder, _ = prepared
    written = {path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.md")}
    written |= {path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.ipynb")}
    listed = re.findall(r"```\{toctree\}.*?\n\n(.*?)\n```", (folder / "index.md").read_text(), re.DOTALL)
    names = [re.sub(r".*<(.*)>", r"\1", line) for block in listed for line in block.splitlines()]
    assert sorted(names) == sorted(written - {"index"})
    docs = {path.relative_to(ROOT).with_suffix("").as_posix() for path in ROOT.glob("docs/**/*.md")}
    lessons = [f"notebooks/{path.stem}" for path in lesson_files.every()]
    assert docs <= written and names[: len(lessons)] == lessons
    assert names[len(lessons)] == "docs/platforms" and "00 Check your setup" in listed[0]
    assert "docs/nvidia" in listed[1] and "docs/failures" in listed[2]


@pytest.mark.parametrize(
    ("path", "text", "wanted", "shipped"),
    [
        ("docs/cpu.md", "[a](nvidia.md#windows)", "[a](nvidia.md#windows)", []),
        ("docs/cpu.md", "[a](https://example.org/a.md)", "[a](https://example.org/a.md)", []),
        ("docs/cpu.md", "[a](failures.md#host-no-avx)", "[a](#host-no-avx)", []),
        ("docs/failures.md", '<a id="host-no-avx"></a>', "(host-no-avx)=", []),
        ("docs/cpu.md", "[a](../README.md)", "[a](../index.md)", []),
        ("docs/cpu.md", "[a](../README.md#lessons)", "[a](../index.md#lessons)", []),
        ("docs/cpu.md", "[a](../README.md#which-packages)", "[a](../more.md#which-packages)", []),
        ("README.md", "[a](#for-teachers)", "[a](more.md#for-teachers)", []),
        ("README.md", "[a](docs/taster.html)", "[a](docs/taster.html){.external}", ["docs/taster.html"]),
        ("README.md", "[a](LICENSE)", "[a](LICENSE)", ["LICENSE"]),
        ("docs/cpu.md", "`x[0](y)` and [a](gone.txt)", "`x[0](y)` and [a](gone.txt)", []),  # Sphinx tells of those
    ],
)
def test_links_lead_to_where_the_site_has_their_targets(path, text, wanted, shipped):
    assert links(text, path) == (wanted, shipped)


def test_what_pages_link_to_is_shipped(prepared):
    folder, shipped = prepared
    assert {"docs/taster.html", "data/published_results.csv"} <= {one.relative_to(ROOT).as_posix() for one in shipped}
    assert all((folder / file.relative_to(ROOT)).read_bytes() == file.read_bytes() for file in shipped)


def test_a_book_for_learners_has_no_page_for_teachers_and_no_link_to_one(tmp_path):
    book.prepare(tmp_path, for_learners=True)
    assert not list(tmp_path.glob("docs/teaching*"))
    texts = {path: path.read_text(encoding="utf-8") for path in tmp_path.rglob("*") if path.suffix in (".md", ".ipynb")}
    assert [path.name for path, text in texts.items() if re.search(r"\]\([^)]*teaching[/.]", text)] == []
    assert "a script for each lesson" in texts[tmp_path / "more.md"]  # the words of a link stay


@pytest.mark.slow
@needs_sphinx
def test_a_book_for_learners_is_built_without_a_warning(tmp_path):
    book.build(tmp_path / "site", for_learners=True)
    index = (tmp_path / "site" / "searchindex.js").read_text(encoding="utf-8")
    assert "notebooks/01-add-vectors" in index and "docs/teaching" not in index


def test_the_front_page_is_readmes_with_a_device_for_each_lesson(prepared):
    text = (prepared[0] / "index.md").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    title, promise = readme.split("\n\n")[:2]
    assert text.startswith(f"{title}\n\n{promise.partition('.**')[0]}.**")
    assert "[Try it now, install nothing](docs/taster.html){.external .btn" in text
    assert "A click or a tap on a figure enlarges it." in text
    assert "python3 workshop.py lab " in text and "python3 workshop.py test " in text
    rows = re.findall(r"^\| (\d\d) \|.*\| \d+ \| (.*?) ?\|$", text, re.MULTILINE)
    told = {path.stem[:2]: lesson_files.facts(lesson_files.read(path)) for path in lesson_files.every()}
    assert len(rows) > 10 and set(rows) <= {(number, facts.get("device", "")) for number, facts in told.items()}


def test_nothing_is_launched_from_a_folder_that_does_not_know_where_it_is_published(prepared, monkeypatch, tmp_path):
    launched = re.compile(rb"\]\(https://mybinder")
    monkeypatch.setattr(book, "binder_link", lambda: "https://mybinder.org   (give it the address)")
    book.prepare(tmp_path / "without")
    assert not [path for path in (tmp_path / "without").rglob("*.*") if launched.search(path.read_bytes())]
    monkeypatch.setattr(book, "binder_link", lambda: BINDER)
    book.prepare(tmp_path / "with")
    assert f"[Open on Binder]({BINDER})" in (tmp_path / "with" / "index.md").read_text(encoding="utf-8")
    for path in lesson_files.every():
        first = lesson_files.read(tmp_path / "with" / "notebooks" / path.name).cells[0].source
        assert BINDER.replace("00-check-your-setup", path.stem) in first


def test_a_lesson_says_whose_outputs_it_shows_and_describes_its_figures(prepared):
    for path in lesson_files.every():
        stored, page = lesson_files.read(path), lesson_files.read(prepared[0] / "notebooks" / path.name)
        assert lesson_files.facts(stored).get("device", "") in page.cells[0].source
        assert f"lab {path.stem[:2]}`" in page.cells[0].source
        for before, after in zip(stored.cells, page.cells, strict=True):
            figures = [output for output in before.get("outputs", []) if "image/png" in output.get("data", {})]
            if figures:
                assert after.metadata["mystnb"]["image"]["alt"] == figures[0].metadata["image/png"]["alt"]
            assert len(figures) <= 1, "myst-nb knows one alternative text a cell"


def test_outputs_of_the_last_run_are_taken_where_they_are(tmp_path):
    path = lesson_files.every()[0]
    notebook = lesson_files.read(path)
    notebook.cells[0].source += "\n\nexecuted here"
    (tmp_path / "ran").mkdir()
    (tmp_path / "ran" / path.name).write_text(json.dumps(notebook), encoding="utf-8")
    book.prepare(tmp_path / "pages", tmp_path / "ran")
    assert "executed here" in (tmp_path / "pages" / "notebooks" / path.name).read_text(encoding="utf-8")
    assert len(list((tmp_path / "pages" / "notebooks").iterdir())) == len(lesson_files.every())


def test_a_learners_copy_is_no_lesson_of_the_book(monkeypatch, tmp_path):
    first = lesson_files.every()[0]
    monkeypatch.setattr(lesson_files, "every", lambda: [first.with_stem(f"{first.stem}-ann"), first])
    book.prepare(tmp_path)
    assert [path.name for path in (tmp_path / "notebooks").iterdir()] == [first.name]


def test_the_last_run_is_told_with_seconds_memory_versions_and_device(tmp_path):
    lessons = {path: None for path in lesson_files.every()}
    names = [path.stem for path in lessons]
    report = tmp_path / "report.json"
    assert "Nothing was run" in book.record(lessons, report)
    row = {"verdict": "passed", "seconds": 12.5, "peak_mib": 432, "device": "GPU", "dataset": "", "profile": "lab"}
    told = {"finished": "2026-11-22T09:05:41+00:00", "machine": {"system": "Linux", "memory": "2 GiB"}}
    told |= {"versions": {"numpy": "2.4.6"}, "lessons": [row | {"lesson": name} for name in (names[1], "01-ann")]}
    report.write_text(json.dumps(told), encoding="utf-8")
    text = book.record(lessons, report)
    assert "2026-11-22 at 09:05 UTC" in text and "Linux, 2 GiB" in text and f"1 of {len(names)} lessons" in text
    assert re.search(rf"\| \[{names[1]}\]\(notebooks/{names[1]}.ipynb\) +\| passed +\| 12.5 +\| 432 +\| GPU ", text)
    assert "ann" not in text and re.search(r"\| numpy +\| 2.4.6", text)


def test_without_sphinx_one_message_says_what_to_type(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(WorkshopError, match="not installed: sphinx") as told:
        book.run(None)
    assert "python3 workshop.py book" in str(told.value)


@needs_sphinx
def test_a_dead_link_ends_the_build_with_its_place_and_leaves_the_old_site(monkeypatch, tmp_path):
    def prepare(folder, executed, for_learners):
        folder.mkdir()
        (folder / "index.md").write_text("# Title\n\n[gone](gone.md)\n", encoding="utf-8")
        return []

    monkeypatch.setattr(book, "prepare", prepare)
    site = tmp_path / "site"
    site.mkdir()
    (site / "old.html").write_text("old", encoding="utf-8")
    with pytest.raises(WorkshopError, match="not built") as told:
        book.build(site)
    assert "index.md:3: WARNING" in str(told.value) and "gone.md" in str(told.value)
    assert [path.name for path in tmp_path.iterdir()] == ["site"] and (site / "old.html").exists()


# ------------------------------------------------------------------------------------------------ the site


class Page(HTMLParser):
    """What a page is made of: its links, what it loads, its ids, its images and its folds."""

    def __init__(self, text):
        super().__init__()
        self.links, self.loaded, self.ids, self.images, self.folds = [], [], set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.ids |= {values[key] for key in ("id", "name") if values.get(key)}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag in ("script", "link", "img", "iframe", "source", "object") and values.get("rel") != "canonical":
            self.loaded += [values[key] for key in ("src", "href", "data") if values.get(key)]
        if tag == "img":
            self.images.append(values.get("alt"))
        if tag == "details":
            self.folds.append("open" in values)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build all of it, with warnings as errors; return its folder."""
    folder = tmp_path_factory.mktemp("book") / "site"
    book.build(folder)
    return folder


def every_page(site):
    return sorted(path for path in site.rglob("*.html") if "_static" not in path.parts)  # the theme's own templates


@pytest.fixture(scope="module")
def pages(site):
    return {path: Page(path.read_text(encoding="utf-8")) for path in every_page(site)}


@pytest.mark.slow
@needs_sphinx
def test_no_link_within_the_site_is_dead(site, pages):
    dead = []
    for path, page in pages.items():
        for target in [*page.links, *page.loaded]:
            place, _, anchor = unquote(target).partition("#")
            if re.match(r"[a-z]+:", place):
                continue
            file = (path.parent / place.partition("?")[0]).resolve() if place else path
            there = file.is_file() and file.is_relative_to(site)
            if not there or (anchor and file.suffix == ".html" and anchor not in pages[file].ids):
                dead.append(f"{path.relative_to(site)}: {target}")
    assert dead == []
    assert len(pages) > 30 and sum(len(page.links) for page in pages.values()) > 1000


@pytest.mark.slow
@needs_sphinx
def test_nothing_is_loaded_from_elsewhere(pages, site):
    assert [address for page in pages.values() for address in page.loaded if re.match(r"(https?:)?//", address)] == []
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert not re.search(r"(@import\s*|url\()['\"]?(https?:)?//", styles)


@pytest.mark.slow
@needs_sphinx
def test_figures_are_described_and_hints_and_solutions_folded(pages, site):
    for path in lesson_files.every():
        page = pages[site / "notebooks" / f"{path.stem}.html"]
        cells = lesson_files.read(path).cells
        figures = sum("image/png" in out.get("data", {}) for cell in cells for out in cell.get("outputs", []))
        folded = sum(cell.source.count("<details>") for cell in cells if cell.cell_type == "markdown")
        assert len(page.images) == figures and all(page.images)
        assert page.folds == [False] * folded and folded > 5


in_a_browser = [pytest.mark.slow, needs_sphinx]


@pytest.fixture(scope="module")
def chromium():
    with screenshots.browser() as started:
        yield started


@pytest.fixture
def opened(chromium, site):
    """Hand over a function that opens a page without a network; at the end nothing may have asked for one."""
    contexts, asked = [], []

    def refuse(route):
        asked.append(route.request.url)
        route.abort()

    def open_page(page, size="desktop", scheme="light"):
        width, height = SIZES[size]
        context = chromium.new_context(
            offline=True, viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce"
        )
        contexts.append(context)
        context.route(lambda url: not url.startswith(("file:", "data:", "blob:")), refuse)
        tab = context.new_page()
        tab.goto((site / page).as_uri())
        return tab

    yield open_page
    for context in contexts:
        context.close()
    assert asked == []


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", LOOKED_AT)
class TestLookedAt:
    """The pages that a person looks at, too: their pictures stay in build/screenshots/book."""

    pytestmark = in_a_browser

    def test_axe_finds_nothing_and_the_page_fits(self, opened, name, scheme, size):
        axe = pytest.importorskip("axe_playwright_python.sync_playwright")
        tab = opened(LOOKED_AT[name], size, scheme)
        if name == "lesson":
            tab.locator("details summary").first.click()
            assert tab.locator("details").first.evaluate("details => details.open")
        PICTURES.mkdir(parents=True, exist_ok=True)
        tab.screenshot(path=PICTURES / f"{name}-{scheme}-{size}.png")
        if name == "lesson":
            tab.locator(".cell_output img").nth(2).scroll_into_view_if_needed()
            tab.screenshot(path=PICTURES / f"figure-{scheme}-{size}.png")
            tab.locator("details", has_text="Solution").first.scroll_into_view_if_needed()
            tab.screenshot(path=PICTURES / f"folded-{scheme}-{size}.png")
        found = axe.Axe().run(tab).response["violations"]
        assert [(one["id"], one["impact"]) for one in found if one["impact"] in ("serious", "critical")] == []
        assert tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
        dark = tab.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).every(c => c < 60)")
        assert dark == (scheme == "dark")


class TestEveryPage:
    """What holds of all pages."""

    pytestmark = in_a_browser

    def test_no_page_asks_for_the_network_complains_or_is_too_wide_for_a_phone(self, opened, site):
        wrong, errors = [], []
        for path in every_page(site):
            tab = opened(path.relative_to(site), "phone")
            tab.on("pageerror", lambda error: errors.append(str(error)))
            tab.reload()
            wide = tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            broken = tab.locator("img").evaluate_all("all => all.filter(i => i.complete && !i.naturalWidth).length")
            code = tab.locator(".bd-article pre")  # the taster's editor scrolls
            cut = code.evaluate_all("all => all.filter(one => one.scrollWidth > one.clientWidth + 1).length")
            wrong += [(path.name, wide, broken, cut)] if wide > 0 or broken or cut else []
            tab.close()
        assert (wrong, errors) == ([], [])

    def test_the_keyboard_reaches_text_search_and_lessons(self, opened):
        tab = opened(LESSON)
        tab.keyboard.press("Tab")
        assert tab.evaluate("document.activeElement.innerText") == "Skip to main content"
        tab.keyboard.press("Enter")
        tab.wait_for_url("**#main-content")
        tab.keyboard.press("Control+k")
        tab.keyboard.type("barrier")
        tab.keyboard.press("Enter")
        tab.wait_for_selector("#search-results li")
        assert "search.html?q=barrier" in tab.url
        tab.screenshot(path=PICTURES / "search.png")
        assert "12-break-kernels" in " ".join(
            tab.locator("#search-results li a").evaluate_all("all => all.map(a => a.href)")
        )

    def test_the_phones_list_of_pages_opens_and_closes_by_keyboard(self, opened):
        tab = opened(LESSON, "phone")
        tab.locator("button.primary-toggle").focus()
        tab.keyboard.press("Enter")
        second = tab.get_by_role("link", name="02 Multiply matrices with OpenCL").first
        second.wait_for(state="visible")
        tab.screenshot(path=PICTURES / "pages-phone.png")
        tab.keyboard.press("Escape")
        second.wait_for(state="hidden")

    def test_previous_and_next_lead_through_the_lessons(self, opened):
        tab = opened("index.html")
        for path in lesson_files.every():
            tab.locator("a.right-next").click()
            assert tab.url.endswith(f"{path.stem}.html")
        tab.locator("a.left-prev").click()
        assert tab.url.endswith(f"{lesson_files.every()[-2].stem}.html")

    def test_a_click_opens_a_figure_as_large_as_it_was_drawn(self, opened):
        tab = opened(LESSON, "phone")
        figure = tab.locator(".cell_output a > img").first
        shown = figure.bounding_box()["width"]
        figure.click()
        tab.wait_for_url("**/*.png")
        assert tab.locator("img").evaluate("image => image.naturalWidth") > shown

    def test_the_exam_prints_its_questions_and_no_answer(self, opened):
        tab = opened("docs/teaching/exam.html")
        questions, answers = tab.locator("section section section > h3"), tab.locator("details")
        assert questions.count() == answers.count() == 20
        tab.emulate_media(media="print")
        assert [one.is_visible() for one in questions.all()] == [True] * 20
        assert [one.is_visible() for one in answers.all()] == [False] * 20
        assert not tab.locator("#by-show-of-hands").is_visible()

    def test_the_taster_is_opened_from_the_front_page(self, opened):
        tab = opened("index.html")
        tab.get_by_role("link", name="Try it now, install nothing").click()
        assert tab.url.endswith("docs/taster.html")
        tab.wait_for_selector("#pad")


@needs_sphinx
def test_the_command_says_in_its_help_what_it_takes():
    done = subprocess.run(
        [sys.executable, "-m", "helpers", "book", "--help"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and "--executed" in done.stdout


def test_the_set_up_brings_what_the_book_needs_and_no_test_tools():
    found = importlib.util.spec_from_file_location("workshop", ROOT / "workshop.py")
    found.loader.exec_module(workshop := importlib.util.module_from_spec(found))
    wanted = {"family": "cpu", "extras": [], "python": None}
    for command, groups in (("book", ["book"]), ("test", ["test", "book"]), ("lab", [])):
        [(_, arguments)] = workshop.installs(wanted, command)
        locks = [Path(word).stem for word in arguments if word.startswith("--requirements=")]
        assert locks == ["uv", "cpu", *groups]
