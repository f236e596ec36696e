// Capsules over all graphs: how often each is used, for which classes, and its typical groups.

const GROUP = { width: 200, height: 130, margin: 24 };
const MAX_CLASS_BARS = 6;
const MAX_CARDS = 6; // at first

// A small drawing of a group of nodes of one graph, with stubs of the edges to the rest.
function groupPicture(graphs, graph, nodes, colour, label) {
  const place = new Map(nodes.map((node, i) => [node, i]));
  const a = graphs.edges(graph, "edge_a"), b = graphs.edges(graph, "edge_b"), orders = graphs.edges(graph, "bond");
  const inside = [], cut = [];
  for (let e = 0; e < a.length; e += 1) {
    const ends = place.has(a[e]) + place.has(b[e]);
    if (ends === 2) inside.push(e);
    else if (ends === 1) cut.push(e);
  }
  const atoms = atomPositions(graphs, graph);
  const own = atoms
    ? { x: Float64Array.from(nodes, (node) => atoms.x[node]), y: Float64Array.from(nodes, (node) => atoms.y[node]) }
    : layout(nodes.length, inside.map((e) => place.get(a[e])), inside.map((e) => place.get(b[e])));
  const { x, y, scale } = fit(own, GROUP.width, GROUP.height, GROUP.margin, atoms ? 46 : 40);
  const radius = Math.max(3, Math.min(13, scale * (atoms ? 0.3 : 0.34)));
  const lines = [];
  const names = nodes.map((node) => (atoms ? atomSymbol(graphs, graph, node) || (nodes.length === 1 ? "C" : "") : graphs.labelTextOf(graph, node)));
  if (atoms) {
    const lists = neighbourLists(nodes.length, inside.map((e) => place.get(a[e])), inside.map((e) => place.get(b[e])));
    for (const e of inside) {
      const i = place.get(a[e]), k = place.get(b[e]), length = Math.hypot(x[k] - x[i], y[k] - y[i]) || 1;
      const ux = (x[k] - x[i]) / length, uy = (y[k] - y[i]) / length, from = names[i] ? radius * 0.8 : 0, to = names[k] ? radius * 0.8 : 0;
      lines.push(...bondLines(orders[e], [x[i] + ux * from, y[i] + uy * from], [x[k] - ux * to, y[k] - uy * to], sideOf(lists, i, k, x, y), BOND_GAP * scale));
    }
    for (const e of cut) {
      const [here, there] = place.has(a[e]) ? [a[e], b[e]] : [b[e], a[e]], i = place.get(here);
      const dx = (atoms.x[there] - atoms.x[here]) * scale * 0.55, dy = (atoms.y[there] - atoms.y[here]) * scale * 0.55;
      lines.push(draw("path", { d: `M${x[i].toFixed(1)} ${y[i].toFixed(1)}l${dx.toFixed(1)} ${dy.toFixed(1)}`, class: "bond cut" }));
    }
  } else {
    for (const e of inside) {
      const i = place.get(a[e]), k = place.get(b[e]);
      lines.push(draw("path", { d: `M${x[i].toFixed(1)} ${y[i].toFixed(1)}L${x[k].toFixed(1)} ${y[k].toFixed(1)}`, class: "edge" }));
    }
  }
  const discs = nodes.map((node, i) => {
    const label = graphs.labelOf(graph, node), circle = draw("circle", { cx: x[i].toFixed(1), cy: y[i].toFixed(1), r: radius, fill: colour });
    return draw("g", { class: "node" }, [circle, label === null ? null : draw("title", {}, label)]);
  });
  const texts = nodes.map((_, i) => {
    const size = atoms ? Math.max(8, radius * 1.05) : textSize(names[i], radius, 8);
    if (!names[i] || radius < 5 || !size) return null;
    const text = draw("text", { x: x[i], y: y[i], dy: "0.35em", class: "node-name", fill: atoms ? "var(--ink)" : inkOn(colour) }, names[i]);
    text.style.fontSize = `${size}px`;
    return text;
  }).filter(Boolean);
  const layers = atoms ? [draw("g", {}, discs), draw("g", {}, lines), draw("g", {}, texts)] : [draw("g", {}, lines), draw("g", {}, discs), draw("g", {}, texts)];
  return picture(GROUP.width, GROUP.height, label, layers, atoms ? "group atoms" : "group");
}

function groupFigure(graphs, { capsule }, group, open) {
  const title = group.name || (group.labels ? `${group.shape}: ${group.labels}` : group.shape);
  const words = `${title}: ${plural(group.count, "group")} in ${plural(group.graphs, "graph")}`;
  const image = group.example ? groupPicture(graphs, group.example[0], group.example[1], colourOf(capsule), words) : null;
  const link = group.example
    ? make("button", { type: "button", class: "link", onclick: () => open(group.example[0]) }, [spoken(`Show ${title} in `), graphs.nameOf(group.example[0])])
    : null;
  return make("figure", {}, [
    image,
    make("figcaption", {}, [
      make("strong", {}, title), make("span", {}, ` ${plural(group.count, "group")} (${percent(group.share)})`),
      group.smarts ? make("code", { class: "smarts" }, group.smarts) : null, link ? make("span", {}, ["e.g. ", link]) : null,
    ]),
  ]);
}

function capsuleCard(graphs, entry, classes, open) {
  const badge = make("span", { class: "badge" }, String(entry.capsule + 1));
  badge.style.backgroundColor = colourOf(entry.capsule);
  badge.style.color = inkOn(colourOf(entry.capsule));
  const level = graphs.levels.length > 2 ? ` of level ${entry.level}` : "";
  const purity = entry.purity === null ? "" : `, purity ${percent(entry.purity)}`;
  const truth = entry.truth_purity === null ? "" : `; ${percent(entry.truth_purity)} of its nodes are of one true kind`;
  const large = entry.large_groups ? `; ${plural(entry.large_groups, "group")} with too many nodes to be compared` : "";
  const facts = `In ${percent(entry.graph_share)} of the graphs, ${percent(entry.node_share)} of the nodes. ${plural(entry.groups, "group")} of ${plural(entry.kinds, "kind")}${purity}${truth}${large}.`;
  const shares = entry.class_shares.map((share, o) => [share, o]).filter(([share]) => share !== null);
  const shown = shares.length > MAX_CLASS_BARS ? shares.sort(([p], [q]) => q - p).slice(0, MAX_CLASS_BARS) : shares;
  const bars = shown.map(([share, o]) => {
    const bar = make("span", { class: "length" });
    bar.style.width = `${100 * share}%`;
    return make("li", {}, [make("span", { class: "class-name" }, graphs.className(o)), make("span", { class: "track", "aria-hidden": "true" }, bar), make("span", { class: "class-share" }, percent(share))]);
  });
  return make("article", { class: "card capsule-card", "data-card": `${entry.level - 1}-${entry.capsule}` }, [
    make("h3", {}, [badge, ` Capsule ${entry.capsule + 1}${level}`]),
    make("p", { class: "card-note" }, facts),
    make("h4", {}, `Graphs that use it, of each ${classes} class`),
    make("ul", { class: "class-shares" }, bars),
    make("h4", {}, "Typical groups"),
    make("div", { class: "figures" }, entry.typical.map((group) => groupFigure(graphs, entry, group, open))),
  ]);
}

// Fills the section; `open` shows a graph in the explorer.
function showCards(graphs, open) {
  const section = byId("capsules"), { cards } = graphs.meta;
  if (!section) return;
  if (!cards?.cards.length) { section.hidden = true; return; }
  const note = labelNote(graphs);
  if (note) byId("capsules-level").before(make("p", { class: "note" }, note));
  const levels = graphs.classLevel;
  const show = (level) => {
    const entries = cards.cards.filter((entry) => entry.level === level + 1);
    const used = entries.filter((entry) => entry.groups).sort((p, q) => q.graph_share - p.graph_share || p.capsule - q.capsule);
    const empty = entries.filter((entry) => !entry.groups).map((entry) => entry.capsule + 1);
    const drawn = (entries) => entries.map((entry) => capsuleCard(graphs, entry, cards.classes, open));
    const more = make("button", { type: "button", onclick: () => {
      const next = drawn(used.slice(MAX_CARDS));
      more.replaceWith(...next);
      next[0].querySelector("button, h3")?.focus();
    } }, `Show all ${plural(used.length, "capsule")}`);
    clear(byId("capsule-cards"), drawn(used.slice(0, MAX_CARDS)), used.length > MAX_CARDS ? more : null);
    byId("capsules-empty").textContent = empty.length ? `${plural(empty.length, "capsule")} without nodes: ${empty.join(", ")}.` : "";
  };
  clear(byId("capsules-level"), levels > 1 ? segments("Capsules of", "cards-level", Array.from({ length: levels }, (_, l) => [String(l), `Level ${l + 1}`]), "0", (value) => show(Number(value))) : null);
  show(0);
}
