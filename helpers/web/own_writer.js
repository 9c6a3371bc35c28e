// A learner's page: it writes digits with the kernel `attend` that was put into it.

findGpu().then(openWriter).catch((error) => say("wrote", `It did not work: ${error.message}`, true))
  .finally(() => { document.body.dataset.ready = "yes"; });
