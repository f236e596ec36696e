// The coarse graph of a level: capsules where their nodes are; line widths show the coarse adjacency.

const SIDE = 420, COARSE_MARGIN = 46, EMPTY_ROW = 30, EMPTY_RADIUS = 10;

// Moves discs apart until none overlaps another, inside a square.
function separate(points, radii) {
  for (let round = 0; round < 60; round += 1) {
    let moved = false;
    for (let a = 0; a < points.length; a += 1) {
      for (let b = a + 1; b < points.length; b += 1) {
        let dx = points[b][0] - points[a][0], dy = points[b][1] - points[a][1];
        if (!dx && !dy) { dx = Math.cos(a + 1); dy = Math.sin(a + 1); }
        const distance = Math.hypot(dx, dy), least = radii[a] + radii[b] + 8;
        if (distance >= least) continue;
        const push = (least - distance) / 2 / distance;
        points[a] = [points[a][0] - push * dx, points[a][1] - push * dy];
        points[b] = [points[b][0] + push * dx, points[b][1] + push * dy];
        moved = true;
      }
    }
    points.forEach(([x, y], i) => {
      const inside = (value) => Math.max(radii[i] + 4, Math.min(SIDE - EMPTY_ROW - radii[i] - 4, value));
      points[i] = [inside(x), inside(y)];
    });
    if (!moved) break;
  }
  return points;
}

// A circle, for capsules without a node of their own (equal coefficients).
function onCircle(count) {
  const middle = (SIDE - EMPTY_ROW) / 2, orbit = count === 1 ? 0 : 150;
  return Array.from({ length: count }, (_, j) => {
    const angle = (2 * Math.PI * j) / count - Math.PI / 2;
    return [middle + orbit * Math.cos(angle), middle + orbit * Math.sin(angle)];
  });
}

// Capsules at the centres of their nodes; those of a graph that is not drawn by a layout of the coarse graph itself.
function coarsePositions(graphs, graph, level, path, used, layoutOf) {
  if (!path) return onCircle(used.length);
  const place = new Map(used.map((j, i) => [j, i]));
  let x, y;
  if (layoutOf) {
    const nodes = layoutOf(graph), sums = used.map(() => [0, 0, 0]);
    path.forEach((capsule, node) => {
      const sum = sums[place.get(capsule)];
      if (sum) { sum[0] += nodes.x[node]; sum[1] += nodes.y[node]; sum[2] += 1; }
    });
    x = sums.map(([total, , count]) => total / count);
    y = sums.map(([, total, count]) => total / count);
  } else {
    const a = [], b = [];
    used.forEach((one, i) => used.forEach((other, k) => { if (i < k && graphs.coarseWeight(graph, level, one, other) > 0.1) { a.push(i); b.push(k); } }));
    ({ x, y } = layout(used.length, a, b));
  }
  const fitted = fit({ x: Float64Array.from(x), y: Float64Array.from(y) }, SIDE - EMPTY_ROW, SIDE - EMPTY_ROW, COARSE_MARGIN, Infinity);
  return used.map((_, i) => [fitted.x[i], fitted.y[i]]);
}

// `layoutOf` gives the positions of the nodes, or is null; `only` are the capsules to draw, by default all of the level.
function coarseView(graphs, state, level, onCapsule, layoutOf, only = null) {
  const { graph } = state;
  const all = only ?? Array.from({ length: graphs.levels[level].capsules }, (_, j) => j);
  const shares = graphs.shares(graph, level, state.iteration);
  const lengths = graphs.lengthsOf(graph, level);
  const path = graphs.path(graph, level, state.iteration);
  const counts = countTops(path, graphs.levels[level].capsules);
  const used = path ? all.filter((j) => counts[j]) : all;
  const empty = path ? all.filter((j) => !counts[j]) : [];
  const largest = Math.max(...used.map((j) => shares[j]), 1e-9);
  const most = Math.min(38, 130 / Math.sqrt(used.length || 1));
  const radii = used.map((j) => Math.max(12, most * Math.sqrt(shares[j] / largest)));
  const points = separate(coarsePositions(graphs, graph, level, path, used, layoutOf), radii);
  const lines = [];
  used.forEach((a, i) => used.forEach((b, k) => {
    const weight = i < k ? graphs.coarseWeight(graph, level, a, b) : 0;
    if (weight < 0.03) return;
    const [[x1, y1], [x2, y2]] = [points[i], points[k]];
    const line = draw("line", { x1, y1, x2, y2, class: "join" }, draw("title", {}, `capsules ${a + 1} and ${b + 1}: ${percent(weight)} of the largest weight`));
    line.style.strokeWidth = String(0.6 + 9 * weight);
    line.style.strokeOpacity = String(0.25 + 0.5 * weight);
    lines.push(line);
  }));
  const round = (j, x, y, radius, hollow) => {
    const circle = draw("circle", { cx: x, cy: y, r: radius, fill: hollow ? "var(--card)" : colourOf(j) });
    if (hollow) circle.style.stroke = colourOf(j);
    return circle;
  };
  const disc = (j, x, y, radius, hollow) => draw(
    "g",
    {
      class: hollow ? "capsule vacant" : "capsule", "data-capsule": j, "data-level": level,
      onpointerenter: () => onCapsule({ level, capsule: j }), onpointerleave: () => onCapsule(null),
    },
    [
      draw("title", {}, `capsule ${j + 1}: ${plural(counts[j], "node")}, ${percent(shares[j])} of the graph, length ${lengths[j].toFixed(2)}`),
      round(j, x, y, radius, hollow),
      draw("text", { x, y, dy: "0.35em", fill: hollow ? "var(--ink)" : inkOn(colourOf(j)), class: hollow ? "capsule-name small" : "capsule-name" }, String(j + 1)),
    ],
  );
  const step = Math.min(2 * EMPTY_RADIUS + 4, (SIDE - 20) / (empty.length || 1));
  const discs = [
    ...used.map((j, i) => disc(j, ...points[i], radii[i], false)),
    ...empty.map((j, i) => disc(j, 14 + step * i, SIDE - 14, Math.min(EMPTY_RADIUS, step / 2 - 1), true)),
  ];
  const without = empty.length ? `, ${empty.length} of them without nodes` : "";
  const label = `Coarse graph of ${plural(all.length, "capsule")}${without}; the table of capsules has the numbers.`;
  return picture(SIDE, SIDE, label, [draw("g", {}, lines), draw("g", {}, discs)], "coarse");
}

function countTops(tops, J) {
  const counts = new Array(J).fill(0);
  if (tops) for (const capsule of tops) counts[capsule] += 1;
  return counts;
}
