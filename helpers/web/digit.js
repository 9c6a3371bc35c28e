// A field to draw a digit in, by mouse, finger or keyboard, and ten bars that say what a network reads.

const FIELD = 280; // pixels of the drawing, in each direction
const PEN = 22;
const EXAMPLES = [ // the strokes of each digit, points between 0 and 1
  [[[0.5, 0.15], [0.35, 0.2], [0.27, 0.4], [0.28, 0.65], [0.38, 0.82], [0.52, 0.85], [0.66, 0.75], [0.72, 0.5], [0.68, 0.28], [0.58, 0.17], [0.5, 0.15]]],
  [[[0.54, 0.15], [0.5, 0.5], [0.47, 0.85]]],
  [[[0.3, 0.32], [0.38, 0.19], [0.55, 0.16], [0.67, 0.28], [0.64, 0.45], [0.45, 0.66], [0.29, 0.83], [0.5, 0.82], [0.74, 0.82]]],
  [[[0.31, 0.22], [0.5, 0.15], [0.66, 0.24], [0.62, 0.4], [0.45, 0.48], [0.64, 0.55], [0.69, 0.7], [0.56, 0.84], [0.3, 0.8]]],
  [[[0.36, 0.16], [0.3, 0.52], [0.7, 0.5]], [[0.66, 0.18], [0.6, 0.86]]],
  [[[0.68, 0.17], [0.38, 0.18], [0.34, 0.46], [0.55, 0.43], [0.68, 0.56], [0.65, 0.75], [0.48, 0.85], [0.3, 0.8]]],
  [[[0.6, 0.15], [0.42, 0.3], [0.31, 0.55], [0.34, 0.77], [0.5, 0.86], [0.65, 0.77], [0.66, 0.61], [0.52, 0.53], [0.35, 0.64]]],
  [[[0.28, 0.2], [0.5, 0.19], [0.71, 0.18], [0.58, 0.5], [0.46, 0.86]]],
  [[[0.66, 0.26], [0.5, 0.15], [0.35, 0.26], [0.44, 0.44], [0.62, 0.6], [0.64, 0.77], [0.49, 0.86], [0.34, 0.76], [0.4, 0.58], [0.6, 0.42], [0.66, 0.26]]],
  [[[0.66, 0.32], [0.52, 0.16], [0.36, 0.24], [0.35, 0.4], [0.5, 0.47], [0.65, 0.36], [0.67, 0.3], [0.64, 0.6], [0.56, 0.86]]],
];

// As MNIST was made (yann.lecun.com/exdb/mnist): the digit fits a box of 20 x 20, and its center of mass is the middle
// of 28 x 28. `ink`: FIELD x FIELD numbers from 0 to 255. Returns 784 numbers from 0 to 1, or null for an empty field.
function likeMnist(ink) {
  let left = FIELD, right = -1, top = FIELD, bottom = -1, mass = 0, sumX = 0, sumY = 0;
  for (let y = 0; y < FIELD; y++) {
    for (let x = 0; x < FIELD; x++) {
      const here = ink[y * FIELD + x];
      if (!here) continue;
      left = Math.min(left, x);
      right = Math.max(right, x);
      top = Math.min(top, y);
      bottom = Math.max(bottom, y);
      mass += here;
      sumX += here * (x + 0.5);
      sumY += here * (y + 0.5);
    }
  }
  if (!mass) return null;
  const scale = Math.min(1, 20 / Math.max(right - left + 1, bottom - top + 1));
  const pixels = new Float32Array(784);
  for (let y = top; y <= bottom; y++) {
    for (let x = left; x <= right; x++) {
      const toX = Math.floor(14 + scale * (x + 0.5 - sumX / mass));
      const toY = Math.floor(14 + scale * (y + 0.5 - sumY / mass));
      if (toX < 0 || toX > 27 || toY < 0 || toY > 27) continue;
      pixels[28 * toY + toX] += (ink[y * FIELD + x] / 255) * scale * scale; // the share of the small pixel that is ink
    }
  }
  return pixels.map((value) => Math.min(1, value));
}

const element = (tag, properties = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in made && name !== "role") made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
};

const onGpu = (facts) => `with the way to the GPU and back, on ${named(facts)}`;
const ALONE = "in JavaScript, on the processor";
const TIMES = 10; // answers of JavaScript that are timed together: a page's clock is coarse

function inMilliseconds(times) { // the median of the last 30
  const middle = median(times.slice(-30));
  return middle < 0.05 ? "under 0.1 ms" : `${middle.toFixed(1)} ms`;
}

// Fill `root` with the field and the bars. `answer(pixels)`: a promise of ten probabilities. `where`: what computes them,
// for the line with their time. `plain(pixels)`: the same in JavaScript, whose time then stands beside; null for none.
function digitPad(root, answer, where, plain = null) {
  const canvas = element("canvas", {
    width: FIELD, height: FIELD, tabIndex: 0, role: "application", "aria-roledescription": "drawing field",
    "aria-label": "Draw a digit. By keyboard: arrows move the pen, space lowers and lifts it, 0 to 9 draw an example, " +
      "Backspace takes the last stroke back, Delete clears.",
  });
  const pen = element("span", { className: "pen", hidden: true });
  const seen = element("canvas", { width: 28, height: 28, className: "seen", role: "img",
    "aria-label": "The 28 x 28 pixels that the network gets: empty" });
  const verdict = element("p", { className: "reading", textContent: "Draw a digit from 0 to 9." });
  const time = element("p", { className: "small", textContent: " " });
  const spoken = element("p", { className: "spoken", role: "status" });
  const rows = [...Array(10).keys()].map((digit) => {
    const fill = element("span", { className: "fill" });
    const percent = element("span", { className: "percent", textContent: "–" });
    const row = element("li", {}, element("span", { className: "digit", textContent: digit }),
      element("span", { className: "track", "aria-hidden": "true" }, fill), percent);
    return { row, fill, percent };
  });
  const examples = [...Array(10).keys()].map((digit) => element("button", {
    type: "button", textContent: digit, "aria-label": `draw ${digit} as an example`, onclick: () => example(digit),
  }));
  const clearing = element("button", { type: "button", textContent: "Clear", onclick: () => clear() });
  const undo = element("button", { type: "button", textContent: "Undo", onclick: () => back() });
  root.append(
    element("div", { className: "pad", "data-lm-suppress-shortcuts": "true" },
      element("div", { className: "draw" }, element("div", { className: "field" }, canvas, pen),
        element("div", { className: "buttons" }, clearing, undo)),
      element("div", { className: "says" }, verdict,
        element("ol", { className: "bars", "aria-label": "probability of each digit" }, ...rows.map(({ row }) => row)), time),
      element("div", { className: "small look" }, seen, element("span", { textContent: "what the network gets: 28 x 28" })),
      element("div", { className: "buttons examples", role: "group", "aria-label": "examples" },
        element("span", { textContent: "Or let the page draw:" }), ...examples), spoken),
  );

  const context = canvas.getContext("2d", { willReadFrequently: true });
  let strokes = [];
  let drawing = false; // whether the pen is down
  let at = [0.5, 0.3]; // the pen of the keyboard
  let busy = false;
  let again = false;
  let speaking;
  const took = []; // milliseconds of an answer
  const tookPlain = [];

  function redraw() {
    context.clearRect(0, 0, FIELD, FIELD);
    Object.assign(context, { lineWidth: PEN, lineCap: "round", lineJoin: "round",
      strokeStyle: getComputedStyle(canvas).color });
    for (const stroke of strokes) {
      context.beginPath();
      stroke.forEach(([x, y]) => context.lineTo(x * FIELD, y * FIELD));
      const [x, y] = stroke[0];
      if (stroke.length === 1) context.lineTo(x * FIELD + 0.1, y * FIELD);
      context.stroke();
    }
    look();
  }

  async function look() { // one question at a time; what was drawn meanwhile is asked next
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    do {
      again = false;
      await new Promise((resolve) => requestAnimationFrame(resolve));
      const rgba = context.getImageData(0, 0, FIELD, FIELD).data;
      const pixels = likeMnist(rgba.filter((_, index) => index % 4 === 3));
      show(pixels);
      if (!pixels) {
        tell(null);
        continue;
      }
      try {
        const began = performance.now();
        const probabilities = await answer(pixels);
        took.push(performance.now() - began);
        if (plain) tookPlain.push(await timePlain(pixels));
        tell(probabilities);
      } catch (error) {
        verdict.textContent = `No answer came: ${error.message}`;
      }
    } while (again);
    busy = false;
  }

  async function timePlain(pixels) {
    const began = performance.now();
    for (let i = 0; i < TIMES; i++) await plain(pixels);
    return (performance.now() - began) / TIMES;
  }

  function show(pixels) {
    const small = seen.getContext("2d");
    const image = small.createImageData(28, 28);
    const [red, green, blue] = getComputedStyle(canvas).color.match(/\d+/g).map(Number);
    for (let i = 0; i < 784; i++) image.data.set([red, green, blue, 255 * (pixels ? pixels[i] : 0)], 4 * i);
    small.putImageData(image, 0, 0);
    seen.setAttribute("aria-label", `The 28 x 28 pixels that the network gets: ${pixels ? "your digit" : "empty"}`);
  }

  function tell(probabilities) {
    rows.forEach(({ row, fill, percent }, digit) => {
      const share = probabilities ? probabilities[digit] : 0;
      fill.style.width = `${100 * share}%`;
      percent.textContent = probabilities ? `${(100 * share).toFixed(share > 0.9995 ? 0 : 1)} %` : "–";
      row.classList.toggle("best", Boolean(probabilities) && share === Math.max(...probabilities));
    });
    const best = probabilities ? probabilities.indexOf(Math.max(...probabilities)) : null;
    root.dataset.reads = best ?? "";
    verdict.textContent = best === null ? "Draw a digit from 0 to 9." : `It reads ${best}.`;
    if (took.length) {
      const beside = plain ? ` The same layers ${ALONE}: ${inMilliseconds(tookPlain)}.` : "";
      time.textContent = `One answer, ${where}: ${inMilliseconds(took)}.${beside}`;
    }
    clearTimeout(speaking); // for screen readers, once the hand rests
    speaking = setTimeout(() => {
      spoken.textContent = best === null ? "empty" : `It reads ${best}, ${(100 * probabilities[best]).toFixed(0)} percent`;
    }, 600);
  }

  function clear() {
    strokes = [];
    drawing = false;
    redraw();
  }
  function back() {
    strokes.pop();
    drawing = false;
    redraw();
  }
  function example(digit) {
    strokes = EXAMPLES[digit].map((stroke) => stroke.map((point) => [...point]));
    drawing = false;
    redraw();
  }

  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button || !event.isPrimary) return; // a palm beside the finger
    event.preventDefault();
    canvas.focus({ preventScroll: true });
    canvas.setPointerCapture(event.pointerId);
    pen.hidden = true;
    drawing = true;
    strokes.push([place(event)]);
    redraw();
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!drawing || !canvas.hasPointerCapture(event.pointerId)) return;
    const points = event.getCoalescedEvents?.() ?? [];
    strokes.at(-1).push(...(points.length ? points : [event]).map(place));
    redraw();
  });
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => (drawing = false));

  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const step = event.shiftKey ? 0.1 : 0.04;
    const moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] };
    if (moves[event.key]) {
      at = at.map((value, axis) => Math.min(0.95, Math.max(0.05, value + moves[event.key][axis])));
      if (drawing) strokes.at(-1).push(at);
    } else if (event.key === " " || event.key === "Enter") {
      drawing = !drawing;
      if (drawing) strokes.push([at]);
    } else if (/^\d$/.test(event.key)) {
      example(Number(event.key));
    } else if (event.key === "Backspace") {
      back();
    } else if (event.key === "Delete") {
      clear();
    } else {
      return; // Tab and all others keep their meaning
    }
    event.preventDefault();
    event.stopPropagation(); // JupyterLab has shortcuts of its own
    pen.hidden = false;
    pen.classList.toggle("down", drawing);
    Object.assign(pen.style, { left: `${100 * at[0]}%`, top: `${100 * at[1]}%` });
    redraw();
  });
  canvas.addEventListener("blur", () => (pen.hidden = true));
  tell(null);
}
