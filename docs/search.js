// Order of search results: how-to first, then guide and tutorials, then the rest (docs/conf.py). Other values are Sphinx's.
var Scorer = {
  score: ([page, , , , score]) =>
    score + (/^docs.how-to/.test(page) ? 3 : /^docs.(guide|tutorials)/.test(page) ? 2 : /decisions|CHANGELOG|style|errors$/.test(page) ? -1 : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
