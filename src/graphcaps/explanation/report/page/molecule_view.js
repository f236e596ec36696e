// Molecules: positions of atoms and bonds by order, as RDKit draws them, with the colours of this page.

const BOND_GAP = 0.13; // distance of the lines of a double bond, and half the width of a wedge, in bond lengths

// Positions of the atoms of a molecule; null if the graph is not drawn as one.
function atomPositions(graphs, graph) {
  const x = graphs.nodes(graph, "atom_x"), y = graphs.nodes(graph, "atom_y");
  if (!x || (x.length > 1 && x.every((value) => value === 0) && y.every((value) => value === 0))) return null;
  const unit = 256 * 1.5; // steps of a coordinate per bond
  return { x: Float64Array.from(x, (value) => value / unit), y: Float64Array.from(y, (value) => value / unit) };
}

// Symbol of an atom with hydrogens and charge; "" for a carbon of the skeleton.
function atomSymbol(graphs, graph, node) {
  return graphs.meta.atoms[graphs.nodes(graph, "atom")[node]];
}

// The bonds of a molecule. `clear` gives the distance that the ends keep from each atom.
function bondsOf(graphs, graph, { x, y, scale }, clear, paint) {
  const a = graphs.edges(graph, "edge_a"), b = graphs.edges(graph, "edge_b");
  const orders = graphs.edges(graph, "bond"), wedges = graphs.edges(graph, "wedge");
  const lists = neighbourLists(x.length, a, b), parts = [];
  for (let e = 0; e < a.length; e += 1) {
    const length = Math.hypot(x[b[e]] - x[a[e]], y[b[e]] - y[a[e]]) || 1;
    const ux = (x[b[e]] - x[a[e]]) / length, uy = (y[b[e]] - y[a[e]]) / length;
    const from = [x[a[e]] + ux * clear(a[e]), y[a[e]] + uy * clear(a[e])];
    const to = [x[b[e]] - ux * clear(b[e]), y[b[e]] - uy * clear(b[e])];
    const wedge = wedges?.[e] ?? 0, gap = BOND_GAP * scale;
    const lines = wedge ? wedgeOf(Math.abs(wedge) === 1 ? [from, to] : [to, from], wedge > 0, gap)
      : bondLines(orders[e], from, to, sideOf(lists, a[e], b[e], x, y), gap);
    for (const line of lines) { paint?.(line, e); parts.push(line); }
  }
  return parts;
}

function bondLine(from, to, [nx, ny], shift, name = "bond", cut = 0) {
  const at = (p, q, t) => [p[0] + (q[0] - p[0]) * t + nx * shift, p[1] + (q[1] - p[1]) * t + ny * shift];
  const [p, q] = [at(from, to, cut), at(from, to, 1 - cut)].map(([px, py]) => `${px.toFixed(1)} ${py.toFixed(1)}`);
  return draw("path", { d: `M${p}L${q}`, class: name });
}

// A double bond has its second line on the side of most neighbours, or both lines beside the axis without any.
function bondLines(order, from, to, side, gap) {
  const length = Math.hypot(to[0] - from[0], to[1] - from[1]) || 1;
  const normal = [(to[1] - from[1]) / length, -(to[0] - from[0]) / length];
  const line = (shift, name, cut) => bondLine(from, to, normal, shift, name, cut);
  if (order === 2 && side === 0) return [line(gap / 2), line(-gap / 2)];
  if (order === 2) return [line(0), line(side * gap, "bond", 0.1)];
  if (order === 3) return [line(0), line(gap, "bond", 0.08), line(-gap, "bond", 0.08)];
  if (order === 4) return [line(0), line((side || 1) * gap, "bond aromatic", 0.1)];
  return [order === 1 ? line(0) : line(0, "bond aromatic")];
}

// 1 or −1 for the side of a bond with more neighbours, along the normal of bondLines; 0 if they are balanced.
function sideOf(lists, a, b, x, y) {
  const nx = y[b] - y[a], ny = -(x[b] - x[a]);
  let sum = 0;
  for (const [atom, other] of [[a, b], [b, a]]) {
    for (const next of lists[atom]) if (next !== other) sum += Math.sign((x[next] - x[atom]) * nx + (y[next] - y[atom]) * ny);
  }
  return Math.sign(sum);
}

function wedgeOf([from, to], solid, gap) {
  const length = Math.hypot(to[0] - from[0], to[1] - from[1]) || 1;
  const nx = ((to[1] - from[1]) / length) * gap * 0.75, ny = (-(to[0] - from[0]) / length) * gap * 0.75;
  const point = (px, py) => `${px.toFixed(1)} ${py.toFixed(1)}`;
  if (solid) {
    return [draw("path", { d: `M${point(...from)}L${point(to[0] + nx, to[1] + ny)}L${point(to[0] - nx, to[1] - ny)}Z`, class: "bond solid" })];
  }
  const count = Math.max(4, Math.round(length / 4));
  return Array.from({ length: count }, (_, k) => {
    const t = (k + 1) / count, cx = from[0] + (to[0] - from[0]) * t, cy = from[1] + (to[1] - from[1]) * t;
    return draw("path", { d: `M${point(cx + nx * t, cy + ny * t)}L${point(cx - nx * t, cy - ny * t)}`, class: "bond" });
  });
}
