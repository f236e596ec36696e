// The filter form above the list.

function field(label, control) {
  return make("label", { class: "field" }, [make("span", {}, label), control]);
}

function choice(name, options, change) {
  return make("select", { name, onchange: change }, options.map(([value, text]) => make("option", { value }, text)));
}

// A group of buttons with one selected, built from radio buttons for keyboard and screen readers.
function segments(legend, name, options, chosen, change) {
  const buttons = options.map(([value, text]) =>
    make("label", { class: "segment" }, [
      make("input", { type: "radio", name, value, checked: value === chosen, onchange: () => change(value) }),
      make("span", {}, text),
    ]),
  );
  return make("fieldset", { class: "segments" }, [
    make("legend", {}, legend), make("div", { class: "segment-row" }, buttons),
  ]);
}

class Filters {
  constructor(graphs, change) {
    this.graphs = graphs;
    this.change = change;
    this.form = byId("filters");
    this.labelled = graphs.columns.true_class.some((value) => value >= 0);
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.build();
  }

  build() {
    const classes = this.graphs.meta.classes.map((_, index) => [index, this.graphs.className(index)]);
    const change = () => this.changed();
    const bound = (name, value, label) =>
      make("input", { type: "number", name, value, min: 0, max: 100, step: 1, "aria-label": label, oninput: change });
    const words = this.graphs.meta.smiles ? "Number, id or SMILES" : this.graphs.meta.ids ? "Number or id" : "Number";
    clear(
      this.form,
      field("Find", make("input", { type: "search", name: "find", placeholder: words, oninput: change, autocomplete: "off" })),
      this.labelled
        ? segments("Outcome", "outcome", [["all", "All"], ["right", "Correct"], ["wrong", "Wrong"]], "all", change)
        : null,
      this.labelled ? field("True class", choice("trueClass", [[-1, "Any"], ...classes], change)) : null,
      field("Predicted class", choice("predicted", [[-1, "Any"], ...classes], change)),
      this.graphs.columns.part ? field("Used in", choice("part", [["", "Any"], ...this.parts()], change)) : null,
      make("div", { class: "field", role: "group", "aria-label": "Confidence in percent" }, [
        make("span", {}, "Confidence, %"),
        make("span", { class: "between" }, [
          bound("low", 0, "Minimum confidence in percent"), "to", bound("high", 100, "Maximum confidence in percent"),
        ]),
      ]),
      field("Order", choice("order", Object.entries(ORDERS).map(([key, { name }]) => [key, name]), change)),
    );
  }

  // The parts of the training data that the graphs are of.
  parts() {
    const names = { test: "Test", new: "None: new graphs", validation: "Validation", training: "Training", "left-out": "Left out" };
    const used = new Set(this.graphs.columns.part);
    return PARTS.filter((_, code) => used.has(code)).map((name) => [name, names[name]]);
  }

  get criteria() {
    const entry = new FormData(this.form);
    const number = (name, other) => {
      const value = Number.parseFloat(entry.get(name) ?? "");
      return Number.isFinite(value) ? value : other;
    };
    return {
      trueClass: number("trueClass", -1),
      predicted: number("predicted", -1),
      part: entry.get("part") ?? "",
      find: entry.get("find") ?? "",
      outcome: entry.get("outcome") ?? "all",
      low: number("low", 0),
      high: number("high", 100),
      order: entry.get("order") ?? "number",
    };
  }

  changed() {
    this.change(this.criteria);
  }

  reset() {
    this.form.reset();
    this.changed();
  }
}
