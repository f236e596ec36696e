// Classification quality: training curves, confusion matrix, reliability diagram.

// The curve of the training graphs is measured while the weights change, so it differs from the accuracy after training.
function curveCard(meta, quantity, title, note, asText) {
  const { history, best_epoch: bestEpoch } = meta;
  const series = [["train", `training graphs, ${meta.train_measured}`], ["validation", "validation graphs"]]
    .map(([name, text]) => [name, text, history.filter((row) => Number.isFinite(row[`${name}_${quantity}`])).map((row) => [row.epoch, row[`${name}_${quantity}`]])])
    .filter(([, , points]) => points.length);
  if (!series.length) return null;
  const values = series.flatMap(([, , points]) => points.map(([, value]) => value));
  const epochs = series.flatMap(([, , points]) => points.map(([epoch]) => epoch));
  const range = quantity === "accuracy" ? [Math.min(...values, 0.5), 1] : [Math.min(0, ...values), Math.max(...values)];
  const axes = new Axes([Math.min(...epochs), Math.max(...epochs)], range, { xName: "epoch", yName: quantity, yText: asText });
  if (bestEpoch) axes.add(draw("line", { x1: axes.across(bestEpoch), x2: axes.across(bestEpoch), y1: CHART.top, y2: CHART.height - CHART.bottom, class: "kept" }));
  for (const [name, , points] of series) axes.line(points, name);
  const last = series.map(([, text, points]) => `${text} ${asText(points[points.length - 1][1])}`).join(", ");
  const entries = series.map(([name, text]) => [name, text]);
  if (bestEpoch) entries.push(["kept", `selected epoch: ${bestEpoch}`]);
  return titledCard("h3", title, note, axes.svg(`${title}. After the last epoch: ${last}.`), legend(entries));
}

function confusionCard(graphs, { title, confusion }) {
  const classes = graphs.meta.classes.map((_, index) => graphs.className(index));
  const rows = confusion.map((row, trueClass) => {
    const total = row.reduce((a, b) => a + b, 0);
    const cells = row.map((count, predicted) => {
      const cell = make("td", { class: trueClass === predicted ? "number hit" : "number miss" }, count.toLocaleString("en"));
      cell.style.setProperty("--share", `${total ? Math.round((100 * count) / total) : 0}%`);
      return cell;
    });
    return make("tr", {}, [make("th", { scope: "row" }, classes[trueClass]), ...cells, make("td", { class: "number total" }, total ? percent(row[trueClass] / total) : "–")]);
  });
  const head = make("tr", {}, [make("th", { scope: "col" }, "true class"), ...classes.map((name) => make("th", { scope: "col", class: "number" }, name)), make("th", { scope: "col", class: "number" }, "recall")]);
  return titledCard(
    "h3",
    `Confusion matrix: ${title.toLowerCase()}`,
    "Rows: true classes. Columns: predicted classes.",
    make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Confusion matrix" },
      make("table", { class: "confusion" }, [make("caption", { class: "unseen" }, "Confusion matrix"), make("thead", {}, head), make("tbody", {}, rows)])),
  );
}

function reliabilityCard(meta, { title, reliability: bins, ece, graphs: count }) {
  const low = Math.min(...bins.map((bin) => Math.min(bin.confidence, bin.accuracy)), 1 / meta.classes.length);
  const range = [Math.floor(low * 10) / 10, 1];
  const axes = new Axes(range, range, { xName: "confidence", yName: "accuracy", xText: percent, yText: percent });
  axes.line([[range[0], range[0]], [1, 1]], "ideal");
  axes.line(bins.map((bin) => [bin.confidence, bin.accuracy]), "train");
  axes.add(...bins.map((bin) => draw("circle", { cx: axes.across(bin.confidence), cy: axes.down(bin.accuracy), r: 4, class: "point" },
    draw("title", {}, `${plural(bin.count, "graph")}: confidence ${percent(bin.confidence, 1)}, accuracy ${percent(bin.accuracy, 1)}`))));
  const gap = ece === null
    ? `Fewer than ${meta.min_calibration_graphs} graphs: the differences are mostly chance, so no calibration error is given.`
    : `Expected calibration error ${percent(ece, 1)}: the mean difference of confidence and accuracy.`;
  const note = `${plural(count, "graph")} in ${plural(bins.length, "bin")} of about equal size. ${gap}`;
  const numbers = table("Reliability by bin", ["confidence", "accuracy", "graphs"], bins.map((bin) => [percent(bin.confidence, 1), percent(bin.accuracy, 1), String(bin.count)]), { numeric: [0, 1, 2] });
  return titledCard("h3", `Reliability: ${title.toLowerCase()}`, note, axes.svg(`Reliability diagram. ${note}`), legend([["train", "this model"], ["ideal", "perfect calibration"]]),
    make("details", {}, [make("summary", {}, "As a table"), numbers]));
}

// The set of graphs that confusion matrix and reliability are of; the first one did not train the model, if there is one.
function setChoice(sets, onChange) {
  const notes = (at) => `${plural(sets[at].graphs, "graph")}: ${sets[at].note}.`;
  const note = make("p", { class: "card-note" }, notes(0));
  const select = make("select", { id: "set", onchange: () => { note.textContent = notes(select.selectedIndex); onChange(sets[select.selectedIndex]); } },
    sets.map(({ title }, at) => make("option", { value: at }, title)));
  return [make("label", { for: "set" }, "Confusion matrix and reliability of"), select, note];
}

function showQuality(graphs) {
  const { meta } = graphs, { sets } = meta;
  const curves = (meta.history
    ? [
        curveCard(meta, "accuracy", "Accuracy while training", null, (v) => percent(v)),
        curveCard(meta, "loss", "Loss while training", null, (v) => String(Number(v.toPrecision(3)))),
      ]
    : []).filter(Boolean);
  const measured = make("div", { class: "stack" });
  const show = (set) => clear(measured, confusionCard(graphs, set), reliabilityCard(meta, set));
  if (sets.length) {
    show(sets[0]);
    clear(byId("of-set"), setChoice(sets, show));
    byId("of-set").hidden = false;
  }
  if (!sets.length && !curves.length) byId("quality").hidden = true;
  clear(byId("cards"), ...(sets.length ? [measured, curves.length ? make("div", { class: "stack" }, curves) : null] : curves));
}
