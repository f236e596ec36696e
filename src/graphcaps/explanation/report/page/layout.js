// Deterministic node layout from shortest-path distances.
//
// Stochastic gradient descent on the stress: pairs in shuffled order with a decreasing step. Small graphs use all pairs;
// large graphs use their edges and the distances to some pivots, so that the time is linear in nodes and edges.

const ALL_PAIRS = 260;
const PIVOTS = 30;

function random(seed) {
  let state = seed >>> 0 || 1;
  return () => {
    state ^= state << 13; state >>>= 0;
    state ^= state >>> 17;
    state ^= state << 5; state >>>= 0;
    return state / 4294967296;
  };
}

function neighbourLists(n, a, b) {
  const lists = Array.from({ length: n }, () => []);
  for (let e = 0; e < a.length; e += 1) { lists[a[e]].push(b[e]); lists[b[e]].push(a[e]); }
  return lists;
}

function distancesFrom(start, lists) {
  const distance = new Int32Array(lists.length).fill(-1);
  const queue = [start];
  distance[start] = 0;
  for (let at = 0; at < queue.length; at += 1) {
    for (const next of lists[queue[at]]) {
      if (distance[next] < 0) { distance[next] = distance[queue[at]] + 1; queue.push(next); }
    }
  }
  return { distance, reached: queue };
}

// Pairs of nodes and their target distances.
function targetDistances(nodes, lists) {
  const pairs = [];
  const sources = [];
  if (nodes.length <= ALL_PAIRS) sources.push(...nodes);
  else {
    // Each pivot is the node farthest from those before it.
    let nearest = new Float64Array(lists.length).fill(Infinity);
    let next = nodes[0];
    for (let k = 0; k < PIVOTS; k += 1) {
      sources.push(next);
      const { distance } = distancesFrom(next, lists);
      let best = -1;
      for (const node of nodes) {
        nearest[node] = Math.min(nearest[node], distance[node]);
        if (nearest[node] > best) { best = nearest[node]; next = node; }
      }
    }
    for (const node of nodes) for (const other of lists[node]) if (node < other) pairs.push([node, other, 1]);
  }
  const all = nodes.length <= ALL_PAIRS;
  for (const source of sources) {
    const { distance } = distancesFrom(source, lists);
    for (const node of nodes) {
      if (node !== source && (!all || node > source)) pairs.push([source, node, distance[node]]);
    }
  }
  return pairs;
}

function minimiseStress(pairs, x, y, next) {
  let farthest = 1;
  for (const [, , d] of pairs) farthest = Math.max(farthest, d);
  const rounds = pairs.length > 60000 ? 12 : 30;
  for (let round = 0; round < rounds; round += 1) {
    for (let i = pairs.length - 1; i > 0; i -= 1) {
      const other = Math.floor(next() * (i + 1));
      const kept = pairs[i]; pairs[i] = pairs[other]; pairs[other] = kept;
    }
    const step = farthest ** 2 * (0.05 / farthest ** 2) ** (round / (rounds - 1));
    for (const [a, b, d] of pairs) {
      const dx = x[a] - x[b];
      const dy = y[a] - y[b];
      const length = Math.hypot(dx, dy) || 1e-6;
      const move = (Math.min(1, step / (d * d)) * (length - d)) / (2 * length);
      x[a] -= move * dx; y[a] -= move * dy;
      x[b] += move * dx; y[b] += move * dy;
    }
  }
}

// Separates nodes that are too close, so that none hides another.
const MIN_DISTANCE = 0.74;
function pushApart(nodes, x, y) {
  if (nodes.length > ALL_PAIRS) return;
  for (let round = 0; round < 12; round += 1) {
    for (let p = 0; p < nodes.length; p += 1) {
      for (let q = p + 1; q < nodes.length; q += 1) {
        const a = nodes[p], b = nodes[q];
        const dx = x[a] - x[b], dy = y[a] - y[b];
        const length = Math.hypot(dx, dy) || 1e-6;
        if (length >= MIN_DISTANCE) continue;
        const move = (0.45 * (MIN_DISTANCE - length)) / length;
        x[a] += move * dx; y[a] += move * dy;
        x[b] -= move * dx; y[b] -= move * dy;
      }
    }
  }
}

// Rotates a component so that its longest axis is horizontal.
function alignHorizontally(nodes, x, y) {
  let mx = 0, my = 0, xx = 0, xy = 0, yy = 0;
  for (const i of nodes) { mx += x[i] / nodes.length; my += y[i] / nodes.length; }
  for (const i of nodes) {
    const dx = x[i] - mx, dy = y[i] - my;
    xx += dx * dx; xy += dx * dy; yy += dy * dy;
  }
  const angle = 0.5 * Math.atan2(2 * xy, xx - yy);
  const c = Math.cos(angle), s = Math.sin(angle);
  for (const i of nodes) {
    const dx = x[i] - mx, dy = y[i] - my;
    x[i] = c * dx + s * dy; y[i] = c * dy - s * dx;
  }
}

function boxOf(nodes, x, y) {
  const box = { left: Infinity, right: -Infinity, top: Infinity, bottom: -Infinity };
  for (const i of nodes) {
    box.left = Math.min(box.left, x[i]); box.right = Math.max(box.right, x[i]);
    box.top = Math.min(box.top, y[i]); box.bottom = Math.max(box.bottom, y[i]);
  }
  return box;
}

// Arranges connected components in rows, the largest first.
function arrangeComponents(components, x, y) {
  const boxes = components.map((nodes) => ({ nodes, ...boxOf(nodes, x, y) }));
  boxes.sort((p, q) => q.nodes.length - p.nodes.length);
  const area = boxes.reduce((sum, p) => sum + (p.right - p.left + 1.4) * (p.bottom - p.top + 1.4), 0);
  const widest = Math.max(Math.sqrt(area * 1.5), boxes[0].right - boxes[0].left + 1.4);
  let left = 0, top = 0, tallest = 0;
  for (const p of boxes) {
    const width = p.right - p.left + 1.4;
    if (left > 0 && left + width > widest) { left = 0; top += tallest; tallest = 0; }
    for (const i of p.nodes) { x[i] += left - p.left; y[i] += top - p.top; }
    left += width;
    tallest = Math.max(tallest, p.bottom - p.top + 1.4);
  }
}

function layout(n, a, b) {
  const x = new Float64Array(n), y = new Float64Array(n);
  const lists = neighbourLists(n, a, b);
  const seen = new Uint8Array(n);
  const components = [];
  for (let start = 0; start < n; start += 1) {
    if (seen[start]) continue;
    const nodes = distancesFrom(start, lists).reached;
    for (const node of nodes) seen[node] = 1;
    components.push(nodes);
    const next = random(nodes.length * 7919 + 17);
    const spread = Math.sqrt(nodes.length);
    for (const node of nodes) { x[node] = next() * spread; y[node] = next() * spread; }
    minimiseStress(targetDistances(nodes, lists), x, y, next);
    pushApart(nodes, x, y);
    alignHorizontally(nodes, x, y);
  }
  if (components.length > 1) arrangeComponents(components, x, y);
  return { x, y };
}

// Scales positions to a drawing of the given size.
function fit({ x, y }, width, height, margin, largest = 64) {
  const all = Array.from(x.keys());
  const box = boxOf(all, x, y);
  const wide = box.right - box.left, tall = box.bottom - box.top;
  const scale = Math.min((width - 2 * margin) / (wide || 1e-9), (height - 2 * margin) / (tall || 1e-9), largest);
  const dx = width / 2 - (scale * (box.left + box.right)) / 2;
  const dy = height / 2 - (scale * (box.top + box.bottom)) / 2;
  return { x: all.map((i) => scale * x[i] + dx), y: all.map((i) => scale * y[i] + dy), scale };
}
