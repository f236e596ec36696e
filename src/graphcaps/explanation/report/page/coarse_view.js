// The coarse graph of a level: capsules on a circle; line widths show the coarse adjacency.

const SIDE = 420, MIDDLE = 210;

function coarseView(graphs, state, level, onCapsule) {
  const { graph } = state;
  const J = graphs.levels[level].capsules;
  const shares = graphs.shares(graph, level, state.iteration);
  const lengths = graphs.lengthsOf(graph, level);
  const counts = countTops(graphs.path(graph, level, state.iteration), J);
  const orbit = J === 1 ? 0 : 150;
  const at = (j) => {
    const angle = (2 * Math.PI * j) / J - Math.PI / 2;
    return [MIDDLE + orbit * Math.cos(angle), MIDDLE + orbit * Math.sin(angle)];
  };
  const lines = [];
  for (let a = 0; a < J; a += 1) {
    for (let b = a + 1; b < J; b += 1) {
      const weight = graphs.coarseWeight(graph, level, a, b);
      if (weight < 0.03) continue;
      const [x1, y1] = at(a), [x2, y2] = at(b);
      const line = draw("line", { x1, y1, x2, y2, class: "join" }, draw("title", {}, `capsules ${a + 1} and ${b + 1}: ${percent(weight)} of the largest weight`));
      line.style.strokeWidth = String(0.6 + 9 * weight);
      line.style.strokeOpacity = String(0.25 + 0.5 * weight);
      lines.push(line);
    }
  }
  const most = Math.min(38, (J > 1 ? orbit * Math.sin(Math.PI / J) : 60) * 0.92);
  const largest = Math.max(...shares);
  const discs = Array.from({ length: J }, (_, j) => {
    const [x, y] = at(j);
    const radius = Math.max(11, most * Math.sqrt(shares[j] / largest));
    const colour = colourOf(j);
    return draw(
      "g",
      {
        class: "capsule", "data-capsule": j, "data-level": level,
        onpointerenter: () => onCapsule({ level, capsule: j }), onpointerleave: () => onCapsule(null),
      },
      [
        draw("title", {}, `capsule ${j + 1}: ${plural(counts[j], "node")}, ${percent(shares[j])} of the graph, length ${lengths[j].toFixed(2)}`),
        draw("circle", { cx: x, cy: y, r: radius, fill: colour }),
        draw("text", { x, y, dy: "0.35em", fill: inkOn(colour), class: "capsule-name" }, String(j + 1)),
      ],
    );
  });
  const label = `Coarse graph of ${plural(J, "capsule")}; the table of capsules has the numbers.`;
  return picture(SIDE, SIDE, label, [draw("g", {}, lines), draw("g", {}, discs)], "coarse");
}

function countTops(tops, J) {
  const counts = new Array(J).fill(0);
  if (tops) for (const capsule of tops) counts[capsule] += 1;
  return counts;
}
