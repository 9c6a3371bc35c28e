// The pad that the trained network answers, on the GPU where the browser offers one: the taster's, and the front page's.

const find = (id) => document.getElementById(id);
const data = JSON.parse(find("data").textContent); // kernels, and the network's shapes and weights

function layers() {
  const bytes = Uint8Array.from(atob(data.weights), (letter) => letter.charCodeAt(0));
  const halves = new DataView(bytes.buffer);
  let at = 0;
  const next = (count) => Float32Array.from({ length: count }, () => fromHalf(halves.getUint16(2 * at++, true)));
  const made = [];
  for (let i = 0; i < data.shapes.length; i += 2) {
    const [rows, columns] = data.shapes[i];
    made.push({ in: rows, out: columns, weights: next(rows * columns), bias: next(columns) });
  }
  return made;
}

function fromHalf(bits) { // IEEE 754: a sign, five bits of exponent, ten of fraction
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -24 * fraction);
}

// Fill the element `pad`, and say in the page's title, if it has one, what reads.
// `gpu`: what findGpu gave, or null: then JavaScript answers, on the processor.
async function openPad(gpu) {
  const plain = plainNetwork(layers());
  const network = gpu ? await Network.open(gpu, data.kernels.dense, layers()) : plain;
  const title = find("title-reader");
  if (title) title.textContent = gpu && !gpu.facts.software ? "Your GPU" : "Your CPU";
  const answer = (pixels) => network.answer(pixels);
  if (gpu) digitPad(find("pad"), answer, onGpu(gpu.facts), (pixels) => plain.answer(pixels));
  else digitPad(find("pad"), answer, ALONE);
}
