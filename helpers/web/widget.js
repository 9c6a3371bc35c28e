// What lesson 14b shows in the notebook: the page takes a job from Python, computes, and sends back what it got.
// helpers/lessons/lesson_14_web.py is the other end: it makes the job, and judges the answer.

const floats = (view) => new Float32Array(view.buffer, view.byteOffset, view.byteLength / 4);
const bytesOf = (view) => new Uint8Array(view.buffer, view.byteOffset, view.byteLength);

// One device for all widgets of the page, one job at a time; each widget has its own copy of this file.
const shared = (globalThis.anyGpu ??= { works: new Map(), queue: Promise.resolve() });

function gpuOfPage() {
  shared.opened ??= findGpu().then((gpu) => {
    gpu.device.lost.then(() => (shared.opened = undefined));
    return gpu;
  });
  shared.opened.catch(() => (shared.opened = undefined));
  return shared.opened;
}

// What a text in JavaScript exports.
async function importText(javascript) {
  const address = URL.createObjectURL(new Blob([javascript], { type: "text/javascript" }));
  try {
    return await import(address);
  } finally {
    URL.revokeObjectURL(address);
  }
}

const tasks = {
  // The notebook's own JavaScript: dispatch(device, wgsl, buffers, groups), the output in the last buffer.
  async compute(gpu, job) {
    const { dispatch } = await importText(job.javascript);
    const inputs = job.inputs.map((view) => upload(gpu.device, bytesOf(view)));
    const output = empty(gpu.device, job.bytes);
    dispatch(gpu.device, job.wgsl, [...inputs, output], job.groups);
    return { arrays: [await read(gpu.device, output)] };
  },

  // (a + b) + c by two launches of one kernel in one pass, which addThree records; first only notes, then the GPU.
  async addThree(gpu, job) {
    let noted = [];
    try {
      const { addThree } = await importText(job.javascript);
      noted = noteLaunches(addThree, job.counts);
      if (noted.some((one) => one.error)) return { facts: { noted } };
      const [a, b, c] = job.inputs.map((view) => upload(gpu.device, bytesOf(view)));
      const [sums, out] = [empty(gpu.device, a.size), empty(gpu.device, a.size)];
      const prepare = async (buffers) => {
        const pipeline = await build(gpu.device, job.wgsl);
        return { pipeline, group: bind(gpu.device, pipeline, buffers) };
      };
      const [first, second] = [await prepare([a, b, sums]), await prepare([sums, c, out])];
      const encoder = gpu.device.createCommandEncoder();
      const pass = encoder.beginComputePass();
      addThree(pass, first, second, a.size / 4);
      pass.end();
      gpu.device.queue.submit([encoder.finish()]);
      return { facts: { noted }, arrays: [await read(gpu.device, out)] };
    } catch (error) {
      if (noted.length) throw error;
      return { facts: { noted: [{ count: 0, calls: [], error: String(error) }] } }; // no module
    }
  },

  async draw(gpu, job) {
    const { network, own, refused } = await openNetwork(gpu, job);
    return { facts: { own, refused }, answer: (pixels) => network.answer(pixels) };
  },
};

const layersOf = (job) => job.layers.map((layer) => ({ ...layer, weights: floats(layer.weights), bias: floats(layer.bias) }));

// The learner's kernel where there is one that this page accepts, else the workshop's.
async function openNetwork(gpu, job) {
  const layers = layersOf(job);
  if (job.own) {
    try {
      return { network: await Network.open(gpu, job.own, layers), own: true, refused: "" };
    } catch (error) {
      return { network: await Network.open(gpu, job.wgsl, layers), own: false, refused: error.message };
    }
  }
  return { network: await Network.open(gpu, job.wgsl, layers), own: false, refused: "" };
}

// Resolves when Python is free: it says go. Until then other cells compute.
function go(model) {
  return new Promise((resolve) => {
    const look = () => model.get("go") && resolve();
    model.on("change:go", look);
    model.send({ hello: true });
    look();
  });
}

async function work(model, job) {
  try {
    const gpu = await gpuOfPage();
    if (job.task !== "draw") await go(model);
    const turn = job.task === "draw" ? compute(gpu, job) : shared.queue.then(() => compute(gpu, job));
    if (job.task !== "draw") shared.queue = turn.catch(() => {}); // one at a time
    const done = await turn;
    model.send({ gpu: gpu.facts, facts: done.facts ?? {} }, undefined, done.arrays ?? []);
    return { gpu: gpu.facts, facts: done.facts, answer: done.answer };
  } catch (error) {
    const said = { error: error.message, next: error.next ?? [] };
    model.send(said);
    if (job.task !== "draw") return said;
    const network = plainNetwork(layersOf(job)); // one can draw all the same
    return { ...said, answer: (pixels) => network.answer(pixels) };
  }
}

async function compute(gpu, job) {
  gpu.device.pushErrorScope("validation");
  try {
    return await tasks[job.task](gpu, job);
  } finally {
    const wrong = await gpu.device.popErrorScope();
    if (wrong) throw new Error(wrong.message);
  }
}

export default {
  initialize({ model }) {
    const job = model.get("job");
    shared.works.set(job.number, work(model, job)); // JupyterLab may show one widget several times
    return () => shared.works.delete(job.number);
  },

  async render({ model, el }) {
    const job = model.get("job");
    const status = element("p", { role: "status", textContent: "The page computes when no cell is running ..." });
    const verdict = element("p", { role: "status" });
    const more = element("div");
    const root = element("div", { className: "anygpu" }, status, more, verdict);
    el.append(root);
    const judged = () => (verdict.textContent = said?.error ? "" : model.get("verdict"));
    let said;
    model.on("change:verdict", judged);
    said = await (shared.works.get(job.number) ?? work(model, job));
    if (said.error) {
      status.textContent = said.answer ? `${said.error} So no kernel runs here: JavaScript computes the same layers, on the processor.`
        : `The page did not compute: ${said.error}`;
      status.className = "bad";
      if (said.next.length) {
        more.append(element("details", {}, element("summary", { textContent: "What helps" }), element("ul", {}, ...listed(said.next))));
      }
      if (said.answer) digitPad(more, said.answer, ALONE);
    } else if (said.answer) {
      const kernel = said.facts.own ? "Your own kernel" : "The workshop's kernel";
      const why = said.facts.refused ? ` (yours was refused here: ${said.facts.refused})` : "";
      status.textContent = `${kernel}${why} computes on ${named(said.gpu)}, in ${said.gpu.browser}.`;
      const plain = plainNetwork(layersOf(job));
      digitPad(more, said.answer, onGpu(said.gpu), (pixels) => plain.answer(pixels));
    } else {
      status.textContent = `The page computed on ${named(said.gpu)}, in ${said.gpu.browser}. Python's verdict:`;
    }
    judged();
  },
};
