// A virtual list: only the visible rows exist in the document.

const ROW = 46;
const OVERSCAN = 6;

class GraphList {
  constructor(graphs, { onChoose, onOpen, onClear }) {
    this.graphs = graphs;
    this.onChoose = onChoose;
    this.onOpen = onOpen;
    this.onClear = onClear;
    this.shown = [];
    this.at = -1;
    this.box = byId("list");
    this.space = make("div", { class: "space", role: "presentation" });
    this.box.append(this.space);
    this.box.addEventListener("scroll", () => this.render(), { passive: true });
    this.box.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.render()).observe(this.box);
  }

  // Shows these graphs; the selected graph stays selected if it is among them.
  show(shown, chosen) {
    this.shown = shown;
    this.at = shown.indexOf(chosen);
    this.space.style.height = `${Math.max(1, shown.length) * ROW}px`;
    this.box.classList.toggle("empty", shown.length === 0);
    this.reveal();
    this.render();
  }

  reveal() {
    if (this.at < 0) return;
    const top = this.at * ROW, height = this.box.clientHeight;
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    else if (top + ROW > this.box.scrollTop + height) this.box.scrollTop = top + ROW - height;
  }

  render() {
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW) - OVERSCAN);
    const last = Math.min(this.shown.length, Math.ceil((this.box.scrollTop + this.box.clientHeight) / ROW) + OVERSCAN);
    const rows = [];
    for (let at = first; at < last; at += 1) rows.push(this.row(at));
    if (!this.shown.length) rows.push(this.nothing());
    clear(this.space, rows);
    const active = this.at >= first && this.at < last ? `row-${this.at}` : null;
    if (active) this.box.setAttribute("aria-activedescendant", active);
    else this.box.removeAttribute("aria-activedescendant");
  }

  row(at) {
    const graph = this.shown[at], { columns } = this.graphs;
    const name = this.graphs.className(columns.predicted[graph]);
    const right = this.graphs.isRight(graph);
    const verdict = right === null ? "true class unknown" : right ? "correct" : "wrong";
    const confidence = percent(columns.confidence[graph]);
    const number = columns.number[graph] + 1, id = this.graphs.idOf(graph);
    const size = plural(this.graphs.sizeOf(graph), "node");
    const row = make(
      "div",
      {
        class: `row ${right === null ? "" : right ? "right" : "wrong"}`,
        role: "option",
        id: `row-${at}`,
        "aria-selected": at === this.at ? "true" : "false",
        "aria-setsize": this.shown.length,
        "aria-posinset": at + 1,
        "data-graph": graph,
        onclick: () => { this.choose(at); this.box.focus({ preventScroll: true }); },
      },
      [
        make("span", { class: id === null ? "row-number" : "row-number named", title: id }, [spoken(id === null ? "Graph " : ""), id ?? String(number)]),
        make("span", { class: "row-text" }, [make("span", { class: "row-class" }, [spoken(", predicted "), name]), make("small", {}, [spoken(", "), size])]),
        make("span", { class: "row-sure" }, [spoken(", "), confidence]),
        make("span", { class: "row-mark" }, [spoken(`, ${verdict}`), make("span", { "aria-hidden": "true" }, right === null ? "" : right ? "✓" : "✗")]),
      ],
    );
    row.style.top = `${at * ROW}px`;
    return row;
  }

  nothing() {
    return make("div", { class: "nothing" }, [
      make("p", {}, "No graph matches these filters."),
      make("button", { type: "button", onclick: this.onClear }, "Clear filters"),
    ]);
  }

  choose(at) {
    if (!this.shown.length) return;
    this.at = Math.max(0, Math.min(this.shown.length - 1, at));
    this.reveal();
    this.render();
    this.onChoose(this.shown[this.at]);
  }

  key(event) {
    if (event.target !== this.box || event.altKey || event.ctrlKey || event.metaKey) return;
    const page = Math.max(1, Math.floor(this.box.clientHeight / ROW) - 1);
    const to = {
      ArrowDown: this.at + 1, ArrowUp: this.at < 0 ? 0 : this.at - 1, PageDown: this.at + page,
      PageUp: this.at - page, Home: 0, End: this.shown.length - 1,
    }[event.key];
    if (to !== undefined) { event.preventDefault(); this.choose(to); }
    else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      if (this.at < 0) this.choose(0);
      if (this.shown.length) this.onOpen();
    }
  }
}
