// Selection and order of the listed graphs.

const ORDERS = {
  number: { name: "Data set order", by: () => null },
  unsure: { name: "Lowest confidence first", by: (c) => (p, q) => c.confidence[p] - c.confidence[q] || p - q },
  sure: { name: "Highest confidence first", by: (c) => (p, q) => c.confidence[q] - c.confidence[p] || p - q },
  large: {
    name: "Largest first",
    by: (c) => (p, q) => c.node_ptr[q + 1] - c.node_ptr[q] - (c.node_ptr[p + 1] - c.node_ptr[p]) || p - q,
  },
};

const NO_FILTER = { trueClass: -1, predicted: -1, part: "", find: "", outcome: "all", low: 0, high: 100, order: "number" };

function selectGraphs(graphs, criteria) {
  const { true_class: trueClass, predicted, confidence } = graphs.columns;
  const find = criteria.find.trim().toLowerCase();
  const selected = [];
  // A float32 tolerance, so that 100 % includes values that round to it.
  const low = criteria.low / 100 - 1e-6, high = criteria.high / 100 + 1e-6;
  for (let g = 0; g < graphs.count; g += 1) {
    if (criteria.trueClass >= 0 && trueClass[g] !== criteria.trueClass) continue;
    if (criteria.predicted >= 0 && predicted[g] !== criteria.predicted) continue;
    if (criteria.part && graphs.partOf(g) !== criteria.part) continue;
    if (find && !matches(graphs, g, find)) continue;
    if (criteria.outcome === "right" && !(trueClass[g] >= 0 && trueClass[g] === predicted[g])) continue;
    if (criteria.outcome === "wrong" && !(trueClass[g] >= 0 && trueClass[g] !== predicted[g])) continue;
    if (confidence[g] < low || confidence[g] > high) continue;
    selected.push(g);
  }
  const order = ORDERS[criteria.order].by(graphs.columns);
  return order ? selected.sort(order) : selected;
}

// Whether number, identifier or SMILES of a graph contain a text; a number must match as a whole.
function matches(graphs, graph, text) {
  const texts = [graphs.idOf(graph), graphs.smilesOf(graph)].filter((value) => value !== null);
  return String(graphs.columns.number[graph] + 1) === text || texts.some((value) => value.toLowerCase().includes(text));
}
