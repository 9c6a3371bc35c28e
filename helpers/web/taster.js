// The taster page: what is on it, in its order.

const COUNT = 1_000_000;
const SIZES = [32, 64, 128, 256, 512, 1024, 2048];
const SLOW = 1.5; // seconds: no larger size after a run that took so long

const inBytes = (bytes) => (bytes >= 2 ** 30 ? `${(bytes / 2 ** 30).toFixed(1)} GiB` : bytes >= 2 ** 20 ?
  `${(bytes / 2 ** 20).toFixed(0)} MiB` : `${(bytes / 2 ** 10).toFixed(0)} KiB`);

function table(heads, rows) {
  const line = (cells, kind) => element("tr", {}, ...cells.map((cell, at) => element(kind || (at ? "td" : "th"), {}, cell)));
  const made = element("table", {}, element("tbody", {}, ...rows.map((row) => line(row))));
  if (heads) made.prepend(element("thead", {}, line(heads, "th")));
  return element("div", { className: "wide" }, made);
}

function randomFloats(count) {
  return Float32Array.from({ length: count }, () => Math.random() - 0.5);
}

// ------------------------------------------------------------------------------------------------ 1 and 2

function showGpu({ facts }) {
  say("found", facts.software
    ? `No GPU is used here: ${facts.name} is software, and your CPU computes. Everything below works, but its times are the CPU's.`
    : `Your browser gives this page ${facts.name}.`);
  const rows = Object.entries(facts.info).map(([key, value]) => [key, value]);
  const limits = facts.limits;
  rows.push(["largest buffer", inBytes(limits.maxBufferSize)],
    ["workgroup memory", inBytes(limits.maxComputeWorkgroupStorageSize)],
    ["invocations in a workgroup", `up to ${limits.maxComputeInvocationsPerWorkgroup}`], ["browser", facts.browser]);
  if (facts.software) { // a GPU may be there all the same
    find("facts").append(element("p", {}, "If this computer has a GPU:"),
      element("ul", {}, ...listed([SETTINGS, ...BROWSERS[systemName()]])));
  }
  find("facts").append(table(null, rows), element("p", { className: "small",
    textContent: "Browsers tell a page little about the GPU, to protect you from being recognized. " +
      "A device with two GPUs shows the one that the browser picked: often the one that saves power." }));
}

async function addVectors(gpu) {
  const { device } = gpu;
  const [a, b] = [randomFloats(COUNT), randomFloats(COUNT)];
  const pipeline = await build(device, data.kernels.add);
  const sums = empty(device, a.byteLength);
  const group = bind(device, pipeline, [upload(device, a), upload(device, b), sums]);
  const time = await timed(gpu, pipeline, group, groupsFor(COUNT), sums, { most: 1 });
  const result = new Float32Array(await read(device, sums));
  const began = performance.now();
  const expected = a.map((value, index) => value + b[index]);
  const alone = (performance.now() - began) / 1000;
  const wrong = result.reduce((total, value, index) => total + (value !== expected[index]), 0);
  say("sums", wrong === 0
    ? `Right: all ${COUNT.toLocaleString("en")} sums equal JavaScript's. WebGPU took ${inUnits(median(time.seconds))} (the first run ` +
      `${inUnits(time.first)}) on ${named(gpu.facts)}, JavaScript on one core ${inUnits(alone)}. The way of the numbers to the ` +
      "device is not counted. For each addition three numbers are moved, so the memory sets the pace, not the arithmetic: WebGPU may " +
      "well lose here (lesson 01b)."
    : `Wrong: ${wrong.toLocaleString("en")} of ${COUNT.toLocaleString("en")} sums differ from JavaScript's.`, wrong > 0);
}

// ------------------------------------------------------------------------------------------------ 3

function multiplyAlone(a, b, n) { // one core, row by row, as fast as plain JavaScript gets without tricks
  const c = new Float32Array(n * n);
  for (let row = 0; row < n; row++) {
    for (let k = 0; k < n; k++) {
      const factor = a[row * n + k];
      for (let column = 0; column < n; column++) c[row * n + column] += factor * b[k * n + column];
    }
  }
  return c;
}

function timeAlone(a, b, n) {
  const clock = () => {
    const began = performance.now();
    multiplyAlone(a, b, n);
    return (performance.now() - began) / 1000;
  };
  const first = clock();
  const times = Math.max(1, Math.ceil(0.02 / Math.max(first, 1e-5)));
  return median(Array.from({ length: first > 0.3 ? 1 : 5 }, () => {
    const began = performance.now();
    for (let i = 0; i < times; i++) multiplyAlone(a, b, n);
    return (performance.now() - began) / 1000 / times;
  }));
}

// The largest difference to sums in float64, of 200 elements, relative to the sizes of what was added.
function furthest(c, a, b, n) {
  let most = 0;
  for (let sample = 0; sample < 200; sample++) {
    const row = Math.floor(Math.random() * n);
    const column = Math.floor(Math.random() * n);
    let sum = 0;
    let size = 0;
    for (let k = 0; k < n; k++) {
      sum += a[row * n + k] * b[k * n + column];
      size += Math.abs(a[row * n + k] * b[k * n + column]);
    }
    most = Math.max(most, Math.abs(c[row * n + column] - sum) / size);
  }
  return most;
}

async function multiply(gpu) {
  const { device } = gpu;
  const pipeline = await build(device, data.kernels.product);
  const points = [];
  let worst = 0;
  let slowAlone = false;
  for (const n of SIZES) {
    say("products", `n = ${n} ...`);
    await new Promise((resolve) => setTimeout(resolve, 30)); // so that the line is seen
    const [a, b] = [randomFloats(n * n), randomFloats(n * n)];
    const c = empty(device, a.byteLength);
    const buffers = [upload(device, a), upload(device, b), c, uniform(device, [n, 0, 0, 0])];
    const group = bind(device, pipeline, buffers);
    const { seconds } = await timed(gpu, pipeline, group, [Math.ceil(n / 32), Math.ceil(n / 32), 1], c, { samples: 7, most: 1.5 });
    worst = Math.max(worst, furthest(new Float32Array(await read(device, c)), a, b, n));
    buffers.forEach((buffer) => buffer.destroy());
    const alone = slowAlone ? null : timeAlone(a, b, n);
    slowAlone ||= alone > 0.3;
    points.push({ n, gpu: median(seconds), alone });
    if (median(seconds) > SLOW / 8) break;
  }
  return { points, worst };
}

function drawTimes(points, name) {
  find("figure").hidden = false;
  const width = Math.min(640, Math.max(320, find("figure").clientWidth));
  const [height, left, bottom, top, right] = [360, 70, 50, 40, 20];
  const all = points.flatMap((point) => [point.gpu, point.alone]).filter(Boolean);
  const low = Math.floor(Math.log10(Math.min(...all)));
  const high = Math.ceil(Math.log10(Math.max(...all)));
  const x = (n) => left + ((Math.log2(n) - 5) / (Math.log2(points.at(-1).n) - 5 || 1)) * (width - left - right);
  const y = (s) => height - bottom - ((Math.log10(s) - low) / (high - low)) * (height - top - bottom);
  const parts = [];
  for (let power = low; power <= high; power++) {
    parts.push(`<line class="grid" x1="${left}" x2="${width - right}" y1="${y(10 ** power)}" y2="${y(10 ** power)}"/>`,
      `<text x="${left - 8}" y="${y(10 ** power) + 4}" text-anchor="end">${inUnits(10 ** power).replace(/\.0+(?= )/, "")}</text>`);
  }
  for (const { n } of points) parts.push(`<text x="${x(n)}" y="${height - bottom + 20}" text-anchor="middle">${n}</text>`);
  const path = (kept, key) => kept.map((point, at) => `${at ? "L" : "M"}${x(point.n)} ${y(point[key])}`).join(" ");
  const alone = points.filter((point) => point.alone);
  parts.push(`<line class="axis" x1="${left}" x2="${width - right}" y1="${height - bottom}" y2="${height - bottom}"/>`,
    `<path class="js" d="${path(alone, "alone")}"/>`, `<path class="gpu" d="${path(points, "gpu")}"/>`,
    ...points.map((point) => `<circle cx="${x(point.n)}" cy="${y(point.gpu)}" r="4.5"/>`),
    ...alone.map((point) => `<rect x="${x(point.n) - 4}" y="${y(point.alone) - 4}" width="8" height="8"/>`),
    `<text x="${(left + width) / 2}" y="${height - 8}" text-anchor="middle">rows and columns n</text>`,
    `<text x="4" y="16">time of one product (both axes logarithmic)</text>`,
    `<circle cx="${left + 20}" cy="${top + 10}" r="4.5"/><text x="${left + 32}" y="${top + 14}">WebGPU</text>`,
    `<rect x="${left + 16}" y="${top + 26}" width="8" height="8"/><text x="${left + 32}" y="${top + 35}">JavaScript, one core</text>`);
  const words = points.map((p) => `n = ${p.n}: ${inUnits(p.gpu)}${p.alone ? `, JavaScript ${inUnits(p.alone)}` : ""}`).join("; ");
  find("figure").innerHTML = `<svg viewBox="0 0 ${width} ${height}" width="${width}" role="img">${parts.join("")}</svg>`;
  find("figure").firstChild.setAttribute("aria-label", `Time of a matrix product against its size on ${name}. ${words}.`);
}

function showProducts({ points, worst }, facts) {
  const rate = (n, seconds) => (seconds ? ((2 * n ** 3) / seconds / 1e9).toPrecision(3) : "–");
  const good = worst < 1e-5;
  const last = points.at(-1);
  const from = points.find((point, at) => points.slice(at).every((p) => p.alone === null || 1.2 * p.gpu < p.alone) && point.alone);
  const both = points.filter((point) => point.alone);
  const sizes = !from ? "not clearly faster than JavaScript at the sizes where both ran"
    : `faster than JavaScript ${from === both.at(-1) ? `at n = ${from.n}, the largest size where both ran` : `from n = ${from.n} on`}`;
  say("products", good
    ? `Right: 200 elements of each product were computed again, in double precision. WebGPU was ${sizes}. ` +
      `At n = ${last.n}: ${rate(last.n, last.gpu)} GFLOP/s on ${named(facts)}.`
    : `Wrong: a result is off by ${worst.toExponential(1)} of what was added up.`, !good);
  drawTimes(points, facts.name);
  find("table").replaceChildren(table(["n", "WebGPU", "GFLOP/s", "JavaScript, one core", "GFLOP/s"], points.map((p) => [
    String(p.n), inUnits(p.gpu), rate(p.n, p.gpu), p.alone ? inUnits(p.alone) : "left out", rate(p.n, p.alone)])),
    element("p", { className: "small", textContent: "GFLOP/s: billions (10⁹) of additions and multiplications a second. Each time has its " +
      "fence: the page waits until the result can be read. A small product mostly waits for that, and for the way to the GPU. " +
      "The program is a plain one; a library would use a better one. Left out: JavaScript, where it takes long." }));
}

// ------------------------------------------------------------------------------------------------ all

async function start() {
  for (const name of ["add", "product", "dense", "writer"]) find(`${name}-code`).textContent = data.kernels[name].trim();
  let gpu;
  try {
    gpu = await findGpu();
  } catch (error) {
    say("found", `${error.message} JavaScript reads your digits on the CPU instead; the rest is left out. If this computer has a GPU:`, true);
    find("found").append(element("ul", {}, ...listed(error.next ?? [])));
    find("reads").textContent = "in JavaScript on the processor (this page gets no GPU)";
    await openPad(null);
    document.body.dataset.ready = "yes";
    return;
  }
  gpu.device.lost.then((lost) => say("found", `The GPU was lost (${lost.message || lost.reason}): load the page again.`, true));
  find("rest").hidden = false;
  showGpu(gpu);
  find("multiply").onclick = async () => {
    find("multiply").disabled = true;
    try {
      showProducts(await multiply(gpu), gpu.facts);
    } catch (error) {
      say("products", `It did not work: ${error.message}`, true);
    }
    find("multiply").disabled = false;
  };
  try {
    await openPad(gpu);
  } catch (error) {
    say("found", `The CPU reads the digits, because the GPU did not work: ${error.message}`, true);
    await openPad(null);
  }
  try {
    await openWriter(gpu);
  } catch (error) {
    find("write").hidden = false;
    say("wrote", `It did not work: ${error.message}`, true);
  }
  try {
    await addVectors(gpu);
  } catch (error) {
    say("sums", `It did not work: ${error.message}`, true);
  }
  document.body.dataset.ready = "yes";
}

start();
