// Parts of parts: the capsules of the highest level, in each those of the level below, down to the nodes.

const MAX_LISTED_NODES = 60;

// Capsules of a level that have nodes and lead to a capsule above; all with nodes at the highest level.
function childrenOf(graphs, state, level, parent) {
  const path = graphs.path(state.graph, level, state.iteration);
  const counts = countTops(path, graphs.levels[level].capsules);
  const tops = parent === null ? null : graphs.tops(state.graph, level + 1, state.iteration);
  return counts.map((count, j) => [j, count]).filter(([j, count]) => count && (!tops || tops[j] === parent));
}

// Name of a node in lists: the element of an atom, and its number.
function nodeName(graphs, graph, node) {
  const label = graphs.columns.atom ? graphs.labelOf(graph, node) : null;
  return `${label ?? ""}${graphs.nodeNumber(graph, node)}`;
}

function nodeList(graphs, state, capsule) {
  const tops = graphs.tops(state.graph, 0, state.iteration), names = [];
  tops.forEach((top, node) => { if (top === capsule) names.push(nodeName(graphs, state.graph, node)); });
  const more = names.length > MAX_LISTED_NODES ? ` … ${names.length - MAX_LISTED_NODES} more` : "";
  return make("p", { class: "tree-nodes" }, `${graphs.columns.atom ? "Atoms" : "Nodes"} ${names.slice(0, MAX_LISTED_NODES).join(", ")}${more}`);
}

function treeEntry(graphs, state, level, [capsule, count], options) {
  const light = () => options.light({ level, capsule }), dim = () => options.light(null);
  const badge = make("span", { class: "badge" }, String(capsule + 1));
  badge.style.backgroundColor = colourOf(capsule);
  badge.style.color = inkOn(colourOf(capsule));
  const [to, added] = largestContribution(graphs, state.graph, level + 1, capsule);
  const above = level + 1 === graphs.classLevel ? graphs.className(to) : `capsule ${to + 1}`;
  const children = level ? childrenOf(graphs, state, level - 1, capsule) : [];
  const parts = level ? `, ${plural(children.length, "part")}` : "";
  const words = `Capsule ${capsule + 1} of level ${level + 1}: ${plural(count, "node")}${parts}; adds ${added < 0 ? "−" : ""}${Math.abs(added).toFixed(2)} to ${above}`;
  const body = make("div", { class: "tree-body" });
  const details = make("details", {
    "data-tree": `${level}-${capsule}`,
    ontoggle: (event) => {
      if (event.target !== details || !details.open || body.childElementCount) return;
      if (!level) { clear(body, nodeList(graphs, state, capsule)); return; }
      const numbers = children.map(([j]) => j);
      clear(
        body,
        numbers.length > 1 ? coarseView(graphs, state, level - 1, options.light, options.layoutOf, numbers) : null,
        make("ul", {}, children.map((child) => make("li", {}, treeEntry(graphs, state, level - 1, child, options)))),
      );
    },
  }, [
    make("summary", { onpointerenter: light, onpointerleave: dim, onfocus: light, onblur: dim }, [badge, make("span", {}, words)]),
    body,
  ]);
  return details;
}

// The tree of one graph; entries are built when they are opened.
function treeView(graphs, state, options) {
  if (!graphs.path(state.graph, 0, state.iteration)) {
    return make("p", { class: "hint" }, "With equal coefficients no node belongs to a capsule more than to another.");
  }
  const level = graphs.classLevel - 1;
  const entries = childrenOf(graphs, state, level, null).sort(([, a], [, b]) => b - a);
  return make("ul", { class: "tree" }, entries.map((entry) => make("li", {}, treeEntry(graphs, state, level, entry, options))));
}
