"""The book: its pages, made of the lessons and of docs/, and the site, looked at in Chromium without a network."""

import importlib.util
import re
from html.parser import HTMLParser
from urllib.parse import unquote

import browser
import pytest

from helpers import ROOT
from helpers.commands import book, lesson_files
from helpers.errors import WorkshopError

PICTURES = browser.PICTURES / "book"
LESSON = "notebooks/01-add-vectors-with-opencl.html"
LOOKED_AT = {"front": "index.html", "lesson": LESSON, "platform": "docs/platforms.html"}
SIZES = {"desktop": (1400, 900), "phone": (360, 740)}
BINDER = "https://mybinder.org/v2/gh/some-one/course/v0.1.0?urlpath=lab/tree/my-lessons/{}"
needs_sphinx = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("sphinx", "myst_nb", "pydata_sphinx_theme")),
    reason="what builds the book is not installed: python3 workshop.py book",
)


# ------------------------------------------------------------------------------------------------ pages


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    return folder, book.prepare(folder)


def test_every_lesson_and_every_page_stands_once_in_the_contents(prepared):
    folder, shipped = prepared
    written = {path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.md")}
    written |= {path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.ipynb")}
    listed = re.findall(r"```\{toctree\}.*?\n\n(.*?)\n```", (folder / "index.md").read_text(), re.DOTALL)
    names = [re.sub(r".*<(.*)>", r"\1", line) for block in listed for line in block.splitlines()]
    assert sorted(names) == sorted(written - {"index"})
    docs = {path.relative_to(ROOT).with_suffix("").as_posix() for path in ROOT.glob("docs/**/*.md")}
    lessons = [f"notebooks/{path.stem}" for path in lesson_files.every()]
    first = names.index(lessons[0])
    assert docs <= written and names[first : first + len(lessons)] == lessons
    assert names[0] == "docs/start" and "docs/teaching" in names[:first]
    assert all((folder / file.relative_to(ROOT)).read_bytes() == file.read_bytes() for file in shipped)


@pytest.mark.parametrize(
    ("path", "text", "wanted", "shipped"),
    [
        ("docs/cpu.md", "[a](nvidia.md#windows)", "[a](nvidia.md#windows)", []),
        ("docs/cpu.md", "[a](https://example.org/a.md)", "[a](https://example.org/a.md)", []),
        ("docs/cpu.md", "[a](failures.md#host-no-avx)", "[a](#host-no-avx)", []),
        ("docs/failures.md", '<a id="host-no-avx"></a>', "(host-no-avx)=", []),
        ("docs/glossary.md", '- <a id="guard"></a>**Guard**', '- <a id="guard"></a>**Guard**', []),
        ("docs/cpu.md", "[a](../README.md#lessons)", "[a](../index.md#lessons)", []),
        ("README.md", "[a](#start)", "[a](index.md#start)", []),
        ("README.md", "[a](docs/taster.html)", "[a](docs/taster.html){.external}", ["docs/taster.html"]),
        ("README.md", "[a](LICENSE)", "[a](LICENSE)", ["LICENSE"]),
        ("docs/cpu.md", "`x[0](y)` and [a](gone.txt)", "`x[0](y)` and [a](gone.txt)", []),  # Sphinx tells of those
    ],
)
def test_links_lead_to_where_the_site_has_their_targets(path, text, wanted, shipped):
    files = []
    assert book.rewrite_links(text, ROOT / path, files) == wanted
    assert [file.relative_to(ROOT).as_posix() for file in files] == shipped


def test_each_path_of_the_readme_leads_to_its_lessons_and_there_is_a_door_for_each_visitor(prepared):
    front = (prepared[0] / "index.md").read_text(encoding="utf-8").partition("{toctree}")[0]
    paths = re.findall(r"^- \*\*.+:\*\* ([\db ]+)$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    numbers = [re.findall(r"\[(\d\db?) ", path) for path in front.partition("## Lessons")[2].split("- **")[1:]]
    assert numbers == [path.split() for path in paths] and len(paths) == 4
    assert "[01 Add vectors with OpenCL](notebooks/" in front
    assert "\n01 Add vectors with OpenCL <notebooks/" in (prepared[0] / "index.md").read_text(encoding="utf-8")
    assert all(f"]({door})" in front for door in ("docs/taster.html", "docs/start.md", "docs/teaching.md"))


def test_a_lesson_names_its_device_describes_its_figures_and_is_launched_where_it_is_published(monkeypatch, tmp_path):
    monkeypatch.setattr(book, "binder_link", lambda lesson="": "")
    book.prepare(tmp_path / "without")
    monkeypatch.setattr(book, "binder_link", lambda lesson="": BINDER.format(lesson))
    book.prepare(tmp_path / "with")
    assert f"]({BINDER.format('')})" in (tmp_path / "with" / "index.md").read_text(encoding="utf-8")
    for path in lesson_files.every():
        stored = lesson_files.read(path)
        without, page = (lesson_files.read(tmp_path / name / "notebooks" / path.name) for name in ("without", "with"))
        assert BINDER.format(path.name) in page.cells[0].source
        assert "https://mybinder" not in without.cells[0].source
        assert f"lab {lesson_files.number(path)}`" in page.cells[0].source
        assert page.cells[0].source.startswith(f"# {lesson_files.number(path)} {lesson_files.title(stored)}\n")
        assert lesson_files.facts(stored).get("device", "") in page.cells[0].source
        for before, after in zip(stored.cells, page.cells, strict=True):
            figures = [output for output in before.get("outputs", []) if "image/png" in output.get("data", {})]
            assert len(figures) <= 1, "myst-nb knows one alternative text a cell"
            for figure in figures:
                assert after.metadata["mystnb"]["image"]["alt"] == figure.metadata["image/png"]["alt"]


@pytest.mark.slow
@needs_sphinx
def test_a_dead_link_ends_the_build_with_its_place_and_leaves_the_old_site(monkeypatch, tmp_path):
    def prepare(folder):
        folder.mkdir()
        (folder / "index.md").write_text("# Title\n\n[gone](gone.md)\n", encoding="utf-8")
        return []

    monkeypatch.setattr(book, "prepare", prepare)
    site = tmp_path / "site"
    site.mkdir()
    (site / "old.html").write_text("old", encoding="utf-8")
    with pytest.raises(WorkshopError, match=r"index\.md:3: WARNING"):
        book.build(site)
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


@pytest.mark.slow
@needs_sphinx
def test_no_link_is_dead_nothing_comes_from_elsewhere_and_hints_and_solutions_are_folded(site):
    own = sorted(path for path in site.rglob("*.html") if "_static" not in path.parts)  # not the theme's own templates
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in own}
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
    assert [address for page in pages.values() for address in page.loaded if re.match(r"(https?:)?//", address)] == []
    for path in lesson_files.every():
        page, cells = pages[site / "notebooks" / f"{path.stem}.html"], lesson_files.read(path).cells
        figures = sum("image/png" in out.get("data", {}) for cell in cells for out in cell.get("outputs", []))
        folded = sum(cell.source.count("<details>") for cell in cells if cell.cell_type == "markdown")
        assert len(page.images) == figures and all(page.images) and page.folds == [False] * folded


@pytest.fixture
def opened(chromium, site, request):
    """Open a page without a network; in the end it may have asked for nothing."""
    name, scheme, size = request.param
    width, height = SIZES[size]
    options = {"viewport": {"width": width, "height": height}, "color_scheme": scheme, "reduced_motion": "reduce"}
    with browser.tab_of(chromium, is_offline=True, **options) as (tab, _, asked):
        tab.goto((site / LOOKED_AT[name]).as_uri())
        yield tab
    assert asked == []


VIEWS = [("front", "light", "desktop"), ("lesson", "dark", "desktop"), ("lesson", "light", "phone")]
VIEWS += [("platform", "dark", "phone"), ("front", "dark", "phone")]


@needs_sphinx
@pytest.mark.parametrize("opened", VIEWS, ids="-".join, indirect=True)
def test_axe_finds_nothing_and_the_page_fits(opened, request):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    opened.screenshot(path=PICTURES / f"{request.node.callspec.id}.png")
    found = axe.Axe().run(opened).response["violations"]
    assert [fault["id"] for fault in found if fault["impact"] in ("serious", "critical")] == []
    assert opened.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0


@needs_sphinx
@pytest.mark.parametrize("opened", [("front", "light", "phone"), ("front", "dark", "desktop")], indirect=True)
def test_a_digit_is_read_on_the_front_page(opened):
    opened.locator("#pad button[aria-label^='draw 7']").click()
    opened.wait_for_function("document.getElementById('pad').dataset.reads === '7'", timeout=5000)
    assert "nothing is sent" in opened.locator("#found").inner_text()


@needs_sphinx
@pytest.mark.parametrize("opened", [("front", "light", "desktop")], indirect=True)
def test_the_exam_prints_its_questions_and_no_answer(opened, site):
    opened.goto((site / "docs" / "teaching" / "exam.html").as_uri())
    opened.emulate_media(media="print")
    answers = opened.locator("details").all()
    assert len(answers) == opened.locator("section section section > h3").count() > 10
    assert not any(answer.is_visible() for answer in answers)


@needs_sphinx
@pytest.mark.parametrize("opened", [("front", "light", "desktop")], indirect=True)
def test_the_address_of_one_script_prints_that_script_alone(opened, site):
    opened.goto((site / "docs" / "teaching" / "lessons.html").as_uri() + "#check-your-setup")
    opened.emulate_media(media="print")
    shown = [section.get_attribute("id") for section in opened.locator("section section").all() if section.is_visible()]
    assert shown == ["check-your-setup"]


@needs_sphinx
@pytest.mark.parametrize("opened", [("lesson", "light", "phone")], indirect=True)
def test_the_head_of_a_lesson_fits_a_phone(opened):
    head = opened.locator("article table").first
    assert head.evaluate("table => table.scrollWidth <= table.parentElement.clientWidth")


@needs_sphinx
@pytest.mark.parametrize("opened", [("front", "light", "desktop")], indirect=True)
def test_a_searched_message_leads_to_the_known_failures_before_lessons_with_the_same_words(opened, site):
    opened.goto((site / "search.html").as_uri() + "?q=No+devices+were+found")
    first = opened.locator("#search-results li a").first
    first.wait_for()
    assert first.get_attribute("href") == "docs/failures.html"
