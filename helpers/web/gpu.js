// Compute with WebGPU in a page: find the GPU, build a kernel, run it, time it. Lesson 14 and the taster use it.

class NoGpu extends Error {
  constructor(what, next) {
    super(what);
    this.next = next; // what to do: a sentence each, or [sentence, line to copy]
  }
}

// As of November 2026, from the WebGPU group's table: github.com/gpuweb/gpuweb/wiki/Implementation-Status
const FLAGS = "google-chrome --enable-unsafe-webgpu --ozone-platform=x11 --use-angle=vulkan --enable-features=Vulkan,VulkanFromANGLE";
const BROWSERS = { // what has WebGPU, by system
  Windows: ["WebGPU is in current Chrome, Edge and Firefox."],
  macOS: ["WebGPU is in current Chrome and Edge; in Firefox on a Mac with Apple's chips; in Safari 26 on macOS 26."],
  Android: ["WebGPU is in Chrome on Android 12 or newer. It does not know every GPU."],
  iOS: ["WebGPU is in Safari on iOS 26 or iPadOS 26."],
  ChromeOS: ["WebGPU is in the Chromebook's own Chrome: update ChromeOS."],
  Linux: ["Current Chrome switches WebGPU on only for newer Intel and NVIDIA GPUs.",
    ["For other GPUs close Chrome, and start it with (one line; for Chromium, replace google-chrome):", FLAGS],
    "Firefox Nightly has WebGPU, too."],
};
const SETTINGS = "Switch “hardware acceleration” on in the browser's settings, and update the GPU's driver.";

function systemName(agent = navigator.userAgent, fingers = navigator.maxTouchPoints) {
  if (/Android/.test(agent)) return "Android";
  if (/iPhone|iPad/.test(agent) || (/Macintosh/.test(agent) && fingers > 1)) return "iOS"; // an iPad calls itself a Mac
  if (/CrOS/.test(agent)) return "ChromeOS";
  return /Windows/.test(agent) ? "Windows" : /Mac/.test(agent) ? "macOS" : "Linux";
}

// What helps, as list items: a sentence each, perhaps with a line to copy.
const listed = (tips) => tips.map((tip) => {
  const [text, code] = [tip].flat();
  const words = (code ?? "").split(" ").flatMap((word) => [element("span", {}, word), " "]); // no break at a hyphen
  return element("li", {}, text, ...(code ? [element("pre", { className: "copy", tabIndex: 0 }, ...words)] : []));
});

async function findGpu() {
  if (!isSecureContext) {
    throw new NoGpu("Browsers give WebGPU only to pages over https, on localhost, or from a file, and this is none.", [
      `This address begins with ${location.origin}. Ask for it with https, or open the workshop as localhost: ` +
        "an SSH tunnel makes a far machine local (ssh -L 8888:localhost:8888 MACHINE).",
    ]);
  }
  if (!navigator.gpu) throw new NoGpu("This browser has no WebGPU.", BROWSERS[systemName()]);
  const adapter = await navigator.gpu.requestAdapter().catch(() => null);
  if (!adapter) throw new NoGpu("This browser has WebGPU, but offers no GPU.", [SETTINGS, ...BROWSERS[systemName()]]);
  const most = adapter.limits; // a device has only WebGPU's smallest limits unless it is asked for with more
  const names = ["maxStorageBufferBindingSize", "maxBufferSize"];
  const device = await adapter.requestDevice({
    requiredLimits: Object.fromEntries(names.map((name) => [name, most[name]])),
  });
  return { adapter, device, facts: describe(adapter) };
}

function describe(adapter) {
  const info = adapter.info ?? {};
  const words = [info.description, info.device, info.architecture, info.vendor].filter(Boolean);
  const fallback = info.isFallbackAdapter ?? adapter.isFallbackAdapter ?? false;
  const software = fallback || /swiftshader|llvmpipe|lavapipe|basic render/i.test(words.join(" "));
  const kept = ["vendor", "architecture", "device", "description"].filter((key) => info[key]);
  return {
    name: info.description || info.device || [info.vendor, info.architecture].filter(Boolean).join(" ") ||
      "a GPU that this browser does not name",
    software,
    info: Object.fromEntries(kept.map((key) => [key, info[key]])),
    limits: Object.fromEntries(
      ["maxBufferSize", "maxStorageBufferBindingSize", "maxComputeWorkgroupStorageSize",
       "maxComputeInvocationsPerWorkgroup", "maxComputeWorkgroupsPerDimension"].map((key) => [key, adapter.limits[key]]),
    ),
    browser: browserName(),
  };
}

function browserName() {
  const agent = navigator.userAgent;
  const found = agent.match(/(Firefox|Edg|Chrome)\/(\d+)/) ?? agent.match(/(Version)\/(\d+).*Safari/);
  return found ? `${{ Edg: "Edge", Version: "Safari" }[found[1]] ?? found[1]} ${found[2]}` : "a browser";
}

const named = (facts) => facts.name + (facts.software ? " (software: the processor computes)" : "");

// ------------------------------------------------------------------------------------------------ one kernel

async function compile(device, wgsl) {
  device.pushErrorScope("validation");
  const module = device.createShaderModule({ code: wgsl });
  const { messages } = await module.getCompilationInfo();
  await device.popErrorScope();
  const wrong = messages.filter((message) => message.type === "error");
  if (wrong.length) {
    const lines = wrong.map((one) => `line ${one.lineNum}, column ${one.linePos}: ${one.message}`);
    throw new Error(`The WGSL does not compile. ${lines.join("; ")}`);
  }
  return module;
}

async function build(device, wgsl, entryPoint = "main") {
  const module = await compile(device, wgsl);
  return device.createComputePipelineAsync({ layout: "auto", compute: { module, entryPoint } });
}

function upload(device, array, usage = GPUBufferUsage.STORAGE) {
  const more = GPUBufferUsage.COPY_DST | GPUBufferUsage.COPY_SRC;
  const buffer = device.createBuffer({ size: array.byteLength, usage: usage | more });
  device.queue.writeBuffer(buffer, 0, array);
  return buffer;
}

const uniform = (device, numbers) => upload(device, new Uint32Array(numbers), GPUBufferUsage.UNIFORM);
const empty = (device, bytes) => upload(device, new Uint8Array(bytes));

function bind(device, pipeline, buffers) {
  const entries = buffers.map((buffer, binding) => ({ binding, resource: { buffer } }));
  return device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries });
}

function record(encoder, pipeline, group, groups) {
  const pass = encoder.beginComputePass();
  pass.setPipeline(pipeline);
  pass.setBindGroup(0, group);
  pass.dispatchWorkgroups(...groups);
  pass.end();
}

async function read(device, buffer, bytes = buffer.size) {
  const copy = device.createBuffer({ size: bytes, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
  const encoder = device.createCommandEncoder();
  encoder.copyBufferToBuffer(buffer, 0, copy, 0, bytes);
  device.queue.submit([encoder.finish()]);
  await copy.mapAsync(GPUMapMode.READ); // the fence: it waits until the queue has got this far
  const data = copy.getMappedRange().slice(0);
  copy.destroy();
  return data;
}

const groupsFor = (count) => [Math.ceil(count / 64), 1, 1]; // groups of 64 for `count` elements

// ------------------------------------------------------------------------------------------------ time

const median = (numbers) => {
  const sorted = [...numbers].sort((a, b) => a - b);
  return (sorted[(sorted.length - 1) >> 1] + sorted[sorted.length >> 1]) / 2;
};

// Seconds of one run. A page's clock is coarse (0.1 to 1 ms), so each sample is a batch of runs before one fence.
async function timed(gpu, pipeline, group, groups, fence, { samples = 9, least = 0.02, most = 2 } = {}) {
  const work = async (times) => {
    const began = performance.now();
    const encoder = gpu.device.createCommandEncoder();
    for (let i = 0; i < times; i++) record(encoder, pipeline, group, groups);
    gpu.device.queue.submit([encoder.finish()]);
    await read(gpu.device, fence, 4);
    return (performance.now() - began) / 1000;
  };
  const first = await work(1); // it also makes what the driver makes late
  let times = 1;
  let took = await work(1);
  while (took < least && times < 4096) {
    times = Math.min(4096, took > 0 ? Math.max(2 * times, Math.ceil((times * least) / took)) : 8 * times);
    took = await work(times);
  }
  const seconds = [took / times];
  for (let total = took; seconds.length < samples && (total < most || seconds.length < 3); ) {
    took = await work(times);
    total += took;
    seconds.push(took / times);
  }
  return { first, seconds, times };
}

// ------------------------------------------------------------------------------------------------ a network

// Dense layers on the GPU by one kernel (bindings as in dense.wgsl); softmax of the ten sums in JavaScript.
class Network {
  static async open(gpu, wgsl, layers) {
    const made = new Network();
    made.gpu = gpu;
    made.pipeline = await build(gpu.device, wgsl);
    const { device } = gpu;
    made.first = empty(device, 4 * layers[0].in);
    let inputs = made.first;
    made.layers = layers.map((layer, number) => {
      const outputs = empty(device, 4 * layer.out);
      const shape = uniform(device, [1, layer.out, layer.in, number < layers.length - 1 ? 1 : 0]);
      const buffers = [inputs, upload(device, layer.weights), upload(device, layer.bias), outputs, shape];
      inputs = outputs;
      return { ...layer, outputs, group: bind(device, made.pipeline, buffers) };
    });
    return made;
  }

  // The probability of each class for one input.
  async answer(input) {
    const { device } = this.gpu;
    device.queue.writeBuffer(this.first, 0, input);
    const encoder = device.createCommandEncoder();
    for (const layer of this.layers) {
      record(encoder, this.pipeline, layer.group, [Math.ceil(layer.out / 64), 1, 1]);
    }
    device.queue.submit([encoder.finish()]);
    const last = this.layers.at(-1);
    return softmax(new Float32Array(await read(device, last.outputs)));
  }
}

// The same layers in JavaScript, one input at a time: for a page without WebGPU.
function plainNetwork(layers) {
  return {
    async answer(input) {
      let values = input;
      layers.forEach(({ out, weights, bias }, number) => {
        const sums = Float32Array.from(bias);
        values.forEach((value, k) => {
          if (value !== 0) for (let column = 0; column < out; column++) sums[column] += value * weights[k * out + column];
        });
        values = number < layers.length - 1 ? sums.map((sum) => Math.max(sum, 0)) : sums;
      });
      return softmax(values);
    },
  };
}

function softmax(sums) {
  const highest = Math.max(...sums);
  const powers = sums.map((value) => Math.exp(value - highest));
  const total = powers.reduce((a, b) => a + b);
  return powers.map((value) => value / total);
}
