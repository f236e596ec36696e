// Counterfactuals of a graph: the smallest groups whose removal or replacement changes the class.

function counterfactualText(graphs, graph, change) {
  const names = change.nodes.map((node) => nodeName(graphs, graph, node));
  const listed = names.slice(0, 12).join(", ") + (names.length > 12 ? `, … (${names.length} in all)` : "");
  const noun = graphs.columns.atom ? "atom" : "node";
  const what = change.kind === "removal" ? "Without" : `With ${change.replaced_by} in place of`;
  const levels = graphs.levels.length > 2;
  const capsules = change.groups.map(([level, capsule]) => `capsule ${capsule + 1}${levels ? ` of level ${level}` : ""}`).join(" and ");
  return `${what} ${noun}${names.length === 1 ? "" : "s"} ${listed} (${change.whole ? "" : "in "}${capsules})`;
}

// `light` highlights a set of nodes, or none.
function counterfactualsCard(graphs, state, light) {
  const entry = graphs.meta.counterfactuals?.[state.graph];
  if (!entry) return null;
  const items = entry.found.map((change) => {
    const on = () => light(new Set(change.nodes)), off = () => light(null);
    return make("li", {}, make("button", { type: "button", class: "change", onpointerenter: on, onpointerleave: off, onfocus: on, onblur: off }, [
      make("strong", {}, `${graphs.className(change.predicted)}, ${percent(change.probability)}`),
      make("span", {}, counterfactualText(graphs, state.graph, change)),
      change.smiles ? make("span", { class: "smiles" }, change.smiles) : null,
    ]));
  });
  return card("Counterfactuals", entry.sentence, items.length ? make("ul", { class: "changes" }, items) : null);
}
