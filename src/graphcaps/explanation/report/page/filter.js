// Which graphs are listed, and in which order.

const ORDERS = {
  number: { name: "Data set order", by: () => null },
  unsure: { name: "Least sure first", by: (c) => (p, q) => c.confidence[p] - c.confidence[q] || p - q },
  sure: { name: "Surest first", by: (c) => (p, q) => c.confidence[q] - c.confidence[p] || p - q },
  large: {
    name: "Largest first",
    by: (c) => (p, q) => c.node_ptr[q + 1] - c.node_ptr[q] - (c.node_ptr[p + 1] - c.node_ptr[p]) || p - q,
  },
};

const EVERYTHING = { trueClass: -1, predicted: -1, trained: -1, outcome: "all", low: 0, high: 100, order: "number" };

function chooseGraphs(graphs, wanted) {
  const { true_class: known, predicted, confidence, trained } = graphs.columns;
  const found = [];
  // Half a unit of float32 below, so that 100 % still holds what rounds to it.
  const low = wanted.low / 100 - 1e-6, high = wanted.high / 100 + 1e-6;
  for (let g = 0; g < graphs.count; g += 1) {
    if (wanted.trueClass >= 0 && known[g] !== wanted.trueClass) continue;
    if (wanted.predicted >= 0 && predicted[g] !== wanted.predicted) continue;
    if (wanted.trained >= 0 && trained[g] !== wanted.trained) continue;
    if (wanted.outcome === "right" && !(known[g] >= 0 && known[g] === predicted[g])) continue;
    if (wanted.outcome === "wrong" && !(known[g] >= 0 && known[g] !== predicted[g])) continue;
    if (confidence[g] < low || confidence[g] > high) continue;
    found.push(g);
  }
  const order = ORDERS[wanted.order].by(graphs.columns);
  return order ? found.sort(order) : found;
}
