// Lesson 14b's launches for learners who have not written their own: out = (a + b) + c, by two launches of one kernel.
export function addThree(pass, first, second, count) {
  for (const { pipeline, group } of [first, second]) {
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, group);
    pass.dispatchWorkgroups(Math.ceil(count / 64));
  }
}
