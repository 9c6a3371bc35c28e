"""WebGPU in the page: lesson 14's widgets in a real JupyterLab, the taster from its file, in the real Chromium."""

import base64
import contextlib
import functools
import http.server
import itertools
import json
import struct
import threading

import numpy as np
import pytest
import sample_lesson

from helpers import ROOT
from helpers.commands import execute, lesson_files, taster
from helpers.compute import data, webgpu
from helpers.lessons import lesson_14_web as web
from helpers.maintain import rules, screenshots
from helpers.measure import plots
from helpers.measure.tables import Table

needs_an_adapter = pytest.mark.skipif(webgpu.pick_adapter() is None, reason="no WebGPU adapter in Python")
PICTURES = ROOT / "build" / "screenshots" / "webgpu"
WEBGPU = "--enable-unsafe-webgpu"
ELSEWHERE = "workshop.test"  # for the browser another machine, not localhost
GPU = {"name": "a card", "software": False, "info": {}, "browser": "Chrome 1"}
GPU |= {"limits": {"maxBufferSize": 2**30, "maxComputeInvocationsPerWorkgroup": 256}}


def page_of(judge=lambda answer: "right", task="compute"):
    return web.Page(task, {}, judge)


def answer(page, facts=None, *arrays):
    page._hear(page.widget, {"gpu": GPU, "facts": facts or {}}, [memoryview(array.tobytes()) for array in arrays])


# ---------------------------------------------------------------------------------------------- Python's end


def test_python_says_go_when_the_page_says_hello_and_not_before():
    page = page_of()
    assert not page.widget.go
    page._hear(page.widget, {"hello": True}, [])
    assert page.widget.go and page.verdict == web.NONE_YET and page.answer is None


def test_the_verdict_is_the_judges_and_reaches_the_widget():
    a, b = np.arange(20, dtype=np.float32).reshape(2, 10)
    seen = []
    page = web.compute("", webgpu.VECTOR_ADD, [a, b], 1, lambda c: seen.append(c) or "right: all")
    answer(page, {}, a + b)
    assert page.verdict == page.widget.verdict == "right: all"
    assert np.array_equal(seen[0], a + b) and seen[0].dtype == np.float32


def test_a_page_that_cannot_compute_and_a_judge_that_fails_are_told():
    page = page_of()
    page._hear(page.widget, {"error": "This browser has no WebGPU.", "next": []}, [])
    assert page.verdict == "nothing to judge: This browser has no WebGPU." and page.answer is None
    page = page_of(lambda answer: 1 / 0)
    answer(page)
    assert page.verdict == "the judge failed: ZeroDivisionError: division by zero"


def test_what_is_live_is_shown_again_when_the_page_answers(monkeypatch):
    shown = []

    class Handle:
        def update(self, data, **options):
            shown.append(data)

    monkeypatch.setattr("IPython.display.display", lambda data, **options: shown.append(data) or Handle())
    page = page_of()
    web.live(lambda: page.verdict, page)
    answer(page)
    assert [one["text/plain"] for one in shown] == [web.NONE_YET, "right"]


def test_a_figure_goes_into_an_output_with_its_alternative_text():
    with plots.figure() as (drawn, axes):
        axes.plot([1, 2])
        made, described = web._bundle(web.picture(drawn, "a line"))
    assert described == {"image/png": {"alt": "a line"}} and made["text/plain"] == "a line"
    assert base64.b64decode(made["image/png"]).startswith(b"\x89PNG")
    made, _ = web._bundle(Table([(1, 2)], ["a", "b"]))
    assert "<table" in made["text/html"] and None not in made.values()


def test_the_table_of_adapters_gets_the_pages_row_when_it_has_answered(monkeypatch):
    monkeypatch.setattr(webgpu, "adapters", lambda: [])
    page = page_of()
    assert web.adapters(page).rows[-1][:2] == ("the page", "no answer yet")
    assert "WebGPU adapter" in web.adapters(page).rows[0][1] or "wgpu" in web.adapters(page).rows[0][1]
    answer(page)
    assert web.adapters(page).rows[-1] == ("the page", "a card", "Chrome 1", "1.0 GiB", "up to 256", "GPU")


def test_without_wgpu_the_page_has_its_row_all_the_same(monkeypatch):
    def missing():
        raise ImportError("No module named 'wgpu'")

    monkeypatch.setattr(webgpu, "adapters", missing)
    page = page_of()
    answer(page)
    rows = web.adapters(page).rows
    assert "wgpu cannot be imported" in rows[0][1] and rows[1][1] == "a card"


def scalar_mix(state, secret, rounds):
    state ^= secret
    for _ in range(rounds):
        state = (state * 747796405 + 2891336453) % 2**32
        state = ((state >> ((state >> 28) + 4)) ^ state) * 277803737 % 2**32
        state ^= state >> 22
    return state


def test_numpy_mixes_as_plain_integers_do():
    seeds = np.array([0, 1, 7, 2**32 - 1], np.uint32)
    expected = [scalar_mix(int(seed), 123456789, 5) for seed in seeds]
    assert web.mixed(seeds, 123456789, 5).tolist() == expected


@needs_an_adapter
def test_the_kernel_mixes_as_numpy_does():
    seeds = np.arange(1000, dtype=np.uint32)
    given = np.array([99, 3, 0, 0], np.uint32)
    actual = webgpu.run(
        webgpu.request_device(webgpu.pick_adapter()), web.kernel("mix"), [seeds, np.zeros_like(seeds), given], 1, 16
    )
    assert np.array_equal(actual, web.mixed(seeds, 99, 3))


@needs_an_adapter
def test_the_race_counts_right_results_alone_and_judges_by_the_pages_secret(capsys):
    seeds = np.arange(256, dtype=np.uint32)
    race = web.race(seeds)
    assert "equal to NumPy" in capsys.readouterr().out
    assert [m.label for m in race.times()][:2] == ["NumPy", "Python, WebGPU"]
    waiting = web.draw_race(race)
    answer(race.page, {"secret": 5, "seconds": [0.1, 0.2, 0.3]}, web.mixed(seeds, 5))
    assert race.page.verdict.startswith("right: with the page's secret number 5, all 256")
    assert race.times()[-1].label == "the page" and race.times()[-1].median == 0.2
    assert "no answer of the page" in waiting.alt and "the page on a card: 200 ms" in web.draw_race(race).alt
    answer(race.page, {"secret": 6, "seconds": [0.1, 0.2, 0.3]}, web.mixed(seeds, 5))
    assert race.page.verdict.startswith("not yet: 256 of 256")


@pytest.fixture
def network():
    rng = np.random.default_rng(0)
    sizes = [784, 12, 10]
    weights = []
    for rows, columns in itertools.pairwise(sizes):
        weights += [rng.normal(0, 0.1, (rows, columns)).astype("float32"), rng.random(columns, dtype="float32")]
    images = rng.integers(0, 256, (20, 784), dtype=np.uint8)
    said = taster.answers(weights, images)
    return web.Network(weights, images, said.argmax(1), said, "made up")


def test_the_page_is_held_against_keras(network):
    page = web.same_as_keras(network)
    facts = {"seconds": 0.5, "own": True, "refused": ""}
    answer(page, facts, network.probabilities)
    assert page.verdict.startswith("right: your kernel on a card") and "40 images a second" in page.verdict
    answer(page, facts, network.probabilities[::-1])
    assert page.verdict.startswith("not yet: ")
    answer(page, facts | {"own": False, "refused": "line 3"}, network.probabilities + np.float32(0.01))
    assert page.verdict.startswith("not yet: the workshop's kernel (yours was refused by the page: line 3)")


def test_a_learners_kernel_goes_to_the_page_once_a_check_called_it_right(network, monkeypatch):
    assert web.draw_digits(network).values["own"] == ""
    monkeypatch.setitem(web.own_kernels, "dense", "mine")
    assert web.draw_digits(network).values["own"] == "mine"


@needs_an_adapter
def test_the_workshops_dense_kernel_equals_numpy(network):
    device = webgpu.request_device(webgpu.pick_adapter())
    values = network.images.astype("float32") / 255
    pairs = list(zip(network.weights[::2], network.weights[1::2], strict=True))
    for number, (matrix, bias) in enumerate(pairs):
        shape = np.array([len(values), *matrix.shape, number < len(pairs) - 1], np.uint32)
        outputs = np.full((len(values), matrix.shape[1]), 7, np.float32)
        groups = -(-outputs.size // 64)
        values = webgpu.run(device, web.kernel("dense"), [values, matrix, bias, outputs, shape], 3, groups)
    grown = np.exp(values - values.max(1, keepdims=True))
    assert np.allclose(grown / grown.sum(1, keepdims=True), network.probabilities, atol=1e-5)


@needs_an_adapter
def test_the_tasters_product_equals_numpy():
    a, b = np.random.default_rng(0).random((2, 36, 36), dtype=np.float32)
    shape = np.array([36, 0, 0, 0], np.uint32)
    device = webgpu.request_device(webgpu.pick_adapter())
    actual = webgpu.run(device, web.kernel("product"), [a, b, np.zeros_like(a), shape], 2, [2, 2])
    assert np.allclose(actual, a @ b, rtol=1e-5)


def test_a_kept_network_must_be_good_and_of_this_dataset(monkeypatch, tmp_path):
    monkeypatch.setattr(web, "KEPT", tmp_path)
    assert web.kept("MNIST") == ""
    (tmp_path / "mlp.weights.h5").write_text("x")
    for facts, good in (({"dataset": "MNIST", "accuracy": 0.98}, True), ({"dataset": "MNIST", "accuracy": 0.5}, False)):
        (tmp_path / "mlp.json").write_text(json.dumps(facts))
        assert bool(web.kept("MNIST")) == good
    assert web.kept("another") == ""


CELLS = """
import numpy as np
from helpers.compute import webgpu
from helpers.lessons import lesson_14_web as web
a, b = np.random.default_rng(0).random((2, 1000), dtype=np.float32)
JAVASCRIPT = "export async function compute(d, w, inputs, bytes, g) { return d && new ArrayBuffer(bytes); }"
page = web.compute(JAVASCRIPT, webgpu.VECTOR_ADD, [a, b], 16, lambda c: f"{int((c == 0).sum())} zeros")
page
""".strip()


def test_without_a_browser_a_cell_goes_on_at_once_and_its_output_holds_no_widget(tmp_path):
    notebook = sample_lesson.of(CELLS, "print(page.verdict)", "web.live(lambda: web.adapters(page), page)")
    outcome = execute.execute(notebook, tmp_path, "preview")
    assert outcome.failure is None
    assert notebook.cells[0].outputs[0].data == {"text/plain": web.NO_PAGE}
    assert execute.text(notebook.cells[1]).strip() == web.NONE_YET
    assert "no answer yet" in notebook.cells[2].outputs[0].data["text/html"]
    kinds = {kind for cell in notebook.cells for output in cell.outputs for kind in output.get("data", {})}
    assert kinds <= rules.KINDS and "widgets" not in rules.normalise(notebook).metadata


# ---------------------------------------------------------------------------------------------- the taster


def test_the_stored_page_is_what_the_command_writes_and_small():
    stored = taster.STORED.read_text(encoding="utf-8")
    assert stored == taster.html(), "type: python -m helpers taster"
    assert len(stored.encode()) < 700_000
    assert "@@" not in stored


def test_the_page_loads_nothing_from_elsewhere():
    stored = taster.STORED.read_text(encoding="utf-8")
    assert not [word for word in ("src=", "@import", "url(", "<link", "fetch(", "XMLHttp") if word in stored]


def test_the_command_writes_where_it_is_told_to(tmp_path, capsys):
    from helpers.__main__ import main

    assert main(["taster", "--output", str(tmp_path / "new" / "page.html")]) == 0
    assert (tmp_path / "new" / "page.html").read_text(encoding="utf-8") == taster.html()
    assert "KB" in capsys.readouterr().out


def test_the_tasters_network_reads_as_well_as_the_page_says():
    mnist = data._local()
    if mnist is None:
        pytest.skip("MNIST is not on this machine")
    with np.load(taster.WEIGHTS) as kept:
        weights = [kept[f"arr_{number}"].astype("float32") for number in range(6)]
        right = int(kept["right"])
    assert abs((taster.answers(weights, mnist.x_test).argmax(1) == mnist.y_test).sum() - right) <= 2
    assert f"{right:,}" in taster.html()


@pytest.fixture(scope="module")
def chromium():
    with screenshots.browser(WEBGPU) as started:
        PICTURES.mkdir(parents=True, exist_ok=True)
        yield started


@pytest.fixture(scope="module")
def plain(chromium):
    """The same browser as it starts by itself: without WebGPU where it sees no GPU."""
    arguments = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
    arguments += [f"--host-resolver-rules=MAP {ELSEWHERE} 127.0.0.1"]
    started = chromium.browser_type.launch(executable_path=screenshots.find_browser(), args=arguments)
    yield started
    started.close()


@pytest.fixture
def opened(chromium):
    """Return a function that opens the taster from its file, and what the page complained of."""
    contexts, said = [], []

    def open_page(wait=True, **options):
        contexts.append(chromium.new_context(offline=True, **options))
        tab = contexts[-1].new_page()
        tab.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.goto(taster.STORED.as_uri())
        if wait:
            tab.wait_for_function("document.body.dataset.ready")
        return tab

    yield open_page, said
    for context in contexts:
        context.close()
    assert said == []


def reads(tab, digit):
    tab.wait_for_function(f"document.getElementById('pad').dataset.reads === '{digit}'", timeout=5000)


def draw_a_one(tab, field):
    """Draw a 1 by the mouse, and return how often the bars changed while it moved."""
    field.scroll_into_view_if_needed()
    box = field.bounding_box()
    tab.evaluate("""() => { window.moved = 0; new MutationObserver(() => window.moved++).observe(
        document.querySelector('.bars'), {subtree: true, attributes: true}); }""")
    tab.mouse.move(box["x"] + 0.55 * box["width"], box["y"] + 0.15 * box["height"])
    tab.mouse.down()
    for step in range(21):
        tab.mouse.move(
            box["x"] + (0.55 - 0.004 * step) * box["width"], box["y"] + (0.15 + 0.034 * step) * box["height"]
        )
        tab.wait_for_timeout(20)
    changed = tab.evaluate("window.moved")
    tab.mouse.up()
    return changed


def test_the_taster_finds_the_gpu_adds_and_reads_what_is_drawn(opened):
    open_page, _ = opened
    tab = open_page(viewport={"width": 900, "height": 900})
    assert "swiftshader is software" in tab.locator("#found").inner_text()
    said = tab.locator("#sums").inner_text()
    assert said.startswith("Right: all 1,000,000 sums") and "WebGPU took" in said and "swiftshader" in said.lower()
    assert draw_a_one(tab, tab.locator("#pad canvas").first) > 10  # bars move while the mouse does
    reads(tab, 1)
    assert "ms" in tab.locator("#pad .says .small").inner_text()
    tab.screenshot(path=PICTURES / "taster-one.png", full_page=True)
    for digit in range(10):
        tab.locator(f"#pad button[aria-label^='draw a {digit}']").click()
        reads(tab, digit)
    tab.get_by_role("button", name="Clear").click()
    reads(tab, "")


def test_the_taster_multiplies_right_and_draws_its_figure(opened):
    open_page, _ = opened
    tab = open_page(viewport={"width": 900, "height": 900})
    tab.locator("#multiply").click()
    tab.wait_for_function("!document.getElementById('multiply').disabled", timeout=120_000)
    assert tab.locator("#products").inner_text().startswith("Right: ")
    assert "Time of a matrix product against its size" in tab.locator("#figure svg").get_attribute("aria-label")
    assert tab.locator("#table tbody tr").count() >= 3
    tab.set_viewport_size({"width": 360, "height": 740})  # a phone: no column is cut off
    assert (
        tab.evaluate(
            "(() => { const t = document.querySelector('#table .wide'); return t.scrollWidth - t.clientWidth; })()"
        )
        <= 0
    )
    tab.locator("#table").screenshot(path=PICTURES / "taster-phone-table.png")
    tab.set_viewport_size({"width": 900, "height": 900})
    tab.screenshot(path=PICTURES / "taster-products.png", full_page=True)


def test_the_taster_works_by_keyboard_alone(opened):
    open_page, _ = opened
    tab = open_page(viewport={"width": 900, "height": 900})
    for _ in range(12):  # from the top of the page to the field
        tab.keyboard.press("Tab")
        if tab.evaluate("document.activeElement.tagName") == "CANVAS":
            break
    assert tab.evaluate("document.activeElement.getAttribute('aria-label')").startswith("Draw a digit")
    for _ in range(4):
        tab.keyboard.press("ArrowUp")
    tab.keyboard.press("Space")
    for _ in range(17):
        tab.keyboard.press("ArrowDown")
    tab.keyboard.press("Space")
    reads(tab, 1)
    tab.keyboard.press("7")
    reads(tab, 7)
    tab.keyboard.press("Delete")
    reads(tab, "")
    tab.wait_for_function("document.querySelector('.spoken').textContent === 'empty'")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_taster_fits_a_phone_and_is_read_by_touch(opened, scheme):
    open_page, _ = opened
    tab = open_page(viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True, color_scheme=scheme)
    wide = tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0
    tab.locator("#pad button[aria-label^='draw a 4']").tap()
    reads(tab, 4)
    tab.screenshot(path=PICTURES / f"taster-phone-{scheme}.png", full_page=True)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_taster_has_no_faults_that_axe_finds(opened, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    open_page, _ = opened
    tab = open_page(viewport={"width": 900, "height": 900}, color_scheme=scheme)
    tab.locator("#pad button[aria-label^='draw a 3']").click()
    reads(tab, 3)
    found = axe.Axe().run(tab).response["violations"]
    assert [(one["id"], one["impact"]) for one in found] == []


def test_a_drawing_becomes_what_mnist_is(opened):
    open_page, _ = opened
    tab = open_page()
    pixels = np.array(
        tab.evaluate("""() => { const ink = new Uint8ClampedArray(FIELD * FIELD);
            for (let y = 20; y < 120; y++) for (let x = 200; x < 250; x++) ink[y * FIELD + x] = 255;
            return [...likeMnist(ink)]; }""")
    ).reshape(28, 28)
    rows, columns = np.nonzero(pixels > 0.5)
    assert (rows.max() - rows.min() + 1, columns.max() - columns.min() + 1) == (20, 10)
    middle = [(pixels.sum(axis) @ (np.arange(28) + 0.5)) / pixels.sum() for axis in (0, 1)]
    assert np.allclose(middle, 14, atol=0.5) and pixels.max() <= 1
    assert tab.evaluate("likeMnist(new Uint8ClampedArray(FIELD * FIELD))") is None
    halves = {bits: tab.evaluate(f"fromHalf({bits})") for bits in (0x0001, 0x3C00, 0xC500, 0x7BFF, 0x8400)}
    assert halves == {bits: float(np.frombuffer(struct.pack("<H", bits), "<f2")[0]) for bits in halves}


def test_a_kernel_that_does_not_compile_is_told_with_its_line(opened):
    open_page, said = opened
    tab = open_page()
    told = tab.evaluate("""async () => { const gpu = await findGpu();
        try { await build(gpu.device, "@compute @workgroup_size(1)\\nfn main() { let x = y; }"); }
        catch (error) { return error.message; } }""")
    assert "line 2, column 21" in told
    said.clear()  # Chromium itself notes the refusal there


@pytest.mark.parametrize("why", ["no adapter", "no navigator.gpu"])
def test_a_browser_without_webgpu_is_told_what_helps(plain, why):
    said = []
    with plain.new_context(offline=True, viewport={"width": 900, "height": 700}) as context:
        tab = context.new_page()
        if why == "no navigator.gpu":  # as in a browser that is older than WebGPU
            tab.add_init_script("delete Navigator.prototype.gpu")
        tab.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.goto(taster.STORED.as_uri())
        tab.wait_for_selector("#found li")
        told = tab.locator("#found").inner_text()
        assert not tab.locator("#rest").is_visible()
        tab.locator("#pad button[aria-label^='draw a 7']").click()  # digits are read by the processor
        reads(tab, 7)
        assert "in JavaScript, on the processor" in tab.locator("#pad").inner_text()
        tab.screenshot(path=PICTURES / f"taster-{why.replace(' ', '-')}.png", full_page=True)
        copied = tab.locator(".copy").evaluate(
            "(line) => { getSelection().selectAllChildren(line); return getSelection().toString().trim(); }"
        )
        assert copied == tab.evaluate("FLAGS")  # one line, however it is broken on the screen
    assert told.startswith(
        "This browser has no WebGPU." if "gpu" in why else "This browser has WebGPU, but offers no GPU."
    )
    assert "Chrome" in told and "--enable-unsafe-webgpu" in told and "Safari" not in told  # on Linux
    assert said == []


def test_each_system_gets_its_own_advice(opened):
    open_page, _ = opened
    tab = open_page()
    agents = {
        "Windows": "Mozilla/5.0 (Windows NT 10.0; Win64; x64) Chrome/140.0",
        "macOS": "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) Safari/605.1",
        "iOS": "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) Safari/605.1",
        "Android": "Mozilla/5.0 (Linux; Android 14; Pixel) Chrome/140.0 Mobile",
        "Linux": "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    }
    for system, agent in agents.items():
        assert tab.evaluate("([agent]) => systemName(agent, 0)", [agent]) == system
    assert tab.evaluate("([agent]) => systemName(agent, 5)", [agents["macOS"]]) == "iOS"  # an iPad
    assert sorted(tab.evaluate("Object.keys(BROWSERS)")) == sorted(agents)


def test_javascript_alone_says_what_the_gpu_says(opened):
    open_page, _ = opened
    tab = open_page()
    away = tab.evaluate("""async () => { const gpu = await findGpu(); const made = layers();
        const pixels = Float32Array.from({ length: 784 }, (_, i) => (i % 7) / 7);
        const one = await (await Network.open(gpu, data.kernels.dense, made)).answer(pixels);
        const other = await plainNetwork(made).answer(pixels);
        return Math.max(...one.map((value, index) => Math.abs(value - other[index]))); }""")
    assert away < 1e-5


def test_a_page_over_plain_http_is_told_why_it_gets_no_gpu(plain):
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *words):
            pass

    handler = functools.partial(Quiet, directory=str(taster.STORED.parent))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, plain.new_context() as context:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            tab = context.new_page()
            tab.goto(f"http://{ELSEWHERE}:{server.server_port}/{taster.STORED.name}")
            tab.wait_for_selector("#found li")
            told = tab.locator("#found").inner_text()
            tab.screenshot(path=PICTURES / "taster-plain-http.png")
        finally:
            server.shutdown()
    assert told.startswith("Browsers give WebGPU only to pages over https") and "ssh -L" in told


# ---------------------------------------------------------------------------------------------- the notebook

LAB_CELLS = """
import numpy as np
from helpers.compute import webgpu
from helpers.commands import taster
from helpers.lessons import lesson_14_web as web
with np.load(taster.WEIGHTS) as kept:
    weights = [kept[f"arr_{number}"].astype("float32") for number in range(6)]
images = np.random.default_rng(0).integers(0, 256, (50, 784), dtype=np.uint8)
said = taster.answers(weights, images)
network = web.Network(weights, images, said.argmax(1), said, "the taster's")
""".strip()
JAVASCRIPT = '''
JAVASCRIPT = """
export async function compute(device, wgsl, inputs, bytes, groups) {
  const { STORAGE, COPY_SRC, COPY_DST, MAP_READ } = GPUBufferUsage;
  const buffers = inputs.map((input) => device.createBuffer({ size: input.byteLength, usage: STORAGE | COPY_DST }));
  inputs.forEach((input, i) => device.queue.writeBuffer(buffers[i], 0, input));
  const output = device.createBuffer({ size: bytes, usage: STORAGE | COPY_SRC });
  const copy = device.createBuffer({ size: bytes, usage: MAP_READ | COPY_DST });
  const module = device.createShaderModule({ code: wgsl });
  const pipeline = device.createComputePipeline({ layout: "auto", compute: { module, entryPoint: "main" } });
  const entries = [...buffers, output].map((buffer, binding) => ({ binding, resource: { buffer } }));
  const group = device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries });
  const encoder = device.createCommandEncoder();
  const pass = encoder.beginComputePass();
  pass.setPipeline(pipeline);
  pass.setBindGroup(0, group);
  pass.dispatchWorkgroups(groups);
  pass.end();
  encoder.copyBufferToBuffer(output, 0, copy, 0, bytes);
  device.queue.submit([encoder.finish()]);
  await copy.mapAsync(GPUMapMode.READ);
  return copy.getMappedRange().slice(0);
}
"""
a, b = np.random.default_rng(0).random((2, 1000), dtype=np.float32)
added = web.compute(JAVASCRIPT, webgpu.VECTOR_ADD, [a, b], 16, lambda c: f"equal: {np.array_equal(c, a + b)}")
added
'''.strip()
RACE = "race = web.race(np.arange(1024, dtype=np.uint32))\nrace.page"
OWN = "web.own_kernels['dense'] = web.kernel('dense') + '// mine'"
BROKEN = "web.own_kernels['dense'] = 'fn main( {'"


def lab(more=()):
    """Return the notebook of a small lesson with every kind of job."""
    live = ["web.live(lambda: web.adapters(added), added)", "web.live(lambda: web.draw_race(race), race.page)"]
    jobs = [JAVASCRIPT, "print(added.verdict)", RACE, *live, OWN, "checked = web.same_as_keras(network)\nchecked"]
    return sample_lesson.of(LAB_CELLS, *jobs, BROKEN, "web.draw_digits(network)", *more)


@pytest.fixture
def run_all(tmp_path):
    """Return a function that runs the lesson from the menu and hands over (the tab, what was seen, complaints)."""
    stack = contextlib.ExitStack()

    def run(chromium, notebook):
        path = sample_lesson.save(tmp_path, notebook)
        address = stack.enter_context(screenshots.served(path, "preview"))
        tab = stack.enter_context(chromium.new_context(**screenshots.WINDOW)).new_page()
        said = []
        tab.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
        tab.on("pageerror", lambda error: said.append(str(error)))
        seen = screenshots.run_all(tab, address, lesson_files.read(path), 300)
        return tab, seen, said

    with stack:
        yield run


def test_run_all_ends_without_a_hand_and_every_answer_comes_after_it(chromium, run_all):
    tab, seen, said = run_all(chromium, lab())
    assert seen == screenshots.Seen(cells=10, executed=10)
    shown = tab.locator(".anygpu")
    verdicts = ("equal: True", "all 1,024 numbers equal NumPy's", "right: your kernel on google swiftshader")
    for number, verdict in enumerate(verdicts):
        shown.nth(number).get_by_text(verdict).wait_for(timeout=60_000)
    outputs = "\n".join(tab.locator(".jp-OutputArea-output").all_inner_texts())
    assert web.NONE_YET in outputs  # the cell that reads came too early, as the lesson says
    assert "google swiftshader" in tab.locator("table").inner_text()  # and what is live came up to date
    pad = shown.nth(3)
    assert "The workshop's kernel (yours was refused here: The WGSL does not compile. line 1" in pad.inner_text()
    draw_a_one(tab, pad.locator("canvas").first)
    pad.get_by_text("It reads 1.").wait_for(timeout=10_000)
    tab.keyboard.press("7")
    pad.get_by_text("It reads 7.").wait_for(timeout=10_000)
    tab.keyboard.press("0")  # twice, JupyterLab would restart the kernel
    tab.keyboard.press("0")
    pad.get_by_text("It reads 0.").wait_for(timeout=10_000)
    assert tab.locator(".jp-Dialog").count() == 0
    (PICTURES / "lab").mkdir(exist_ok=True)
    screenshots.photograph(tab, PICTURES / "lab")
    assert [line for line in said if "WGSL" not in line and "shader" not in line.lower()] == []


@pytest.mark.slow
def test_a_page_without_webgpu_says_so_and_run_all_ends(plain, run_all):
    tab, seen, said = run_all(plain, lab(["print(added.verdict)"]))
    assert seen == screenshots.Seen(cells=11, executed=11)
    told = tab.locator(".anygpu").first
    told.get_by_text("The page did not compute: This browser has").wait_for(timeout=20_000)
    told.get_by_text("What helps").click()
    assert "--enable-unsafe-webgpu" in told.inner_text()
    pad = tab.locator(".anygpu").nth(3)  # one can draw all the same
    pad.get_by_text("So no kernel runs here: JavaScript computes").wait_for(timeout=20_000)
    pad.locator("button[aria-label^='draw a 7']").click()
    pad.get_by_text("It reads 7.").wait_for(timeout=10_000)
    (PICTURES / "lab-no-webgpu").mkdir(parents=True, exist_ok=True)
    screenshots.photograph(tab, PICTURES / "lab-no-webgpu")
    assert said == []
