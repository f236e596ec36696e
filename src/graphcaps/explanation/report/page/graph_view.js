// The graph drawing: nodes coloured by capsule, score, label or planted part.

const MAX_LABELLED_NODES = 220; // labels of more nodes would overlap
const MAX_SCORED_EDGES = 1500;

class GraphView {
  constructor(graphs, { onNode }) {
    this.graphs = graphs;
    this.onNode = onNode;
    this.layouts = new Map();
    this.nodes = []; // of the drawing, if there is one
  }

  layoutOf(graph) {
    if (!this.layouts.has(graph)) {
      if (this.layouts.size > 200) this.layouts.clear();
      const { graphs } = this;
      this.layouts.set(graph, atomPositions(graphs, graph) ?? layout(graphs.sizeOf(graph), graphs.edges(graph, "edge_a"), graphs.edges(graph, "edge_b")));
    }
    return this.layouts.get(graph);
  }

  draw(state) {
    const { graphs } = this, { graph } = state;
    const n = graphs.sizeOf(graph);
    const [wide, tall] = NARROW.matches ? [400, 360] : [640, 480];
    const { x, y, scale } = fit(this.layoutOf(graph), wide, tall, NARROW.matches ? 18 : 24);
    this.molecule = atomPositions(graphs, graph) !== null;
    const limit = scale * (this.molecule ? 0.3 : 0.36);
    // Nodes of large graphs are smaller, so that they do not overlap.
    this.radius = Math.max(1.8, Math.min(15, limit, 0.22 * Math.sqrt((wide * tall) / n)));
    const group = draw("g", { class: "nodes" });
    this.nodes = Array.from({ length: n }, (_, node) => this.node(node, x[node], y[node]));
    group.append(...this.nodes.map((entry) => entry.group));
    this.paint(state);
    const lines = this.molecule ? this.bondsOf(state, { x, y, scale }) : this.edgesOf(state, x, y);
    const label = `Graph ${graphs.columns.number[graph] + 1} with ${plural(n, "node")}; the tables below contain the same data.`;
    // Bonds are above the discs of their atoms; other edges end below the nodes.
    return this.molecule ? picture(wide, tall, label, [group, lines], "graph molecule") : picture(wide, tall, label, [lines, group], "graph");
  }

  edgesOf(state, x, y) {
    const { graphs } = this, { graph } = state;
    const a = graphs.edges(graph, "edge_a"), b = graphs.edges(graph, "edge_b");
    const single = state.colour === "score" && a.length <= MAX_SCORED_EDGES;
    const group = draw("g", { class: "edges" });
    const line = (e) => `M${x[a[e]].toFixed(1)} ${y[a[e]].toFixed(1)}L${x[b[e]].toFixed(1)} ${y[b[e]].toFixed(1)}`;
    if (!single) {
      let d = "";
      for (let e = 0; e < a.length; e += 1) d += line(e);
      group.append(draw("path", { d, class: "edge" }));
      return group;
    }
    const scores = graphs.edges(graph, "edge_score");
    for (let e = 0; e < a.length; e += 1) {
      const score = scores[e] / 127;
      const path = draw("path", { d: line(e), class: "edge" });
      path.style.strokeWidth = String(1.4 + 4 * Math.abs(score));
      if (Math.abs(score) > 0.04) paintScore(path, score, "stroke");
      group.append(path);
    }
    return group;
  }

  bondsOf(state, drawing) {
    const { graphs } = this, { graph } = state;
    const scores = state.colour === "score" ? graphs.edges(graph, "edge_score") : null;
    const clear = (node) => (this.nodes[node].name?.textContent ? this.radius * 0.78 : 0);
    const group = draw("g", { class: "edges" });
    group.append(...bondsOf(graphs, graph, drawing, clear, scores && ((line, e) => {
      if (Math.abs(scores[e]) > 5) paintScore(line, scores[e] / 127, line.classList.contains("solid") ? "fill" : "stroke");
    })));
    group.style.pointerEvents = "none";
    return group;
  }

  node(node, x, y) {
    const name = this.radius >= 5.5 ? draw("text", { x, y, dy: "0.35em", class: "node-name" }) : null;
    const circle = draw("circle", { cx: x.toFixed(1), cy: y.toFixed(1), r: this.radius });
    const group = draw("g", {
      class: "node", "data-node": node,
      onpointerenter: () => this.onNode(node), onpointerleave: () => this.onNode(null),
    }, [circle, name]);
    return { group, circle, name };
  }

  // Updates colour and label of every node without a new layout.
  paint(state) {
    const { graphs } = this, { graph } = state;
    const tops = graphs.path(graph, state.level, state.iteration);
    const scores = graphs.nodes(graph, "score"), labels = graphs.nodes(graph, "label");
    const planted = graphs.nodes(graph, "planted");
    this.tops = tops;
    this.nodes.forEach(({ circle, name }, node) => {
      let colour = null;
      circle.style.fill = "";
      if (state.colour === "capsule" && tops) colour = colourOf(tops[node]);
      else if (state.colour === "label") colour = colourOf(labels[node]);
      else if (state.colour === "planted" && planted[node] >= 0) colour = colourOf(planted[node]);
      else if (state.colour === "score") paintScore(circle, scores[node] / 127);
      circle.setAttribute("fill", colour ?? "var(--blank)");
      const opacity = colour && state.faded ? this.opacityOf(state, node, tops) : 1;
      if (opacity < 1) circle.style.fill = `color-mix(in oklab, ${colour} ${Math.round(100 * opacity)}%, var(--card))`;
      if (!name) return;
      const text = this.nameOf(state, node, tops, planted);
      // Symbols of atoms have an outline and may be wider than their circle.
      const size = this.molecule ? Math.max(7, this.radius * 1.05) : textSize(text, this.radius, 7);
      name.textContent = size ? text : "";
      name.style.fontSize = `${size}px`;
      name.setAttribute("fill", !this.molecule && colour && opacity > 0.55 ? inkOn(colour) : "var(--ink)");
    });
  }

  // Largest routing coefficient of a node, rescaled: 0 for uniform coefficients, 1 for a single capsule.
  opacityOf(state, node, tops) {
    const J = this.graphs.levels[0].capsules;
    const weights = this.graphs.weights(state.graph, 0, node, state.iteration);
    if (!weights || !tops || J < 2) return 1;
    return Math.max(0, (Math.max(...weights) - 1 / J) / (1 - 1 / J));
  }

  nameOf(state, node, tops, planted) {
    if (state.names === "nothing" || this.nodes.length > MAX_LABELLED_NODES) return "";
    if (state.names === "atom" && this.molecule) return atomSymbol(this.graphs, state.graph, node);
    if (state.names === "label") return this.graphs.labelTextOf(state.graph, node);
    if (state.colour === "planted") return planted[node] >= 0 ? String(planted[node] + 1) : "";
    return tops ? String(tops[node] + 1) : "";
  }

  // Highlights the nodes of a capsule and dims the others; null removes the highlight. Returns the number of nodes.
  light(state, lit) {
    const tops = lit ? this.graphs.path(state.graph, lit.level, state.iteration) : null;
    if (!tops) { this.lightNodes(null); return 0; }
    const nodes = new Set();
    tops.forEach((capsule, node) => { if (capsule === lit.capsule) nodes.add(node); });
    this.lightNodes(nodes);
    return nodes.size;
  }

  // Highlights a set of nodes; null removes the highlight.
  lightNodes(nodes) {
    const svg = this.nodes[0]?.group.ownerSVGElement;
    svg?.classList.toggle("some-lit", nodes !== null);
    this.nodes.forEach(({ group }, node) => group.classList.toggle("lit", nodes !== null && nodes.has(node)));
  }
}
