// Lesson 16b's network writes a digit on the GPU, and the page shows it piece by piece: the taster's, and a learner's own.

const PIECES = 49;
const STEPS = [["ask", 3], ["attend", 1], ["combine", 1], ["spread", 4], ["gather", 1]]; // of a layer, with workgroups

const inUnits = (seconds) => {
  const [size, unit] = seconds >= 1 ? [1, "s"] : seconds >= 1e-3 ? [1e-3, "ms"] : [1e-6, "µs"];
  return `${(seconds / size).toPrecision(3)} ${unit}`;
};

function say(id, text, bad = false) {
  find(id).hidden = false;
  find(id).textContent = text;
  find(id).classList.toggle("bad", bad);
}

class DigitWriter {
  // `weights`: all of them as float32, in the order that writer.wgsl names.
  static async open(gpu, wgsl, weights) {
    const made = new DigitWriter();
    const { device } = gpu;
    made.device = device;
    const module = await compile(device, wgsl);
    const kinds = ["read-only-storage", "storage", "storage", "storage", "read-only-storage", "uniform"];
    const entries = kinds.map((type, binding) => ({ binding, visibility: GPUShaderStage.COMPUTE, buffer: { type } }));
    const bound = device.createBindGroupLayout({ entries });
    const layout = device.createPipelineLayout({ bindGroupLayouts: [bound] });
    const names = ["begin", ...STEPS.map(([name]) => name), "judge", "choose"];
    made.pipelines = Object.fromEntries(await Promise.all(names.map(async (entryPoint) =>
      [entryPoint, await device.createComputePipelineAsync({ layout, compute: { module, entryPoint } })])));
    made.words = empty(device, 4 * (PIECES + 2));
    made.chances = empty(device, 4 * PIECES);
    const shared = [upload(device, weights), empty(device, 4 * 640), empty(device, 4 * 12544), made.words, made.chances];
    made.at = [0, 1].map((layer) => uniform(device, [layer, 0, 0, 0]));
    made.groups = made.at.map((at) => device.createBindGroup({ layout: bound,
      entries: [...shared, at].map((buffer, binding) => ({ binding, resource: { buffer } })) }));
    return made;
  }

  // The 49 words of a digit. `chances`: for each word a number from 0 up to 1.
  async write(label, chances, temperature = 1) {
    const { queue } = this.device;
    queue.writeBuffer(this.words, 0, Uint32Array.from({ length: PIECES + 2 }, (_, at) => (at ? 0 : 64 + label)));
    queue.writeBuffer(this.chances, 0, Float32Array.from(chances));
    this.at.forEach((at) => queue.writeBuffer(at, 4, Float32Array.of(temperature)));
    const encoder = this.device.createCommandEncoder();
    const launch = (name, layer, groups) => record(encoder, this.pipelines[name], this.groups[layer], [groups, 1, 1]);
    for (let piece = 0; piece < PIECES; piece++) {
      launch("begin", 0, 1);
      for (const layer of [0, 1]) STEPS.forEach(([name, groups]) => launch(name, layer, groups));
      launch("judge", 0, 1);
      launch("choose", 0, 1);
    }
    queue.submit([encoder.finish()]);
    return [...new Uint32Array(await read(this.device, this.words))].slice(1, PIECES + 1);
  }
}

function decodeBytes(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

// Show words as pieces of 4 x 4 pixels on a canvas of 28 x 28, one after the other.
async function showWords(canvas, words, codebook, pause = 15) {
  const drawn = canvas.getContext("2d");
  drawn.clearRect(0, 0, 28, 28);
  for (const [place, word] of words.entries()) {
    const piece = new ImageData(4, 4);
    codebook.subarray(16 * word, 16 * word + 16).forEach((ink, at) => piece.data.set([0, 0, 0, ink], 4 * at));
    drawn.putImageData(piece, 4 * (place % 7), 4 * Math.floor(place / 7));
    if (pause) await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

// Fill the element `write`: ten buttons, and the digit that was asked for last.
async function openWriter(gpu) {
  const halves = new DataView(decodeBytes(data.writer.weights).buffer);
  const weights = Float32Array.from({ length: halves.byteLength / 2 }, (_, at) => fromHalf(halves.getUint16(2 * at, true)));
  const codebook = decodeBytes(data.writer.codebook);
  const writer = await DigitWriter.open(gpu, data.kernels.writer, weights);
  const write = async (label) => {
    const began = performance.now();
    const words = await writer.write(label, Float32Array.from({ length: PIECES }, () => Math.random() * 0.9999));
    const seconds = (performance.now() - began) / 1000;
    say("wrote", `A ${label}: ${PIECES} pieces in ${inUnits(seconds)} on ${named(gpu.facts)}, including their copy to the page.`);
    await showWords(find("written"), words, codebook);
  };
  find("write-buttons").replaceChildren(...Array.from({ length: 10 }, (_, label) =>
    element("button", { type: "button", ariaLabel: `write a ${label}`, onclick: () => write(label) }, String(label))));
  find("write").hidden = false;
  await write(Math.floor(10 * Math.random()));
  return writer;
}
