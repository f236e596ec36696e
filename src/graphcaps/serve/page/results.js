// What the server said: classes in words and numbers, and below them the report's explorer.

class Shown extends Explorer {
  constructor(graphs) {
    super(graphs);
    // Atoms are known by their element; the colour says the capsule.
    if (graphs.meta.molecules) byId("tools").querySelector('input[name="names"][value="label"]')?.click();
  }

  open(graph) {
    super.open(graph);
    const number = this.graphs.columns.number[graph] + 1, name = this.graphs.meta.names[graph];
    byId("graph-title").textContent = name === String(number) ? `Graph ${number}` : name;
  }

  sentence() {
    return super.sentence().replace("Its own class is not known. ", "");
  }
}

function className(name) {
  return /^-?\d+$/.test(name) ? `class ${name.replace("-", "−")}` : name;
}

function fact(name, value, words = null) {
  return make("div", { class: "fact" }, [make("dt", {}, name), make("dd", {}, value), words ? make("dd", { class: "fact-note" }, words) : null]);
}

function factsOf({ classes, predictions }) {
  const found = predictions.filter((row) => row.error === null);
  if (predictions.length === 1) {
    const [row] = found;
    const rest = classes.filter((name) => name !== row.class).map((name) => [row.probabilities[name], name]).sort(([a], [b]) => b - a);
    const next = rest.length ? `then ${className(rest[0][1])}, ${percent(rest[0][0])}` : null;
    return [fact("Class", className(row.class)), fact("Probability", percent(row.probability), next)];
  }
  const counts = classes.map((name) => [found.filter((row) => row.class === name).length, name]).filter(([count]) => count).sort(([a], [b]) => b - a);
  return counts.slice(0, 6).map(([count, name]) => fact(className(name), plural(count, "graph")));
}

function failedList(predictions) {
  const failed = predictions.filter((row) => row.error !== null);
  if (!failed.length) return null;
  const rows = failed.slice(0, 20).map((row) => make("li", {}, [make("strong", {}, `Graph ${row.graph} (${row.name}): `), `${row.error}.`]));
  const more = failed.length > 20 ? make("li", {}, `… and ${failed.length - 20} more.`) : null;
  return make("div", { class: "failed" }, [make("h3", {}, `${plural(failed.length, "graph")} could not be read`), make("ul", {}, [...rows, more])]);
}

function unlikeNote(predictions) {
  const strange = predictions.filter((row) => row.out_of_distribution);
  if (!strange.length) return null;
  const words = predictions.length === 1 ? `This graph is out of distribution: ${strange[0].out_of_distribution}.` : `${plural(strange.length, "graph")} out of distribution. Graph ${strange[0].graph}: ${strange[0].out_of_distribution}.`;
  return make("p", { class: "note" }, `${words} Trust the class less.`);
}

function classTable({ classes, predictions }) {
  const few = classes.slice(0, 6);
  const rows = predictions.map((row) => [String(row.graph), row.name, row.class === null ? "–" : className(row.class), ...few.map((name) => (row.probabilities ? percent(row.probabilities[name], 1) : "–"))]);
  return table("Probability of each class", ["graph", "name", "class", ...few.map(className)], rows, { numeric: few.map((_, place) => place + 3) });
}

async function showResults(told) {
  const { predictions } = told;
  clear(byId("facts"), factsOf(told));
  const many = predictions.length > 1;
  clear(byId("notes"), failedList(predictions), unlikeNote(predictions));
  const stage = byId("stage");
  stage.classList.toggle("alone", !many);
  byId("results").hidden = false;
  if (told.block) {
    byId("data").textContent = told.block;
    const graphs = await readData();
    byId("data").textContent = "";
    clear(stage, byId("explorer").content.cloneNode(true));
    globalThis.graphcaps = { graphs, explorer: new Shown(graphs) };
    if (many) stage.append(make("details", {}, [make("summary", {}, "All probabilities as a table"), classTable(told)]));
  } else clear(stage, make("div", { class: "plain-table" }, classTable(told)));
  return plural(predictions.length, "graph");
}
