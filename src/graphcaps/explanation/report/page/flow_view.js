// Sankey diagram from nodes through the capsules of every level to the classes; widths are routing weights.

const FLOW = { width: NARROW.matches ? 380 : 640, height: 390, top: 30, bottom: 14, left: 4, right: NARROW.matches ? 110 : 150, bar: 14, gap: 7 };

// Position and height of the blocks of a column.
function stack(masses, scale) {
  const tall = FLOW.height - FLOW.top - FLOW.bottom;
  let y = FLOW.top + (tall - scale - (masses.length - 1) * FLOW.gap) / 2;
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

function flowView(graphs, state, onCapsule) {
  const { graph, round } = state;
  const levels = graphs.levels.length;
  const masses = [[1], ...graphs.levels.map((_, level) => graphs.shares(graph, level, round))];
  const most = Math.max(...masses.map((column) => column.length));
  const scale = FLOW.height - FLOW.top - FLOW.bottom - (most - 1) * FLOW.gap;
  const columns = masses.map((column) => stack(column, scale));
  const step = (FLOW.width - FLOW.left - FLOW.right - FLOW.bar) / levels;
  const xOf = (column) => FLOW.left + column * step;
  const ribbons = [], bars = [], headings = [];
  for (let level = 0; level < levels; level += 1) {
    const from = columns[level], to = columns[level + 1];
    from.forEach((block, part) => {
      const weights = level === 0 ? masses[1] : flowWeights(graphs, graph, level, part, round);
      to.forEach((end, j) => {
        const height = masses[level][part] * weights[j] * scale;
        if (height < 0.2) { block.out += height; end.into += height; return; }
        const colour = level === 0 ? colourOf(j) : colourOf(part);
        const capsule = level === 0 ? { level: 0, capsule: j } : { level: level - 1, capsule: part };
        ribbons.push(draw("path", {
          d: ribbon(xOf(level) + FLOW.bar, block.out, xOf(level + 1), end.into, height),
          fill: colour, class: "ribbon", "data-level": capsule.level, "data-capsule": capsule.capsule,
          onpointerenter: () => onCapsule(capsule), onpointerleave: () => onCapsule(null),
        }));
        block.out += height;
        end.into += height;
      });
    });
  }
  columns.forEach((column, c) => {
    const level = c - 1;
    const heading = c === 0 ? "nodes" : c === levels ? "classes" : levels > 2 ? `level ${c}` : "capsules";
    headings.push(draw("text", { x: xOf(c) + (c === levels ? 0 : FLOW.bar / 2), y: 16, class: "flow-heading", "text-anchor": c === 0 || c === levels ? "start" : "middle", dx: c === 0 ? -FLOW.bar / 2 : 0 }, heading));
    column.forEach((block, j) => bars.push(flowBar(graphs, state, { c, j, level, block, x: xOf(c), levels }, onCapsule)));
  });
  const label = "Flow from nodes through capsules to classes; the table of capsules has the numbers.";
  return picture(FLOW.width, FLOW.height, label, [draw("g", {}, ribbons), draw("g", {}, bars), draw("g", {}, headings)], "flow");
}

function flowWeights(graphs, graph, level, part, round) {
  const weights = graphs.weights(graph, level, part, round);
  const sum = weights.reduce((a, b) => a + b, 0) || 1;
  return weights.map((weight) => weight / sum);
}

function flowBar(graphs, state, { c, j, level, block, x, levels }, onCapsule) {
  const isClass = c === levels, isNodes = c === 0;
  const { columns } = graphs;
  const middle = block.y + block.height / 2;
  const fill = isNodes || isClass ? "var(--bar)" : colourOf(j);
  const children = [draw("rect", { x, y: block.y, width: FLOW.bar, height: Math.max(1, block.height), fill, rx: 2 })];
  if (isClass) {
    const name = graphs.className(j);
    const predicted = columns.predicted[state.graph] === j;
    const short = name.length > (NARROW.matches ? 12 : 16) ? `${name.slice(0, NARROW.matches ? 11 : 15)}…` : name;
    const length = graphs.lengthsOf(state.graph, level)[j].toFixed(2);
    if (block.height > 8 || graphs.levels[level].capsules <= 10) {
      children.push(draw("text", { x: x + FLOW.bar + 7, y: middle, dy: "0.35em", class: predicted ? "flow-name predicted" : "flow-name" }, short));
    }
    children.push(draw("title", {}, `${name}: class capsule of length ${length}`));
  } else if (!isNodes && block.height > 9) {
    children.push(draw("text", { x: x + FLOW.bar / 2, y: middle, dy: "0.35em", fill: inkOn(colourOf(j)), class: "flow-number" }, String(j + 1)));
  }
  const capsule = isNodes ? null : { level, capsule: j };
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
  const tops = graphs.path(graph, level, graphs.rounds - 1), scores = graphs.nodes(graph, "score");
  if (!tops) return make("p", { class: "hint" }, "With one routing round all weights are equal, so capsules have no scores of their own.");
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
