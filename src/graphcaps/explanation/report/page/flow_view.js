// Sankey diagram from nodes through the capsules of every level to the classes; widths are contributions.

const FLOW = { width: NARROW.matches ? 380 : 640, height: 390, top: 30, bottom: 14, left: 4, right: NARROW.matches ? 110 : 150, bar: 14, gap: 7 };

// Position and height of the blocks of a column.
function stack(masses, scale) {
  const tall = FLOW.height - FLOW.top - FLOW.bottom;
  const total = masses.reduce((a, b) => a + b, 0) * scale;
  let y = FLOW.top + (tall - total - (masses.length - 1) * FLOW.gap) / 2;
  return Array.from(masses, (mass) => {
    const block = { y, height: mass * scale, into: y, out: y };
    y += block.height + FLOW.gap;
    return block;
  });
}

function ribbon(x1, y1, x2, y2, height) {
  const half = (x1 + x2) / 2;
  const line = (from, to) => `C${half} ${from} ${half} ${to}`;
  return `M${x1} ${y1}${line(y1, y2)} ${x2} ${y2}V${y2 + height}${line(y2 + height, y1 + height)} ${x1} ${y1 + height}Z`;
}

// Heights of the blocks of each column: what leaves them, and for classes what is for them.
function flowHeights(flows) {
  const last = flows[flows.length - 1];
  const classes = last[0].map((_, j) => last.reduce((sum, row) => sum + Math.max(0, row[j]), 0));
  return [...flows.map((rows) => rows.map((row) => row.reduce((sum, value) => sum + Math.abs(value), 0))), classes];
}

// Number of nodes of each capsule below the classes; null with one routing iteration, where all coefficients are equal.
function nodeCounts(graphs, graph, level) {
  const path = graphs.path(graph, level, graphs.iterations - 1);
  return path ? countTops(path, graphs.levels[level].capsules) : null;
}

// What adds up to the class scores: capsules with nodes, all others together, and the residual.
function scoreParts(graphs, graph) {
  const level = graphs.classLevel - 1, rows = graphs.contributions(graph, graphs.classLevel);
  const counts = nodeCounts(graphs, graph, level);
  const parts = [], empty = [];
  rows.slice(0, -1).forEach((values, j) => {
    if (counts && !counts[j]) empty.push(values);
    else parts.push({ name: `capsule ${j + 1}${counts ? `, ${plural(counts[j], "node")}` : ""}`, values });
  });
  const add = (lists) => lists.reduce((sums, values) => sums.map((sum, o) => sum + values[o]), new Array(graphs.meta.classes.length).fill(0));
  if (empty.length) parts.push({ name: `${plural(empty.length, "capsule")} without nodes`, values: add(empty) });
  parts.push({ name: "residual (mean capsule)", values: rows[rows.length - 1] });
  return parts;
}

const MAX_SCORE_COLUMNS = 4;

// The parts as a table with a column per class; only the predicted and the target class if there are many.
function scoreTable(graphs, state) {
  const { graph } = state, parts = scoreParts(graphs, graph), { predicted, target } = graphs.columns;
  const all = graphs.meta.classes.map((_, o) => o);
  const shown = all.length <= MAX_SCORE_COLUMNS ? all : [...new Set([predicted[graph], target[graph]])];
  const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(3)}`;
  const rows = parts.map(({ name, values }) => [name, ...shown.map((o) => signed(values[o]))]);
  const lengths = graphs.lengthsOf(graph, graphs.classLevel);
  rows.push(["sum: length of the class capsule", ...shown.map((o) => lengths[o].toFixed(3))]);
  const scores = table("Contributions to each class", ["contribution of", ...shown.map((o) => graphs.className(o))], rows, { numeric: shown.map((_, at) => at + 1) });
  scores.classList.add("score-parts");
  return scores;
}

function flowCard(graphs, state, onCapsule) {
  const flows = graphs.flow(state.graph);
  const entries = [make("li", {}, [make("span", { class: "swatch ribbon-swatch" }), "for the class, in the colour of the capsule"])];
  if (flows.some((rows) => rows.some((row) => row.some((value) => value < 0)))) {
    entries.push(make("li", {}, [make("span", { class: "swatch dashed" }), "against it: cancels as much"]));
  }
  entries.push(make("li", {}, [make("span", { class: "badge" }, "m"), "mean capsule (the residual)"]));
  const counts = graphs.levels.slice(0, -1).map((_, level) => nodeCounts(graphs, state.graph, level));
  if (counts.some((level) => level?.includes(0))) {
    entries.push(make("li", {}, [make("span", { class: "swatch hollow" }), "capsule without nodes: small coefficients of many"]));
  }
  return [flowView(graphs, state, flows, onCapsule), make("ul", { class: "legend" }, entries), scoreTable(graphs, state)];
}

function flowView(graphs, state, flows, onCapsule) {
  const levels = flows.length, heights = flowHeights(flows);
  const most = Math.max(...heights.map((column) => column.length));
  const tall = FLOW.height - FLOW.top - FLOW.bottom - (most - 1) * FLOW.gap;
  const scale = tall / (Math.max(...heights.map((column) => column.reduce((a, b) => a + b, 0))) || 1);
  const columns = heights.map((column) => stack(column, scale));
  const step = (FLOW.width - FLOW.left - FLOW.right - FLOW.bar) / levels;
  const xOf = (column) => FLOW.left + column * step;
  const ribbons = [], bars = [], headings = [];
  flows.forEach((rows, level) => {
    const from = columns[level], to = columns[level + 1], isLast = level === levels - 1;
    // Negative contributions end below the positive ones, at a class in the part that they cancel.
    rows[0].forEach((_, j) => {
      const sum = (sign) => rows.reduce((all, row) => all + Math.max(0, sign * row[j]), 0) * scale;
      to[j].against = to[j].into + sum(1) - (isLast ? sum(-1) : 0);
      to[j].cancelled = isLast ? sum(-1) : 0;
    });
    rows.forEach((row, part) => row.forEach((value, j) => {
      const block = from[part], end = to[j], height = Math.abs(value) * scale, side = value < 0 ? "against" : "into";
      const isMean = level > 0 && part === rows.length - 1;
      const capsule = level === 0 ? { level: 0, capsule: j } : { level: level - 1, capsule: part };
      if (height >= 0.2) {
        const colour = isMean ? "var(--bar)" : level === 0 ? colourOf(j) : colourOf(part);
        ribbons.push(draw("path", {
          d: ribbon(xOf(level) + FLOW.bar, block.out, xOf(level + 1), end[side], height),
          fill: value < 0 ? "var(--against)" : colour, class: value < 0 ? "ribbon against" : "ribbon",
          "data-level": isMean ? null : capsule.level, "data-capsule": isMean ? null : capsule.capsule,
          onpointerenter: isMean ? null : () => onCapsule(capsule), onpointerleave: isMean ? null : () => onCapsule(null),
        }, draw("title", {}, `contribution ${value < 0 ? "−" : ""}${Math.abs(value).toFixed(3)}`)));
      }
      block.out += height;
      end[side] += height;
    }));
  });
  columns.forEach((column, c) => {
    const level = c - 1;
    const heading = c === 0 ? "nodes" : c === levels ? "classes" : levels > 2 ? `level ${c}` : "capsules";
    headings.push(draw("text", { x: xOf(c) + (c === levels ? 0 : FLOW.bar / 2), y: 16, class: "flow-heading", "text-anchor": c === 0 || c === levels ? "start" : "middle", dx: c === 0 ? -FLOW.bar / 2 : 0 }, heading));
    column.forEach((block, j) => bars.push(flowBar(graphs, state, { c, j, level, block, x: xOf(c), levels, isMean: c > 0 && c < levels && j === column.length - 1 }, onCapsule)));
  });
  const label = "Contributions from nodes through capsules to classes; the table of capsules has the numbers.";
  return picture(FLOW.width, FLOW.height, label, [draw("g", {}, ribbons), draw("g", {}, bars), draw("g", {}, headings)], "flow");
}

function flowBar(graphs, state, { c, j, level, block, x, levels, isMean }, onCapsule) {
  const isClass = c === levels, isNodes = c === 0;
  const { columns } = graphs;
  const middle = block.y + block.height / 2;
  const fill = isNodes || isClass || isMean ? "var(--bar)" : colourOf(j);
  const isHidden = !isNodes && !isClass && !isMean;
  const count = isHidden ? nodeCounts(graphs, state.graph, level)?.[j] : undefined;
  const rect = draw("rect", { x, y: block.y, width: FLOW.bar, height: Math.max(1, block.height), fill, rx: 2 });
  if (count === 0) { rect.setAttribute("class", "hollow"); rect.setAttribute("stroke", fill); }
  const children = [rect];
  if (count !== undefined) children.push(draw("title", {}, `capsule ${j + 1}: ${plural(count, "node")}`));
  if (isClass) {
    const name = graphs.className(j);
    const predicted = columns.predicted[state.graph] === j;
    const short = name.length > (NARROW.matches ? 12 : 16) ? `${name.slice(0, NARROW.matches ? 11 : 15)}…` : name;
    const length = graphs.lengthsOf(state.graph, level)[j].toFixed(2);
    if (block.cancelled > 0.5) {
      const cancelled = { x, y: block.y + block.height - block.cancelled, width: FLOW.bar, height: block.cancelled, class: "cancelled" };
      children.push(draw("rect", cancelled));
    }
    if (block.height > 8 || graphs.levels[level].capsules <= 10) {
      const shown = `${short} ${length}`;
      children.push(draw("text", { x: x + FLOW.bar + 7, y: middle, dy: "0.35em", class: predicted ? "flow-name predicted" : "flow-name" }, shown));
    }
    children.push(draw("title", {}, `${name}: class capsule of length ${length}`));
  } else if (!isNodes && block.height > 9) {
    const text = { x: x + FLOW.bar / 2, y: middle, dy: "0.35em", fill: isMean ? "var(--card)" : count === 0 ? "var(--ink)" : inkOn(colourOf(j)), class: "flow-number" };
    children.push(draw("text", text, isMean ? "m" : String(j + 1)));
  }
  if (isMean) children.push(draw("title", {}, "mean capsule: the residual that is added to every output capsule"));
  const capsule = isNodes || isMean ? null : { level, capsule: j };
  return draw("g", {
    class: "block", onpointerenter: capsule && (() => onCapsule(capsule)), onpointerleave: capsule && (() => onCapsule(null)),
  }, children);
}

// Lengths and probabilities of the class capsules.
function classBars(graphs, state, onCapsule) {
  const { graph } = state, level = graphs.classLevel;
  const lengths = graphs.lengthsOf(graph, level);
  const O = graphs.meta.classes.length;
  const probabilities = graphs.columns.probability.subarray(graph * O, (graph + 1) * O);
  const trueClass = graphs.columns.true_class[graph], predicted = graphs.columns.predicted[graph];
  const rows = graphs.meta.classes.map((_, o) => {
    const marks = [o === predicted ? "predicted" : "", o === trueClass ? "true" : ""].filter(Boolean).join(", ");
    const bar = make("span", { class: o === predicted ? "length predicted" : "length" });
    bar.style.width = `${Math.min(100, 100 * lengths[o])}%`;
    return make("li", {
      "data-class": o, onpointerenter: () => onCapsule({ level, capsule: o }), onpointerleave: () => onCapsule(null),
    }, [
      make("span", { class: "class-name" }, [graphs.className(o), marks ? make("small", {}, ` ${marks}`) : null]),
      make("span", { class: "track" }, bar),
      make("span", { class: "class-length" }, lengths[o].toFixed(2)),
      make("span", { class: "class-share" }, percent(probabilities[o])),
    ]);
  });
  return make("ul", { class: "classes", "aria-label": "Classes: capsule length and probability" }, rows);
}

// Sum of the node scores of each capsule for the target class: positive to the right, negative to the left.
function scoreBars(graphs, state, onCapsule) {
  const { graph, level } = state;
  const tops = graphs.path(graph, level, graphs.iterations - 1), scores = graphs.nodes(graph, "score");
  if (!tops) return make("p", { class: "hint" }, "With one routing iteration all coefficients are equal, so capsules have no scores of their own.");
  const sums = new Array(graphs.levels[level].capsules).fill(0);
  tops.forEach((capsule, node) => { sums[capsule] += (graphs.columns.score_scale[graph] * scores[node]) / 127; });
  const most = Math.max(...sums.map(Math.abs)) || 1;
  const used = sums.map((sum, j) => [sum, j]).filter(([, j]) => tops.includes(j)).sort(([a], [b]) => b - a);
  return make("ul", { class: "votes" }, used.map(([sum, j]) => {
    const bar = make("span");
    bar.style.width = `${(50 * Math.abs(sum)) / most}%`;
    bar.style[sum < 0 ? "right" : "left"] = "50%";
    bar.style.background = sum < 0 ? "var(--against)" : "var(--for)";
    const badge = make("span", { class: "badge" }, String(j + 1));
    badge.style.backgroundColor = colourOf(j);
    badge.style.color = inkOn(colourOf(j));
    const capsule = { level, capsule: j };
    return make("li", { onpointerenter: () => onCapsule(capsule), onpointerleave: () => onCapsule(null) }, [
      badge, make("span", { class: "vote", "aria-hidden": "true" }, bar), make("span", {}, `${sum < 0 ? "−" : "+"}${Math.abs(sum).toFixed(most < 0.1 ? 3 : 2)}`),
    ]);
  }));
}
