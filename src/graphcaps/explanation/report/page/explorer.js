// The explorer: holds the state and redraws what depends on a changed part of it.

const LARGE = 1500; // nodes above which the capsules are drawn first

class Explorer {
  constructor(graphs) {
    this.graphs = graphs;
    this.state = { graph: -1, iteration: graphs.iterations - 1, level: 0, colour: "capsule", names: graphs.columns.atom ? "atom" : "capsule", faded: false, pinned: null };
    this.view = new GraphView(graphs, { onNode: (node) => this.overNode(node) });
    this.list = new GraphList(graphs, {
      onChoose: (graph) => this.open(graph), onOpen: () => byId("graph-title").focus(), onClear: () => this.filters.reset(),
    });
    this.tools = new Tools(graphs, this.state, (key) => this.changed(key));
    this.chips = new Chips(graphs, this.state, (lit) => this.light(lit));
    this.tables = new Tables(graphs, this.state);
    this.filters = new Filters(graphs, (criteria) => this.filter(criteria));
    this.filter(NO_FILTER);
    const requested = Number.parseInt(location.hash.replace("#graph-", ""), 10) - 1;
    const at = this.list.shown.findIndex((graph) => graphs.columns.number[graph] === requested);
    this.list.choose(Math.max(0, at));
  }

  filter(criteria) {
    const began = performance.now();
    const shown = selectGraphs(this.graphs, criteria);
    this.list.show(shown, this.state.graph);
    const all = this.graphs.count;
    byId("count").textContent = shown.length === all ? plural(all, "graph") : `${shown.length.toLocaleString("en")} of ${plural(all, "graph")}`;
    this.filterTime = performance.now() - began;
  }

  open(graph) {
    const { state, graphs } = this;
    const began = performance.now();
    state.graph = graph;
    state.pinned = null;
    const number = graphs.columns.number[graph] + 1, smiles = graphs.smilesOf(graph);
    byId("graph-title").textContent = graphs.nameOf(graph);
    byId("smiles").textContent = smiles === graphs.idOf(graph) ? "" : smiles ?? "";
    byId("smiles").hidden = !byId("smiles").textContent;
    byId("summary").textContent = this.sentence();
    byId("hint").textContent = "";
    history.replaceState(null, "", `#graph-${number}`);
    this.render();
    this.openTime = performance.now() - began;
  }

  sentence() {
    const { graphs, state } = this, { columns } = graphs, { graph } = state;
    const predicted = graphs.className(columns.predicted[graph]), trueClass = columns.true_class[graph];
    const correct = graphs.isRight(graph);
    const verdict = correct === null ? "The true class is unknown." : correct ? "This is correct." : `The true class is ${graphs.className(trueClass)}.`;
    const tops = graphs.tops(graph, 0, graphs.iterations - 1);
    const weight = this.meanWeight(), all = plural(graphs.levels[0].capsules, "capsule");
    const routing = tops
      ? `Its nodes are assigned to ${new Set(tops).size} of ${all}${weight === null ? "" : `, with a mean coefficient of ${percent(weight)}`}.${columns.nearly_uniform[graph] ? " All of them have nearly the same coefficients: read scores rather than capsules." : ""}`
      : `With one routing iteration the coefficients to all ${all} are equal.`;
    const uses = { test: " It was a test graph.", new: "", validation: " It was a validation graph.", training: " It trained the model.", "left-out": " Training left it out, since copies have different labels." };
    const use = uses[graphs.partOf(graph)] ?? "";
    const number = graphs.idOf(graph) === null ? "" : `Graph ${columns.number[graph] + 1}. `;
    const cut = graphs.columns.node_number ? " Only the nodes within the model’s node limit are shown." : "";
    const members = graphs.meta.members ?? 1, agreement = columns.agreement?.[graph];
    const nodes = agreement >= -1 ? `, and the rank correlation of their node scores is ${agreement.toFixed(2)}` : "";
    const committee = members > 1 ? ` ${columns.agreeing[graph]} of ${members} members predict this class${nodes}.` : "";
    const share = columns.network_share?.[graph], beside = (graphs.meta.parts ?? []).slice(1).join(" and ");
    const companion = share >= 0 ? ` The network contributes ${percent(share)} of this probability, ${beside} the rest; scores and capsules are of the network.` : "";
    return `${number}${plural(graphs.sizeOf(graph), "node")}, ${plural(graphs.edges(graph, "edge_a").length, "edge")}. Predicted: ${predicted}, probability ${percent(columns.confidence[graph])}. ${verdict}${use}${committee}${companion} ${routing}${cut}`;
  }

  // Mean over nodes of the routing coefficient to the capsule that they belong to.
  meanWeight() {
    const { graphs, state: { graph } } = this, n = graphs.sizeOf(graph);
    const tops = graphs.tops(graph, 0, graphs.iterations - 1);
    let sum = 0;
    for (let node = 0; node < n; node += 1) {
      const weights = graphs.weights(graph, 0, node, graphs.iterations - 1);
      if (!weights || !tops) return null;
      sum += weights[tops[node]];
    }
    return sum / n;
  }

  changed(key) {
    if (this.state.graph < 0) return;
    // The ends of bonds depend on the text of their atoms, and abbreviated labels have a legend.
    const isPainted = (key === "names" && !this.view.molecule && !labelNote(this.graphs)) || key === "faded";
    if (this.view.nodes.length && isPainted) this.view.paint(this.state);
    else this.render();
    if (key === "iteration") byId("hint").textContent = this.state.iteration === 0 ? "In the first iteration all routing coefficients are equal." : "";
  }

  render() {
    const { graphs, state } = this;
    const lit = (capsule) => this.light(capsule);
    const titles = { capsule: "Nodes, coloured by capsule", score: "Nodes and edges, coloured by score", label: "Nodes, coloured by label", planted: `Nodes, coloured by ${graphs.meta.planted?.title.toLowerCase()}` };
    const hidden = graphs.levels.slice(0, -1), n = graphs.sizeOf(state.graph);
    const isLarge = n > LARGE && this.drawn !== state.graph;
    if (isLarge) this.view.nodes = [];
    const layoutOf = n > LARGE ? null : (graph) => this.view.layoutOf(graph);
    const coarse = (level) => coarseView(graphs, state, level, lit, layoutOf);
    const left = [
      isLarge ? this.largeCard(coarse(hidden.length - 1)) : card(titles[state.colour], state.names === "label" ? labelNote(graphs) : null, this.view.draw(state)),
      hidden.length > 1 ? card("Parts of parts", "Open a capsule to see the capsules of the level below that lead to it, and at last its nodes.", treeView(graphs, state, { light: lit, layoutOf })) : null,
      counterfactualsCard(graphs, state, (nodes) => this.lightNodes(nodes)),
      card("From nodes to classes", "Contributions of capsules to the class scores; those to a class add up to its length.", ...flowCard(graphs, state, lit)),
    ];
    const right = [
      ...hidden.map((_, level) =>
        card(hidden.length > 1 ? `Coarse graph of level ${level + 1}` : "Coarse graph", "Size: share of the graph. Lines: coarse adjacency.", coarse(level))),
      card("Class capsules", "Length and probability.", classBars(graphs, state, lit)),
      card(`Scores for ${graphs.className(graphs.columns.target[state.graph])}`, "Sum of the node scores of each capsule: what differs from a reference node. Contributions count everything, so their sign may differ.", scoreBars(graphs, state, lit), sideLegend()),
    ];
    clear(byId("panels"), make("div", { class: "stack" }, left.filter(Boolean)), make("div", { class: "stack" }, right));
    this.chips.show();
    this.tables.refresh();
    if (state.pinned) this.light(state.pinned);
  }

  // The first view of a graph with many nodes: its capsules, and a button for all nodes.
  largeCard(drawing) {
    const n = this.graphs.sizeOf(this.state.graph);
    const button = make("button", { type: "button", id: "draw-all", onclick: () => {
      this.drawn = this.state.graph;
      this.render();
      byId("graph-title").focus();
    } }, `Draw all ${plural(n, "node")}`);
    return card("Capsules", `The graph has ${plural(n, "node")}; its capsules stand for them.`, drawing, button);
  }

  lightNodes(nodes) {
    if (nodes) this.view.lightNodes(nodes);
    else this.light(null);
  }

  // Opens a graph that may be outside the current filters.
  goTo(graph) {
    if (!this.list.shown.includes(graph)) this.filters.reset();
    this.list.choose(this.list.shown.indexOf(graph));
    byId("graph-title").focus();
  }

  // Highlights the nodes of a capsule; without one, those of the pinned capsule, if any.
  light(lit) {
    const { state } = this;
    const target = lit ?? state.pinned;
    const drawn = this.view.light(state, target);
    const count = target && !this.view.nodes.length ? countTops(this.graphs.path(state.graph, target.level, state.iteration), this.graphs.levels[target.level].capsules)[target.capsule] : drawn;
    for (const element of byId("panels").querySelectorAll("[data-capsule]")) {
      const same = target && Number(element.dataset.level) === target.level && Number(element.dataset.capsule) === target.capsule;
      element.classList.toggle("lit", Boolean(same));
    }
    for (const svg of byId("panels").querySelectorAll("svg.coarse, svg.flow")) {
      svg.classList.toggle("some-lit", svg.querySelector(".lit") !== null);
    }
    if (target && state.iteration > 0) byId("hint").textContent = this.describe(target, count);
    else if (state.iteration > 0) byId("hint").textContent = "";
  }

  describe({ level, capsule }, count) {
    const isClass = level === this.graphs.classLevel;
    const name = isClass ? `Class capsule of ${this.graphs.className(capsule)}` : `Capsule ${capsule + 1}${level ? ` of level ${level + 1}` : ""}`;
    const length = this.graphs.lengthsOf(this.state.graph, level)[capsule].toFixed(2);
    return `${name}: ${plural(count, "node")}, length ${length}.`;
  }

  overNode(node) {
    const { graphs, state } = this;
    for (const chip of byId("chips").querySelectorAll(".over")) chip.classList.remove("over");
    if (node === null) { byId("hint").textContent = ""; return; }
    const label = graphs.labelOf(state.graph, node);
    const tops = graphs.tops(state.graph, 0, state.iteration);
    const weights = tops ? graphs.weights(state.graph, 0, node, state.iteration) : null;
    const part = tops ? `capsule ${tops[node] + 1}${weights ? `, coefficient ${percent(weights[tops[node]])}` : ""}` : "equal coefficients to all capsules";
    const score = (graphs.columns.score_scale[state.graph] * graphs.nodes(state.graph, "score")[node]) / 127;
    byId("hint").textContent = `Node ${graphs.nodeNumber(state.graph, node)}${label === null ? "" : ` (${label})`}: ${part}; score ${score.toPrecision(2)}.`;
    const branch = graphs.path(state.graph, state.level, state.iteration);
    if (branch && state.colour === "capsule") byId("chips").querySelector(`[data-capsule="${branch[node]}"]`)?.classList.add("over");
  }
}
