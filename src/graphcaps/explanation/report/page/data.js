// The data block: base64 of deflated bytes, a JSON header followed by typed columns, which are read without copying.

const TYPES = { u1: Uint8Array, i1: Int8Array, u2: Uint16Array, i2: Int16Array, u4: Uint32Array, f4: Float32Array };

async function readData() {
  const text = byId("data").textContent.trim();
  const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = await new Response(stream).arrayBuffer();
  const length = new DataView(bytes).getUint32(0, true);
  const meta = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, 8, length)));
  const columns = {};
  for (const [name, type, offset, count] of meta.columns) {
    columns[name] = new TYPES[type](bytes, 8 + length + offset, count);
  }
  return new Graphs(meta, columns);
}

const PARTS = ["test", "new", "validation", "training", "left-out"];

// The explained graphs. Levels count from 0; the last one is the class level.
class Graphs {
  constructor(meta, columns) {
    this.meta = meta;
    this.columns = columns;
    this.count = columns.number.length;
    this.levels = meta.levels;
    this.iterations = meta.iterations;
  }

  get classLevel() {
    return this.levels.length - 1;
  }

  // A class name that is a number gets the prefix "class"; the name itself stays as it is, so that it can be searched.
  className(index) {
    const name = this.meta.classes[index];
    return /^-?\d+$/.test(name) ? `class ${name}` : name;
  }

  // Identifier of a graph in its source, or null if it has only a number.
  idOf(graph) {
    const id = this.meta.ids?.[graph] ?? null;
    return id === String(this.columns.number[graph] + 1) ? null : id;
  }

  smilesOf(graph) {
    return this.meta.smiles?.[graph] ?? null;
  }

  // How a graph is called in lists and titles.
  nameOf(graph) {
    return this.idOf(graph) ?? `Graph ${this.columns.number[graph] + 1}`;
  }

  // The part of the training data that a graph was in: one of PARTS; null if unknown.
  partOf(graph) {
    return this.columns.part ? PARTS[this.columns.part[graph]] : null;
  }

  sizeOf(graph) {
    return this.columns.node_ptr[graph + 1] - this.columns.node_ptr[graph];
  }

  nodes(graph, name) {
    const { node_ptr: first } = this.columns;
    return this.columns[name]?.subarray(first[graph], first[graph + 1]);
  }

  edges(graph, name) {
    const { edge_ptr: first } = this.columns;
    return this.columns[name]?.subarray(first[graph], first[graph + 1]);
  }

  // Whether the prediction is correct; null if the true class is unknown.
  isRight(graph) {
    const trueClass = this.columns.true_class[graph];
    return trueClass < 0 ? null : trueClass === this.columns.predicted[graph];
  }

  // Number of a node in the original graph, from 1.
  nodeNumber(graph, node) {
    return (this.nodes(graph, "node_number")?.[node] ?? node) + 1;
  }

  labelOf(graph, node) {
    const labels = this.nodes(graph, "label");
    return labels ? this.meta.labels.names[labels[node]] : null;
  }

  // What is written into a node: its label, or the first letters of a long one.
  labelTextOf(graph, node) {
    const labels = this.nodes(graph, "label");
    return labels ? this.labelTexts[labels[node]] : "";
  }

  get labelTexts() {
    this.texts ??= labelTexts(this.meta.labels?.names ?? []);
    return this.texts;
  }

  // For each input of a level the capsule that it belongs to; null in the first iteration, where all weights are equal.
  tops(graph, level, iteration) {
    if (iteration === 0) return null;
    const values = this.columns[`top_${level}_${iteration}`];
    if (level === 0) return values.subarray(this.columns.node_ptr[graph], this.columns.node_ptr[graph + 1]);
    const parts = this.levels[level - 1].capsules;
    return values.subarray(graph * parts, (graph + 1) * parts);
  }

  // For every node the capsule of a level that it leads to, level by level.
  path(graph, level, iteration) {
    let path = this.tops(graph, 0, iteration);
    for (let above = 1; path && above <= level; above += 1) {
      const tops = this.tops(graph, above, iteration);
      path = path.map((capsule) => tops[capsule]);
    }
    return path;
  }

  // Routing coefficients of one input, between 0 and 1; null if the report leaves them out.
  weights(graph, level, part, iteration) {
    const J = this.levels[level].capsules;
    if (iteration === 0) return new Float32Array(J).fill(1 / J);
    const values = this.columns[`weights_${level}_${iteration}`];
    if (!values) return null;
    const before = level === 0 ? this.columns.node_ptr[graph] : graph * this.levels[level - 1].capsules;
    const start = (before + part) * J;
    return Float32Array.from(values.subarray(start, start + J), (value) => value / 255);
  }

  // Share of the graph in each capsule of a level: the mass of the nodes, distributed by the routing coefficients.
  shares(graph, level, iteration) {
    const J = this.levels[level].capsules;
    const below = level === 0 ? null : this.shares(graph, level - 1, iteration);
    const parts = level === 0 ? this.sizeOf(graph) : this.levels[level - 1].capsules;
    const total = new Float64Array(J);
    const tops = this.tops(graph, level, iteration);
    for (let part = 0; part < parts; part += 1) {
      const mass = below ? below[part] : 1 / parts;
      const weights = this.weights(graph, level, part, iteration);
      if (weights) {
        const sum = weights.reduce((a, b) => a + b, 0) || 1;
        for (let j = 0; j < J; j += 1) total[j] += (mass * weights[j]) / sum;
      } else total[tops[part]] += mass;
    }
    return total;
  }

  lengthsOf(graph, level) {
    const { capsules: J, step } = this.levels[level];
    return Array.from(this.columns[`length_${level}`].subarray(graph * J, (graph + 1) * J), (value) => value * step);
  }

  // Contributions to the capsules of a level above the first: rows are the capsules below, and last the residual.
  contributions(graph, level) {
    const { capsules: J, contribution_step: step } = this.levels[level];
    const rows = this.levels[level - 1].capsules + 1, start = graph * rows * J;
    const values = this.columns[`contribution_${level}`];
    return Array.from({ length: rows }, (_, row) =>
      Array.from(values.subarray(start + row * J, start + (row + 1) * J), (value) => value * step));
  }

  // Flow into each level, in units of the class scores, as graphcaps.explanation.contribution_flow computes it.
  flow(graph) {
    const flows = [];
    let needed = null;
    for (let level = this.classLevel; level > 0; level -= 1) {
      const rows = this.contributions(graph, level);
      if (needed) {
        needed.forEach((total, j) => {
          const sum = rows.reduce((all, row) => all + Math.abs(row[j]), 0);
          for (const row of rows) row[j] *= sum ? total / sum : 0;
        });
      }
      flows.unshift(rows);
      needed = rows.slice(0, -1).map((row) => row.reduce((all, value) => all + Math.abs(value), 0));
    }
    return [[needed], ...flows];
  }

  // Coarse adjacency of two capsules, relative to the largest weight of the graph.
  coarseWeight(graph, level, a, b) {
    const J = this.levels[level].capsules;
    const [low, high] = a < b ? [a, b] : [b, a];
    const size = (J * (J + 1)) / 2;
    return this.columns[`coarse_${level}`][graph * size + low * J - (low * (low - 1)) / 2 + (high - low)] / 255;
  }
}
