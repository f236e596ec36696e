// The response: classes and probabilities, and below them the explorer of the report.

class ResponseExplorer extends Explorer {
  sentence() {
    return super.sentence().replace("The true class is unknown. ", "");
  }
}

function className(name) {
  return /^-?\d+$/.test(name) ? `class ${name.replace("-", "−")}` : name;
}

function fact(name, value, words = null) {
  return make("div", { class: "fact" }, [make("dt", {}, name), make("dd", {}, value), words ? make("dd", { class: "fact-note" }, words) : null]);
}

function factsOf({ classes, predictions }) {
  const predicted = predictions.filter((row) => row.error === null);
  if (predictions.length === 1) {
    const [row] = predicted;
    const rest = classes.filter((name) => name !== row.class).map((name) => [row.probabilities[name], name]).sort(([a], [b]) => b - a);
    const next = rest.length ? `then ${className(rest[0][1])}, ${percent(rest[0][0])}` : null;
    return [fact("Class", className(row.class)), fact("Probability", percent(row.probability), next)];
  }
  const counts = classes.map((name) => [predicted.filter((row) => row.class === name).length, name]).filter(([count]) => count).sort(([a], [b]) => b - a);
  return counts.slice(0, 6).map(([count, name]) => fact(className(name), plural(count, "graph")));
}

function failedList(predictions) {
  const failed = predictions.filter((row) => row.error !== null);
  if (!failed.length) return null;
  const rows = failed.slice(0, 20).map((row) => make("li", {}, [make("strong", {}, `Graph ${row.graph} (${row.name}): `), `${row.error}.`]));
  const more = failed.length > 20 ? make("li", {}, `… and ${failed.length - 20} more.`) : null;
  return make("div", { class: "failed" }, [make("h3", {}, `${plural(failed.length, "graph")} could not be read`), make("ul", {}, [...rows, more])]);
}

function trainingNote(predictions) {
  const count = predictions.filter((row) => row.used_in === "training").length;
  if (!count) return null;
  const words = predictions.length === 1 ? "This graph trained the model" : `${plural(count, "graph")} of ${predictions.length} trained the model`;
  return make("p", { class: "note" }, `${words}: the prediction says nothing about new graphs.`);
}

function domainNote(predictions) {
  const outside = predictions.filter((row) => row.out_of_distribution);
  if (!outside.length) return null;
  const words = predictions.length === 1 ? `This graph is outside the applicability domain of the model: ${outside[0].out_of_distribution}.` : `${plural(outside.length, "graph")} outside the applicability domain of the model. Graph ${outside[0].graph}: ${outside[0].out_of_distribution}.`;
  return make("p", { class: "note" }, `${words} The class may be unreliable.`);
}

function unseenNote(predictions) {
  const unseen = predictions.filter((row) => row.unseen_values);
  if (!unseen.length) return null;
  const words = predictions.length === 1 ? `This molecule has values that no training molecule has, read as “other”: ${unseen[0].unseen_values}.` : `${plural(unseen.length, "molecule")} with values that no training molecule has, read as “other”. Graph ${unseen[0].graph}: ${unseen[0].unseen_values}.`;
  return make("p", { class: "note" }, words);
}

function truncatedNote(predictions) {
  const cut = predictions.filter((row) => row.truncated);
  if (!cut.length) return null;
  const words = predictions.length === 1 ? `This graph is truncated: ${cut[0].truncated}.` : `${plural(cut.length, "graph")} truncated. Graph ${cut[0].graph}: ${cut[0].truncated}.`;
  return make("p", { class: "note" }, words);
}

function classTable({ classes, predictions }) {
  const shown = classes.slice(0, 6);
  const rows = predictions.map((row) => [String(row.graph), row.name, row.class === null ? "–" : className(row.class), ...shown.map((name) => (row.probabilities ? percent(row.probabilities[name], 1) : "–"))]);
  return table("Probability of each class", ["graph", "name", "class", ...shown.map(className)], rows, { numeric: shown.map((_, place) => place + 3) });
}

async function showResults(response) {
  const { predictions } = response;
  clear(byId("facts"), factsOf(response));
  const many = predictions.length > 1;
  clear(byId("notes"), failedList(predictions), unseenNote(predictions), truncatedNote(predictions), domainNote(predictions), trainingNote(predictions));
  const stage = byId("stage");
  stage.classList.toggle("alone", !many);
  byId("results").hidden = false;
  if (response.block) {
    byId("data").textContent = response.block;
    const graphs = await readData();
    byId("data").textContent = "";
    clear(stage, byId("explorer").content.cloneNode(true));
    globalThis.graphcaps = { graphs, explorer: new ResponseExplorer(graphs) };
    if (many) stage.append(make("details", {}, [make("summary", {}, "All probabilities as a table"), classTable(response)]));
  } else clear(stage, make("div", { class: "plain-table" }, classTable(response)));
  const failed = predictions.filter((row) => row.error !== null).length;
  return failed ? `${plural(predictions.length - failed, "graph")} of ${predictions.length}; ${failed} could not be read` : plural(predictions.length, "graph");
}
