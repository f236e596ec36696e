// How well the model classifies: training curves, confusion matrix, reliability.

function curveCard(history, kept, quantity, title, words, asText) {
  const series = [["train", "training graphs"], ["validation", "validation graphs"]]
    .map(([name, text]) => [name, text, history.filter((row) => Number.isFinite(row[`${name}_${quantity}`])).map((row) => [row.epoch, row[`${name}_${quantity}`]])])
    .filter(([, , points]) => points.length);
  if (!series.length) return null;
  const values = series.flatMap(([, , points]) => points.map(([, value]) => value));
  const epochs = series.flatMap(([, , points]) => points.map(([epoch]) => epoch));
  const range = quantity === "accuracy" ? [Math.min(...values, 0.5), 1] : [Math.min(0, ...values), Math.max(...values)];
  const axes = new Axes([Math.min(...epochs), Math.max(...epochs)], range, { xName: "epoch", yName: quantity, yText: asText });
  if (kept) axes.add(draw("line", { x1: axes.across(kept), x2: axes.across(kept), y1: CHART.top, y2: CHART.height - CHART.bottom, class: "kept" }));
  for (const [name, , points] of series) axes.line(points, name);
  const last = series.map(([, text, points]) => `${text} ${asText(points[points.length - 1][1])}`).join(", ");
  const entries = series.map(([name, text]) => [name, text]);
  if (kept) entries.push(["kept", `kept: epoch ${kept}`]);
  return card(title, words, axes.svg(`${title}. After the last epoch: ${last}.`), legend(entries));
}

function confusionCard(graphs) {
  const { confusion } = graphs.meta;
  const classes = graphs.meta.classes.map((_, index) => graphs.className(index));
  if (!confusion) return null;
  const rows = confusion.map((row, known) => {
    const total = row.reduce((a, b) => a + b, 0);
    const cells = row.map((count, found) => {
      const cell = make("td", { class: known === found ? "number hit" : "number miss" }, count.toLocaleString("en"));
      cell.style.setProperty("--share", `${total ? Math.round((100 * count) / total) : 0}%`);
      return cell;
    });
    return make("tr", {}, [make("th", { scope: "row" }, classes[known]), ...cells, make("td", { class: "number total" }, total ? percent(row[known] / total) : "–")]);
  });
  const head = make("tr", {}, [make("th", { scope: "col" }, "true class"), ...classes.map((name) => make("th", { scope: "col", class: "number" }, name)), make("th", { scope: "col", class: "number" }, "found")]);
  return card(
    "Confusion matrix",
    "Rows: the graphs’ own classes. Columns: what the model takes them for.",
    make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Confusion matrix" },
      make("table", { class: "confusion" }, [make("caption", { class: "unseen" }, "Confusion matrix"), make("thead", {}, head), make("tbody", {}, rows)])),
  );
}

function reliabilityCard(meta) {
  const { reliability: bins, ece, counted } = meta;
  if (!bins?.length) return null;
  const low = Math.min(...bins.map((bin) => Math.min(bin.confidence, bin.accuracy)), 1 / meta.classes.length);
  const range = [Math.floor(low * 10) / 10, 1];
  const axes = new Axes(range, range, { xName: "confidence", yName: "share of right answers", xText: percent, yText: percent });
  axes.line([[range[0], range[0]], [1, 1]], "ideal");
  axes.line(bins.map((bin) => [bin.confidence, bin.accuracy]), "train");
  axes.add(...bins.map((bin) => draw("circle", { cx: axes.across(bin.confidence), cy: axes.down(bin.accuracy), r: 4, class: "point" },
    draw("title", {}, `${plural(bin.count, "graph")}: confidence ${percent(bin.confidence, 1)}, right ${percent(bin.accuracy, 1)}`))));
  const words = `${plural(counted, "graph")} in ${plural(bins.length, "group")} of about equal size. Expected calibration error ${percent(ece, 1)}: by so much confidence and accuracy differ on average.`;
  const numbers = table("Reliability by group", ["confidence", "right", "graphs"], bins.map((bin) => [percent(bin.confidence, 1), percent(bin.accuracy, 1), String(bin.count)]), { numeric: [0, 1, 2] });
  return card("Reliability", words, axes.svg(`Reliability diagram. ${words}`), legend([["train", "this model"], ["ideal", "confidence that tells the truth"]]),
    make("details", {}, [make("summary", {}, "As a table"), numbers]));
}

function showQuality(graphs) {
  const { meta } = graphs, { history, kept } = meta;
  const curves = history
    ? [
        curveCard(history, kept, "accuracy", "Accuracy while training", null, (v) => percent(v)),
        curveCard(history, kept, "loss", "Loss while training", null, (v) => String(Number(v.toPrecision(3)))),
      ]
    : [];
  const columns = [curves, [confusionCard(graphs), reliabilityCard(meta)]]
    .map((column) => column.filter(Boolean))
    .filter((column) => column.length);
  if (!columns.length) byId("quality").hidden = true;
  clear(byId("cards"), columns.map((column) => make("div", { class: "stack" }, column)));
}
