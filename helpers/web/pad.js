// The front page's pad: which GPU reads the digit, or why none does.

findGpu().then(async (gpu) => {
  await openPad(gpu);
  find("found").textContent = `Your browser gives this page ${named(gpu.facts)}. Nothing is installed, and nothing is sent.`;
}).catch(async (error) => {
  await openPad(null);
  find("found").textContent = `${error.message} The CPU reads your digit instead. Nothing is installed, and nothing is sent.`;
});
