// The legend: one button per capsule, which highlights its nodes; or one entry per label or planted part.

class Chips {
  constructor(graphs, state, light) {
    Object.assign(this, { graphs, state, light });
    this.box = byId("chips");
  }

  show() {
    const { colour, graph } = this.state;
    const entries = { capsule: () => this.capsules(), score: () => this.scale(), label: () => this.named("label", this.graphs.meta.labels?.names), planted: () => this.named("planted", this.graphs.meta.planted?.names) }[colour]();
    this.box.hidden = graph < 0;
    clear(this.box, entries);
  }

  capsules() {
    const { graphs, state } = this;
    const J = graphs.levels[state.level].capsules;
    const counts = countTops(graphs.path(state.graph, state.level, state.iteration), J);
    return counts.map((count, j) => {
      const capsule = { level: state.level, capsule: j };
      const text = state.iteration === 0 ? "uniform" : plural(count, "node");
      const badge = make("span", { class: "badge" }, String(j + 1));
      badge.style.backgroundColor = colourOf(j);
      badge.style.color = inkOn(colourOf(j));
      const pinned = state.pinned?.level === capsule.level && state.pinned?.capsule === j;
      return make("button", {
        type: "button", class: count || state.iteration === 0 ? "chip" : "chip none", "data-capsule": j, "aria-pressed": pinned ? "true" : "false",
        onpointerenter: () => this.light(capsule), onpointerleave: () => this.light(null),
        onfocus: () => this.light(capsule), onblur: () => this.light(null),
        onclick: () => this.pin(pinned ? null : capsule),
      }, [spoken("Capsule "), badge, spoken(": "), text, spoken(state.iteration === 0 ? " coefficients" : "")]);
    });
  }

  pin(capsule) {
    this.state.pinned = capsule;
    const focused = document.activeElement?.getAttribute("data-capsule");
    this.show();
    if (focused !== null && focused !== undefined) this.box.querySelector(`[data-capsule="${focused}"]`)?.focus();
    this.light(capsule);
  }

  scale() {
    const { columns } = this.graphs;
    return make("p", { class: "scale" }, [
      "against the class", make("span", { class: "gradient", "aria-hidden": "true" }), "for",
      make("strong", {}, this.graphs.className(columns.target[this.state.graph])),
    ]);
  }

  named(column, names) {
    const values = this.graphs.nodes(this.state.graph, column);
    const used = [...new Set(values)].sort((a, b) => a - b);
    return used.map((value) => {
      const badge = make("span", { class: "badge" }, column === "planted" && value >= 0 ? String(value + 1) : column === "label" ? this.graphs.labelTexts[value] : "");
      if (value >= 0) { badge.style.backgroundColor = colourOf(value); badge.style.color = inkOn(colourOf(value)); }
      return make("span", { class: "chip plain" }, [badge, value < 0 ? "none" : names[value]]);
    });
  }
}
