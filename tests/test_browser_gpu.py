"""WebGPU in the page: lesson 14b's widgets in a real JupyterLab, the taster from its file, in the real Chromium."""

import contextlib
import itertools
import struct

import browser
import numpy as np
import pytest
import sample_lesson
from test_lesson_16b import compute_scores

from helpers.__main__ import main
from helpers.commands import taster
from helpers.devices import webgpu
from helpers.lessons import lesson_14, lesson_14_launches, lesson_16b, lesson_16b_web, web_pages
from helpers.lessons import lesson_14_web as web
from helpers.training import data, writer

needs_an_adapter = pytest.mark.skipif(webgpu.pick_adapter() is None, reason="no WebGPU adapter in Python")
PICTURES = browser.PICTURES / "webgpu"
PATIENCE = 180_000  # ms, for a computer that other programs keep busy: a page on software needs the processor
GPU = {"name": "a card", "software": False, "info": {}, "browser": "Chrome 1"}
GPU |= {"limits": {"maxBufferSize": 2**30, "maxComputeInvocationsPerWorkgroup": 256}}


def answer(page, facts=None, *arrays):
    page._hear(page.widget, {"gpu": GPU, "facts": facts or {}}, [memoryview(array.tobytes()) for array in arrays])


# ---------------------------------------------------------------------------------------------- Python's end


def test_python_says_go_after_the_pages_hello_and_the_verdict_is_the_judges():
    a, b = np.arange(20, dtype=np.float32).reshape(2, 10)
    received = []
    page = web.compute_in_page("", web.read_kernel("add"), [a, b], 1, lambda c: received.append(c) or "right: all")
    assert not page.widget.go
    page._hear(page.widget, {"hello": True}, [])
    assert page.widget.go and page.verdict == web.NONE_YET and page.answer is None
    answer(page, {}, a + b)
    assert page.verdict == page.widget.verdict == "right: all"
    assert np.array_equal(received[0], a + b) and received[0].dtype == np.float32


def test_a_page_that_cannot_compute_and_a_judge_that_fails_are_told():
    page = web.Page("compute", {}, lambda answer: 1 / 0)
    page._hear(page.widget, {"error": "This browser has no WebGPU.", "next": []}, [])
    assert "This browser has no WebGPU." in page.verdict and page.answer is None
    answer(page)
    assert "ZeroDivisionError" in page.verdict


def note(sizes=(1_563,), names=("first", "second"), count=100_000):
    """Return what launches.js notes of an addThree that launches `names` with these workgroups."""
    calls = [{"pipeline": f"{name}.pipeline", "group": f"{name}.group", "groups": list(sizes)} for name in names]
    return {"count": count, "calls": calls, "error": ""}


def test_a_page_that_ran_the_learners_launches_is_judged_by_notes_and_sums(monkeypatch):
    monkeypatch.setattr(web, "own_kernels", {"addThree": "the learner's"})
    a, b, c = np.random.default_rng(0).random((3, 10), dtype=np.float32)
    page = web.add_three_in_page(a, b, c)
    answer(page, {"noted": [note()]}, (a + b) + c)
    assert page.verdict.startswith("right: your launches on a card")
    answer(page, {"noted": [note()]}, a + b)
    assert page.verdict == "not yet: 10 of 10 sums differ from NumPy's."
    answer(page, {"noted": [note(names=["first"])]}, (a + b) + c)
    assert page.verdict.startswith("not yet") and "came 1" in page.verdict
    answer(page, {"noted": [note() | {"error": "SyntaxError"}]})
    assert page.verdict.startswith("not yet: addThree stopped with SyntaxError.")


def test_without_node_the_launches_are_left_to_the_page(monkeypatch, capsys):
    monkeypatch.setattr(web, "own_kernels", {})
    monkeypatch.setattr(lesson_14_launches, "find_node", lambda: None)
    web.check_launches("export function addThree() {}")
    assert capsys.readouterr().out.startswith("not judged: there is no Node.js")
    assert web.own_kernels == {"addThree": "export function addThree() {}"}


def test_a_loop_without_end_in_javascript_is_left_and_not_called_wrong(monkeypatch, capsys):
    monkeypatch.setattr(lesson_14_launches, "NODE_SECONDS", 2)
    web.check_launches("export function addThree() { while (true); }")
    assert "too busy to tell" in " ".join(capsys.readouterr().out.split())


@pytest.fixture
def network():
    rng = np.random.default_rng(0)
    weights = []
    for rows, columns in itertools.pairwise([784, 12, 10]):
        weights += [rng.normal(0, 0.1, (rows, columns)).astype("float32"), rng.random(columns, dtype="float32")]
    images = rng.integers(0, 256, (20, 784), dtype=np.uint8)
    return web.Network(weights, images, np.zeros(20, int))


@needs_an_adapter
def test_the_workshops_kernels_equal_numpy_and_give_way_to_right_ones(network, capsys, monkeypatch):
    monkeypatch.setattr(web, "own_kernels", {})
    adapter = webgpu.pick_adapter()
    device = webgpu.request_device(adapter)
    web.read_in_python(network, device)
    output = capsys.readouterr().out
    assert "the workshop's" in output and "NumPy's" in output and "the same digit as NumPy: 20 of 20 images" in output
    web.own_kernels["dense"] = web.read_kernel("dense") + "// mine"
    web.read_in_python(network, device)
    output = capsys.readouterr().out
    assert "dense:   yours" in output and "20 of 20 images" in output

    a, b = np.random.default_rng(0).random((2, 36, 36), dtype=np.float32)
    shape = np.array([36, 0, 0, 0], np.uint32)
    product = webgpu.run(device, web.read_kernel("product"), [a, b, np.zeros_like(a), shape], 2, [2, 2])
    assert np.allclose(product, a @ b, rtol=1e-5)


# ---------------------------------------------------------------------------------------------- the taster


def test_the_stored_page_is_what_the_command_writes_and_loads_nothing(tmp_path):
    assert main(["taster", "--output", str(tmp_path / "new" / "page.html")]) == 0
    stored = taster.STORED.read_text(encoding="utf-8")
    assert stored == (tmp_path / "new" / "page.html").read_text(encoding="utf-8"), "type: python -m helpers taster"
    assert len(stored.encode()) < 700_000 and "@@" not in stored
    assert not [word for word in ("src=", "@import", "url(", "<link", "fetch(", "XMLHttp") if word in stored]


def test_the_tasters_network_reads_as_well_as_the_page_says(monkeypatch):
    monkeypatch.setattr(data, "MIRRORS", ("http://127.0.0.1:9/mnist.npz",))  # nobody answers
    mnist = data.load_mnist()
    if mnist.name != "MNIST":
        pytest.skip("MNIST is not on this machine")
    with np.load(web_pages.WEIGHTS) as kept:
        weights = [kept[f"arr_{number}"].astype("float32") for number in range(6)]
        right = int(kept["right"])
    read = web.Network(weights, mnist.x_test.reshape(-1, 784), mnist.y_test).compute_probabilities().argmax(1)
    assert abs((read == mnist.y_test).sum() - right) <= 2
    assert f"{right:,}" in taster.build_page()


@pytest.fixture(scope="module")
def with_webgpu(chromium):
    """The machine's Chromium again, with WebGPU on SwiftShader; `chromium` has none where it sees no GPU."""
    arguments = [*browser.ARGUMENTS, browser.WEBGPU]
    second = chromium.browser_type.launch(executable_path=browser.find_browser(), args=arguments)
    yield second
    second.close()


@pytest.fixture
def opened(with_webgpu, request):
    """Open the taster from its file, without a network; in the end it may have complained of nothing."""
    options = getattr(request, "param", {"viewport": {"width": 900, "height": 900}})
    with browser.tab_of(with_webgpu, is_offline=True, **options) as (tab, complaints, asked):
        tab.goto(taster.STORED.as_uri())
        tab.wait_for_function("document.body.dataset.ready")
        yield tab
    assert (complaints, asked) == ([], [])


def reads(tab, digit):
    tab.wait_for_function(f"document.getElementById('pad').dataset.reads === '{digit}'", timeout=PATIENCE)


def draw_a_one(tab, field):
    """Draw a 1 by the mouse, and return how often the bars changed while it moved."""
    field.scroll_into_view_if_needed()
    box = field.bounding_box()
    tab.evaluate("""() => { window.moved = 0; new MutationObserver(() => window.moved++).observe(
        document.querySelector('.bars'), {subtree: true, attributes: true}); }""")
    tab.mouse.move(box["x"] + 0.55 * box["width"], box["y"] + 0.15 * box["height"])
    tab.mouse.down()
    for step in range(21):
        x, y = 0.55 - 0.004 * step, 0.15 + 0.034 * step
        tab.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"])
        tab.wait_for_timeout(20)
    changed = tab.evaluate("window.moved")
    tab.mouse.up()
    return changed


def test_the_taster_adds_and_multiplies_on_the_device_that_it_names(opened):
    assert "swiftshader is software" in opened.locator("#found").inner_text()
    assert "GPU" not in opened.locator("h1").inner_text()
    assert "--enable-unsafe-webgpu" in opened.locator("#facts").inner_text()  # what to do if there is a GPU
    assert opened.locator("#sums").inner_text().startswith("Right: all 1,000,000 sums")
    opened.locator("#multiply").click()
    opened.wait_for_function("!document.getElementById('multiply').disabled", timeout=120_000)
    assert opened.locator("#products").inner_text().startswith("Right: ")
    assert "matrix product" in opened.locator("#figure svg").get_attribute("aria-label")
    assert opened.locator("#table tbody tr").count() >= 3
    opened.screenshot(path=PICTURES / "taster.png", full_page=True)


def test_the_taster_writes_what_python_writes_by_the_same_numbers(opened):
    assert "49 pieces in" in opened.locator("#wrote").inner_text()  # it wrote a digit by itself
    chances = np.random.default_rng(3).integers(0, 2**20, 49) / 2**20
    program = "async ([label, chances]) => (await openWriter(await findGpu())).write(label, chances)"
    words = opened.evaluate(program, [4, chances.tolist()])
    _, weights = writer.load_writer()
    given = writer.begin(np.array([4]), np.array([words]))
    scores = compute_scores(weights, given)[0]
    expected = [lesson_16b.find_words(scores[i : i + 1], chances[i : i + 1], 1)[0] for i in range(49)]
    assert words == expected  # the numbers lie inside the words' shares


@pytest.mark.parametrize("width", [1280, 390])
def test_a_learners_page_writes_with_the_learners_kernel_or_says_why_not(with_webgpu, tmp_path, width):
    texts = []
    for attend in (lesson_16b_web.ATTEND, lesson_16b_web.ATTEND.replace("-3.4e38", "-INFINITY")):
        (tmp_path / "page.html").write_text(lesson_16b_web.build_page(attend), encoding="utf-8")
        with browser.tab_of(with_webgpu, is_offline=True, viewport={"width": width, "height": 900}) as (tab, _, asked):
            tab.goto((tmp_path / "page.html").as_uri())
            tab.wait_for_function("document.body.dataset.ready")
            texts.append(tab.locator("#wrote").inner_text())
            assert tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
            assert "fn attend" in tab.locator("pre").text_content() and asked == []
            tab.screenshot(path=PICTURES / f"own-writer-{width}-{len(texts)}.png", full_page=True)
    assert "49 pieces in" in texts[0]
    assert "INFINITY" in texts[1]


def test_the_taster_reads_what_is_drawn(opened):
    assert draw_a_one(opened, opened.locator("#pad canvas").first) > 10  # bars move while the mouse does
    reads(opened, 1)
    times = opened.locator("#pad .says .small").inner_text()
    assert "with the way to the GPU and back" in times and "The same layers in JavaScript" in times
    for digit in range(10):
        opened.locator(f"#pad button[aria-label^='draw {digit}']").click()
        reads(opened, digit)
    opened.get_by_role("button", name="Clear").click()
    reads(opened, "")
    opened.locator("#pad canvas").first.focus()
    opened.keyboard.press("7")
    reads(opened, 7)
    opened.keyboard.press("Delete")
    opened.wait_for_function("document.querySelector('.spoken').textContent === 'empty'")


PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}


@pytest.mark.parametrize(
    "opened", [PHONE | {"color_scheme": scheme} for scheme in ("light", "dark")], ids=["light", "dark"], indirect=True
)
def test_the_taster_fits_a_phone_and_axe_finds_no_fault(opened):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    assert opened.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
    opened.locator("#pad button[aria-label^='draw 4']").tap()
    reads(opened, 4)
    opened.screenshot(path=PICTURES / "taster-phone.png", full_page=True)
    assert [fault["id"] for fault in axe.Axe().run(opened).response["violations"]] == []


def test_the_taster_prepares_a_drawing_as_mnist_does(opened):
    pixels = np.array(
        opened.evaluate("""() => { const ink = new Uint8ClampedArray(FIELD * FIELD);
            for (let y = 20; y < 120; y++) for (let x = 200; x < 250; x++) ink[y * FIELD + x] = 255;
            return [...likeMnist(ink)]; }""")
    ).reshape(28, 28)
    rows, columns = np.nonzero(pixels > 0.5)
    assert (rows.max() - rows.min() + 1, columns.max() - columns.min() + 1) == (20, 10)
    middle = [(pixels.sum(axis) @ (np.arange(28) + 0.5)) / pixels.sum() for axis in (0, 1)]
    assert np.allclose(middle, 14, atol=0.5) and pixels.max() <= 1


def test_the_taster_reads_numbers_of_16_bits(opened):
    halves = {bits: opened.evaluate(f"fromHalf({bits})") for bits in (0x0001, 0x3C00, 0xC500, 0x7BFF, 0x8400)}
    assert halves == {bits: float(np.frombuffer(struct.pack("<H", bits), "<f2")[0]) for bits in halves}


SUMS = """async ([wgsl, n, launched]) => { const gpu = await findGpu(); const groups = Math.ceil(n / 64);
    const buffers = [upload(gpu.device, new Float32Array(n).fill(1)), empty(gpu.device, 4 * groups)];
    const pipeline = await build(gpu.device, wgsl); const encoder = gpu.device.createCommandEncoder();
    const group = bind(gpu.device, pipeline, [...buffers, uniform(gpu.device, [n])]);
    record(encoder, pipeline, group, [launched ?? groups]); gpu.device.queue.submit([encoder.finish()]);
    return [...new Float32Array(await read(gpu.device, buffers[1]))]; }"""


WITHOUT_GUARD = """
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> c: array<f32>;
@group(0) @binding(2) var<uniform> n: u32;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < n) { c[id.x + 3u] = f32(id.x) + x[0]; }
}
"""


def test_chromium_keeps_the_zeros_that_wgsl_promises_and_shows_races_and_a_missing_guard(opened):
    assert opened.evaluate(SUMS, [lesson_14.write_sums(lesson_14.COPY_WITHOUT_ZEROS), 130]) == [64, 64, 2]
    if "swiftshader" in opened.locator("#found").inner_text():  # as lesson 14 says
        every = (*lesson_14.LEFT_OUT.values(), (8, 4, 2, 1))  # the last as in exercise 3's solution
        kernels = [lesson_14.write_sums(left_out=left_out) for left_out in every]
        assert [opened.evaluate(SUMS, [kernel, 64])[0] for kernel in kernels] == [64, 64, 20, 48]
        assert opened.evaluate(SUMS, [WITHOUT_GUARD, 640, 1]) == [0, 0, 0, 1, 2, 3, 4, 5, 6, 64]


def test_chromium_cuts_a_fraction_of_a_workgroup(opened):  # as lesson 14b's check says
    assert opened.evaluate(SUMS, [lesson_14.write_sums(), 130, 130 / 64]) == [64, 64, 0]


LEAVES = "if (id.x >= n) { return; }"  # before a barrier


@pytest.mark.parametrize(("copy", "is_refused"), [(LEAVES, True), ("if (group.x > n) { return; }", False)])
def test_chromium_refuses_a_kernel_that_a_part_of_a_workgroup_leaves(opened, copy, is_refused):
    error = opened.evaluate(
        "async (wgsl) => build((await findGpu()).device, wgsl).then(() => '', (error) => error.message)",
        lesson_14.write_sums(copy),
    )
    assert ("workgroupBarrier" in error) == is_refused, error


def test_the_tasters_javascript_computes_as_its_kernels(opened):
    difference = opened.evaluate("""async () => { const gpu = await findGpu(); const made = layers();
        const pixels = Float32Array.from({ length: 784 }, (_, i) => (i % 7) / 7);
        const one = await (await Network.open(gpu, data.kernels.dense, made)).answer(pixels);
        const other = await plainNetwork(made).answer(pixels);
        return Math.max(...one.map((value, index) => Math.abs(value - other[index]))); }""")
    assert difference < 1e-5


@pytest.fixture(params=["no adapter", "no navigator.gpu"])
def without_webgpu(chromium, request):
    """The taster in a browser without WebGPU; in the end it may have complained of nothing."""
    with browser.tab_of(chromium, is_offline=True) as (tab, complaints, _):
        if request.param == "no navigator.gpu":  # as in a browser that is older than WebGPU
            tab.add_init_script("delete Navigator.prototype.gpu")
        tab.goto(taster.STORED.as_uri())
        tab.wait_for_selector("#found li")
        yield tab
    assert complaints == []


def test_a_browser_without_webgpu_is_told_what_helps(without_webgpu):
    advice = without_webgpu.locator("#found").inner_text()
    assert "no WebGPU" in advice or "no GPU" in advice
    assert "--enable-unsafe-webgpu" in advice and "Safari" not in advice  # on Linux
    assert not without_webgpu.locator("#rest").is_visible()


def test_a_browser_without_webgpu_reads_digits_on_the_processor(without_webgpu):
    without_webgpu.locator("#pad button[aria-label^='draw 7']").click()
    reads(without_webgpu, 7)
    times = without_webgpu.locator("#pad .says .small").inner_text()
    assert times.startswith("One answer, in JavaScript, on the processor: ") and "The same" not in times


def test_the_taster_knows_the_system_that_it_advises(opened):
    systems = {
        "Windows NT 10.0": "Windows",
        "Macintosh; Intel Mac OS X 10_15_7": "macOS",
        "iPhone; CPU iPhone OS 18_0 like Mac OS X": "iOS",
        "X11; CrOS x86_64 14541.0.0": "ChromeOS",
    }
    found = {agent: opened.evaluate("agent => systemName(agent, 0)", f"Mozilla/5.0 ({agent})") for agent in systems}
    assert found == systems


# ---------------------------------------------------------------------------------------------- the notebook

IMPORTS = """
import numpy as np
from helpers.lessons import lesson_14_web as web
from helpers.lessons import web_pages
"""
NETWORK = """
with np.load(web_pages.WEIGHTS) as kept:
    weights = [kept[f"arr_{number}"].astype("float32") for number in range(6)]
images = np.random.default_rng(0).integers(0, 256, (50, 784), dtype=np.uint8)
network = web.Network(weights, images, np.zeros(50, int))
"""
LAB_CELLS = f"{IMPORTS}\n{NETWORK}".strip()
JAVASCRIPT = '''
JAVASCRIPT = """
export function dispatch(device, wgsl, buffers, groups) {
  const module = device.createShaderModule({ code: wgsl });
  const pipeline = device.createComputePipeline({ layout: "auto", compute: { module, entryPoint: "main" } });
  const entries = buffers.map((buffer, binding) => ({ binding, resource: { buffer } }));
  const group = device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries });
  const encoder = device.createCommandEncoder();
  const work = encoder.beginComputePass();
  work.setPipeline(pipeline);
  work.setBindGroup(0, group);
  work.dispatchWorkgroups(groups);
  work.end();
  device.queue.submit([encoder.finish()]);
}
"""
a, b = np.random.default_rng(0).random((2, 1000), dtype=np.float32)
wgsl = web.read_kernel("add")
added = web.compute_in_page(JAVASCRIPT, wgsl, [a, b], 16, lambda c: f"equal: {np.array_equal(c, a + b)}")
added
'''.strip()
OWN = "web.own_kernels['dense'] = web.read_kernel('dense') + '// mine'"
BROKEN = "web.own_kernels['dense'] = 'fn main( {'"


THREE = """
web.check_launches(web.read_kernel("add"))  # no JavaScript
web.own_kernels["addThree"] = (web.WEB / "add_three.js").read_text(encoding="utf-8")
web.add_three_in_page(a, b, a)
""".strip()
CUT = """
web.own_kernels["addThree"] = web.own_kernels["addThree"].replace("Math.ceil", "")
web.add_three_in_page(a, b, a)
""".strip()


def lab():
    """Return the notebook of a small lesson with every kind of job."""
    jobs = [JAVASCRIPT, "print(added.verdict)", OWN, "web.draw_digits(network)", BROKEN, "web.draw_digits(network)"]
    return sample_lesson.of(LAB_CELLS, *jobs, THREE, CUT)


@contextlib.contextmanager
def lab_after_run_all(chromium, folder):
    """Open the small lesson in JupyterLab, run all its cells, and yield (the tab, what its console complained of)."""
    notebook = lab()
    path = sample_lesson.save(folder, notebook)
    with browser.served(path) as address, browser.tab_of(chromium) as (tab, complaints, _):
        browser.open_lesson(tab, address)
        assert browser.run_cells(tab, notebook, 300) == browser.PageRecord(cells=9, executed=9)
        yield tab, complaints


def test_run_all_ends_without_a_hand_and_every_answer_comes_after_it(with_webgpu, tmp_path):
    with lab_after_run_all(with_webgpu, tmp_path) as (tab, complaints):
        shown = tab.locator(".anygpu")
        verdicts = ("equal: True", "Your own kernel computes on google swiftshader")
        for number, verdict in enumerate(verdicts):
            shown.nth(number).get_by_text(verdict).wait_for(timeout=PATIENCE)
        shown.nth(3).get_by_text("right: your launches on google swiftshader").wait_for(timeout=PATIENCE)
        shown.nth(4).get_by_text("WebGPU cuts this number to 1,562").wait_for(timeout=PATIENCE)
        outputs = "\n".join(tab.locator(".jp-OutputArea-output").all_inner_texts())
        assert web.NONE_YET in outputs  # the cell that reads came too early
        pad = shown.nth(2)
        assert "The WGSL does not compile. line 1" in pad.inner_text()  # so the workshop's kernel reads
        draw_a_one(tab, pad.locator("canvas").first)
        pad.get_by_text("It reads 1.").wait_for(timeout=PATIENCE)
        tab.keyboard.press("0")  # twice, JupyterLab would restart the kernel
        tab.keyboard.press("0")
        pad.get_by_text("It reads 0.").wait_for(timeout=PATIENCE)
        assert tab.locator(".jp-Dialog").count() == 0
        browser.photograph(tab, PICTURES / "lab")
        pad.screenshot(path=PICTURES / "drawn.png")  # as helpers/web/pictures holds it
    assert [line for line in complaints if "WGSL" not in line and "shader" not in line.lower()] == []


def test_a_page_without_webgpu_says_so_and_run_all_ends(chromium, tmp_path):
    with lab_after_run_all(chromium, tmp_path) as (tab, complaints):
        tab.locator(".anygpu").first.get_by_text("The page did not compute").wait_for(timeout=PATIENCE)
        pad = tab.locator(".anygpu").nth(2)  # one can draw all the same
        pad.get_by_text("JavaScript computes").wait_for(timeout=PATIENCE)
        pad.locator("button[aria-label^='draw 7']").click()
        pad.get_by_text("It reads 7.").wait_for(timeout=PATIENCE)
    assert complaints == []
