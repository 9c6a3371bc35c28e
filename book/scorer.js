// How search ranks pages. A query of three words or more is often an error message: where the known failures and a lesson
// score the same, the known failures come first. Sphinx reads this object in place of its own, so its other weights are
// repeated here.
const searched = new URLSearchParams(location.search).get("q") ?? "";
const bonus = searched.trim().split(/\s+/).length > 2 ? 1 : 0;
var Scorer = {
  score: ([page, , , , score]) => score + (page === "docs/failures" ? bonus : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
