// Order of search results: index of tasks, then pages by hand, then those from code (docs/conf.py). Other values are Sphinx's.
var Scorer = {
  score: ([page, , , , score]) =>
    score + (page === "docs/how-to" ? 3 : /^docs.(guide.(?!settings)|how-to.|tutorials)/.test(page) ? 2 : /decisions|CHANGELOG|style|errors$/.test(page) ? -1 : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
