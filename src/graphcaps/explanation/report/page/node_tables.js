// The data of the drawings as tables, for screen readers and for copying.

const MAX_ROWS = 400;

function nodeTable(graphs, state) {
  const { graph, iteration } = state;
  const J = graphs.levels[0].capsules, n = graphs.sizeOf(graph);
  const tops = graphs.tops(graph, 0, iteration), scores = graphs.nodes(graph, "score");
  const scale = graphs.columns.score_scale[graph];
  const labelled = Boolean(graphs.columns.label), hasWeights = graphs.weights(graph, 0, 0, iteration) !== null;
  const names = Array.from({ length: hasWeights ? J : 0 }, (_, j) => make("th", { scope: "col", class: "number" }, String(j + 1)));
  const head = make("tr", {}, [
    make("th", { scope: "col", class: "number" }, "node"), labelled ? make("th", { scope: "col" }, "label") : null,
    make("th", { scope: "col", class: "number" }, "capsule"), make("th", { scope: "col", class: "number" }, "score"), ...names,
  ]);
  const rows = [];
  for (let node = 0; node < Math.min(n, MAX_ROWS); node += 1) {
    const weights = hasWeights ? Array.from(graphs.weights(graph, 0, node, iteration)) : [];
    const cells = weights.map((weight) => {
      const cell = make("td", { class: "number heat" }, String(Math.round(100 * weight)));
      cell.style.setProperty("--share", `${Math.round(100 * weight)}%`);
      return cell;
    });
    rows.push(make("tr", {}, [
      make("th", { scope: "row", class: "number" }, String(graphs.nodeNumber(graph, node))),
      labelled ? make("td", {}, graphs.labelOf(graph, node)) : null,
      make("td", { class: "number" }, tops ? String(tops[node] + 1) : "–"),
      make("td", { class: "number" }, ((scale * scores[node]) / 127).toPrecision(2)),
      ...cells,
    ]));
  }
  const cut = n > MAX_ROWS ? ` The first ${MAX_ROWS} of ${n} nodes.` : "";
  const caption = `Nodes: capsule, score, and routing coefficients to each capsule in percent, iteration ${iteration + 1}.${cut}`;
  return make("div", { class: "scroll tall", tabindex: 0, role: "region", "aria-label": "Table of nodes" },
    make("table", { class: "heat-map" }, [make("caption", {}, caption), make("thead", {}, head), make("tbody", {}, rows)]));
}

// The output capsule that a capsule contributes most to, and its contribution.
function largestContribution(graphs, graph, level, part) {
  const row = graphs.contributions(graph, level)[part];
  const to = row.reduce((best, value, j) => (value > row[best] ? j : best), 0);
  return [to, row[to]];
}

function capsuleTable(graphs, state) {
  const { graph, iteration } = state, rows = [];
  graphs.levels.slice(0, -1).forEach(({ capsules }, level) => {
    const shares = graphs.shares(graph, level, iteration), lengths = graphs.lengthsOf(graph, level);
    const counts = countTops(graphs.path(graph, level, iteration), capsules);
    const above = graphs.levels[level + 1].capsules;
    for (let j = 0; j < capsules; j += 1) {
      const weights = graphs.weights(graph, level + 1, j, iteration);
      const tops = graphs.tops(graph, level + 1, iteration);
      const most = tops ? tops[j] : 0;
      const isClass = level + 1 === graphs.classLevel;
      const next = iteration === 0 ? `all ${above} equally` : `${isClass ? graphs.className(most) : `capsule ${most + 1}`}, ${percent(weights[most])}`;
      const first = graphs.levels.length > 2 ? `level ${level + 1}, ${j + 1}` : String(j + 1);
      const [to, added] = largestContribution(graphs, graph, level + 1, j);
      const contributed = `${isClass ? graphs.className(to) : `capsule ${to + 1}`}, ${added < 0 ? "−" : ""}${Math.abs(added).toFixed(3)}`;
      rows.push([first, iteration === 0 ? "–" : String(counts[j]), percent(shares[j]), lengths[j].toFixed(2), next, contributed]);
    }
  });
  const note = `Capsules, iteration ${iteration + 1}. A capsule belongs to the one that gets more of it than of an average capsule; the routing coefficient says how much. The contribution says what it adds.`;
  return table(note, ["capsule", "nodes", "share", "final length", "belongs to, routing coefficient", "largest contribution"], rows, { numeric: [1, 2, 3] });
}

function edgeTable(graphs, state) {
  const { graph } = state;
  const a = graphs.edges(graph, "edge_a"), b = graphs.edges(graph, "edge_b");
  const scores = graphs.edges(graph, "edge_score"), errors = graphs.edges(graph, "edge_error");
  const scale = graphs.columns.edge_scale[graph];
  const rows = [];
  for (let e = 0; e < Math.min(a.length, MAX_ROWS); e += 1) {
    const row = [`${graphs.nodeNumber(graph, a[e])} – ${graphs.nodeNumber(graph, b[e])}`, ((scale * scores[e]) / 127).toPrecision(2)];
    if (errors) row.push(percent(errors[e] / 255));
    rows.push(row);
  }
  const cut = a.length > MAX_ROWS ? ` The first ${MAX_ROWS} of ${a.length} edges.` : "";
  const head = ["edge", "score", ...(errors ? ["reconstruction error"] : [])];
  return table(`Edges: score${errors ? " and reconstruction error" : ""}.${cut}`, head, rows, { numeric: [1, 2] });
}

// Tables are built when they are opened and rebuilt when their data change.
class Tables {
  constructor(graphs, state) {
    this.state = state;
    this.parts = [["Capsules as a table", capsuleTable], ["Nodes as a table", nodeTable], ["Edges as a table", edgeTable]].map(([title, build]) => {
      const body = make("div");
      const details = make("details", { ontoggle: () => this.refresh() }, [make("summary", {}, title), body]);
      return { details, body, build: () => build(graphs, this.state) };
    });
    clear(byId("alternatives"), this.parts.map((part) => part.details));
  }

  refresh() {
    for (const { details, body, build } of this.parts) {
      if (details.open && this.state.graph >= 0) clear(body, build());
    }
  }
}
