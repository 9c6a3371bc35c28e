// Note which launches a learner's addThree records in a pass (lesson 14b). Node.js runs this for the check, and the page
// runs it before it lets addThree work on a GPU. helpers/lessons/lesson_14_web.py judges the notes.

const MOST_LAUNCHES = 100; // more count as a loop without end

// A pass that computes nothing: it adds each launch to `calls`, with what was set before.
function makeNotingPass(calls) {
  let pipeline = "";
  let group = "";
  let elsewhere = "";
  return {
    setPipeline(given) {
      pipeline = String(given);
    },
    setBindGroup(index, given) {
      if (index === 0) group = String(given);
      else elsewhere = `setBindGroup(${index}, ${given})`;
    },
    dispatchWorkgroups(...sizes) {
      if (calls.length === MOST_LAUNCHES) throw new Error(`more than ${MOST_LAUNCHES} launches`);
      calls.push({ pipeline, group, elsewhere, groups: sizes.map(Number) });
    },
    end() {
      throw new Error("the pass is ended by the code that calls addThree");
    },
  };
}

// For each count: the launches in their order, and the error that stopped addThree, if any.
function noteLaunches(addThree, counts) {
  const [first, second] = ["first", "second"].map((name) => ({ pipeline: `${name}.pipeline`, group: `${name}.group` }));
  return counts.map((count) => {
    const noted = { count, calls: [], error: "" };
    try {
      addThree(makeNotingPass(noted.calls), first, second, count);
    } catch (error) {
      noted.error = String(error);
    }
    return noted;
  });
}
