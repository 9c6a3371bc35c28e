// The front page's pad: which GPU reads the digit, or why none does.

findGpu().then(async (gpu) => {
  await openPad(gpu);
  find("found").textContent = `Your browser offers this page: ${named(gpu.facts)}. Nothing is installed, and nothing is sent.`;
}).catch(async (error) => {
  await openPad(null);
  find("found").textContent = `${error.message} So the processor reads your digit. Nothing is installed, and nothing is sent.`;
});
