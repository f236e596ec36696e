// Controls above the drawing: node colour, node text and the routing iteration.

class Tools {
  constructor(graphs, state, change) {
    this.graphs = graphs;
    this.state = state;
    this.change = change;
    const hidden = graphs.classLevel;
    const colours = [["capsule", "Capsule"], ["score", "Score"]];
    const names = [["capsule", "Number"], ["nothing", "None"]];
    if (graphs.columns.atom) names.unshift(["atom", "Atom"]);
    if (graphs.columns.label) {
      colours.push(["label", "Label"]);
      names.splice(-1, 0, ["label", "Label"]);
    }
    if (graphs.columns.planted) colours.push(["planted", graphs.meta.planted.title]);
    const set = (key, value) => { state[key] = value; change(key); };
    clear(
      byId("tools"),
      segments("Colour by", "colour", colours, state.colour, (value) => set("colour", value)),
      segments("Node text", "names", names, state.names, (value) => set("names", value)),
      hidden > 1
        ? segments("Capsules of", "level", Array.from({ length: hidden }, (_, l) => [String(l), `Level ${l + 1}`]), "0", (value) => set("level", Number(value)))
        : null,
      this.stepper(),
      make("fieldset", {}, [
        make("legend", {}, "Coefficients"),
        make("label", { class: "tick-box" }, [
          make("input", { type: "checkbox", name: "faded", onchange: (event) => set("faded", event.target.checked) }), "Fade low ones",
        ]),
      ]),
    );
  }

  // Back button, slider and next button for the routing iteration.
  stepper() {
    const last = this.graphs.iterations - 1;
    const go = (iteration) => {
      this.state.iteration = Math.max(0, Math.min(last, iteration));
      this.showRound();
      this.change("iteration");
    };
    this.slider = make("input", {
      type: "range", min: 1, max: last + 1, step: 1, value: last + 1, id: "iteration", "aria-label": "Routing iteration",
      oninput: () => go(Number(this.slider.value) - 1),
    });
    this.back = make("button", { type: "button", id: "iteration-back", "aria-label": "Previous iteration", onclick: () => go(this.state.iteration - 1) }, "‹");
    this.on = make("button", { type: "button", id: "iteration-on", "aria-label": "Next iteration", onclick: () => go(this.state.iteration + 1) }, "›");
    this.words = make("output", { for: "iteration" });
    this.showRound();
    return make("fieldset", { class: "stepper" }, [
      make("legend", {}, "Routing iteration"), make("div", { class: "step-row" }, [this.back, this.slider, this.on, this.words]),
    ]);
  }

  showRound() {
    const { iteration } = this.state, last = this.graphs.iterations - 1;
    this.slider.value = String(iteration + 1);
    this.slider.setAttribute("aria-valuetext", `iteration ${iteration + 1} of ${last + 1}`);
    this.words.textContent = `${iteration + 1} of ${last + 1}`;
    this.back.disabled = iteration === 0;
    this.on.disabled = iteration === last;
  }
}
