// Places the nodes of a graph in layers from left to right, in Sugiyama's manner: edges that close a
// circle are turned, nodes are as near as possible to what needs them, long edges get a place in each
// layer, and the order in a layer follows the neighbours.

function withoutCircles(n, edges) {
  const next = Array.from({ length: n }, () => []), state = new Uint8Array(n), incoming = new Uint32Array(n);
  edges.forEach(([a, b], i) => { next[a].push(i); incoming[b]++; });
  const turned = new Uint8Array(edges.length), order = [...Array(n).keys()].sort((a, b) => incoming[a] - incoming[b] || a - b);
  for (const root of order) {
    if (state[root]) continue;
    const stack = [[root, 0]];
    state[root] = 1;
    while (stack.length) {
      const top = stack.at(-1), [node, k] = top;
      if (k === next[node].length) { state[node] = 2; stack.pop(); continue; }
      top[1]++;
      const edge = next[node][k], to = edges[edge][1];
      if (state[to] === 1) turned[edge] = 1;
      else if (!state[to]) { state[to] = 1; stack.push([to, 0]); }
    }
  }
  return edges.map(([a, b], i) => (turned[i] ? [b, a] : [a, b]));
}

function layersOf(n, edges) {
  const layer = new Int32Array(n), left = new Uint32Array(n), next = Array.from({ length: n }, () => []);
  for (const [a, b] of edges) { next[a].push(b); left[b]++; }
  const sources = [...Array(n).keys()].filter((node) => !left[node]), order = [...sources];
  for (let i = 0; i < order.length; i++) {
    for (const to of next[order[i]]) {
      layer[to] = Math.max(layer[to], layer[order[i]] + 1);
      if (--left[to] === 0) order.push(to);
    }
  }
  for (const node of sources) if (next[node].length) layer[node] = Math.min(...next[node].map((to) => layer[to])) - 1;
  return layer;
}

// Parts of the graph without an edge between them, the nodes of each in order.
function partsOf(n, edges) {
  const part = Int32Array.from({ length: n }, (_, node) => node);
  const root = (node) => { while (part[node] !== node) node = part[node] = part[part[node]]; return node; };
  for (const [a, b] of edges) { const [x, y] = [root(a), root(b)]; part[Math.max(x, y)] = Math.min(x, y); }
  const found = new Map();
  for (let node = 0; node < n; node++) found.set(root(node), [...(found.get(root(node)) || []), node]);
  return [...found.values()];
}

// Returns the x and y of each node's top left corner, and the points of each edge, in its direction.
// Parts without an edge between them are placed below each other, and nodes without edges last,
// side by side.
function layered(n, edges, size) {
  const nodes = Array(n), routes = Array(edges.length), place = new Int32Array(n), partOf = new Int32Array(n);
  const parts = partsOf(n, edges), linked = parts.filter((part) => part.length > 1), single = parts.filter((part) => part.length === 1).flat();
  const inPart = linked.map(() => []);
  linked.forEach((part, p) => part.forEach((node, i) => { place[node] = i; partOf[node] = p; }));
  edges.forEach(([a], i) => inPart[partOf[a]].push(i));
  let width = 0, height = 0;
  linked.forEach((part, p) => {
    const made = layeredPart(part.length, inPart[p].map((i) => edges[i].map((node) => place[node])), size);
    part.forEach((node, i) => { nodes[node] = [made.nodes[i][0], made.nodes[i][1] + height]; });
    inPart[p].forEach((edge, i) => { routes[edge] = made.routes[i].map(([x, y]) => [x, y + height]); });
    width = Math.max(width, made.width);
    height += made.height;
  });
  const wide = size.width + size.gapY, high = size.height + size.gapY, columns = Math.max(4, Math.floor((width + size.gapY) / wide));
  single.forEach((node, i) => { nodes[node] = [(i % columns) * wide, height + Math.floor(i / columns) * high + size.gapY / 2]; });
  return { nodes, routes, width: Math.max(width, Math.min(single.length, columns) * wide - size.gapY), height: height + Math.ceil(single.length / columns) * high };
}

function layeredPart(n, edges, { width, height, gapX, gapY }) {
  const down = withoutCircles(n, edges), layer = [...layersOf(n, down)], isDummy = (node) => node >= n;
  const chains = down.map(([a, b]) => {
    const chain = [a];
    for (let at = layer[a] + 1; at < layer[b]; at++) { chain.push(layer.length); layer.push(at); }
    return [...chain, b];
  });
  const before = layer.map(() => []), after = layer.map(() => []);
  for (const chain of chains) for (let i = 1; i < chain.length; i++) { after[chain[i - 1]].push(chain[i]); before[chain[i]].push(chain[i - 1]); }
  const rows = Array.from({ length: n ? Math.max(...layer) + 1 : 0 }, () => []), place = new Float64Array(layer.length);
  layer.forEach((at, node) => { place[node] = rows[at].length; rows[at].push(node); });
  const mean = (nodes) => nodes.reduce((sum, node) => sum + place[node], 0) / nodes.length;
  for (let sweep = 0; sweep < 12; sweep++) {
    const neighbours = sweep % 2 ? after : before, order = sweep % 2 ? [...rows.keys()].reverse() : [...rows.keys()];
    for (const at of order) {
      const wanted = new Map(rows[at].map((node) => [node, neighbours[node].length ? mean(neighbours[node]) : place[node]]));
      rows[at].sort((a, b) => wanted.get(a) - wanted.get(b) || place[a] - place[b]);
      rows[at].forEach((node, i) => { place[node] = i; });
    }
  }
  const high = (node) => (isDummy(node) ? 12 : height + gapY), middle = place;  // from here on, y of the middle
  for (const row of rows) { let y = 0; for (const node of row) { middle[node] = y + high(node) / 2; y += high(node); } }
  for (let sweep = 0; sweep < 10; sweep++) {
    for (const at of sweep % 2 ? [...rows.keys()].reverse() : rows.keys()) settle(rows[at], (sweep % 2 ? after : before), middle, high);
  }
  const top = Math.min(0, ...[...middle.keys()].map((node) => middle[node] - high(node) / 2));
  const x = (node) => layer[node] * (width + gapX), y = (node) => middle[node] - top;
  return {
    nodes: Array.from({ length: n }, (_, node) => [x(node), y(node) - height / 2]),
    routes: chains.map((chain, i) => {
      const points = chain.flatMap((node) => [[x(node), y(node)], [x(node) + width, y(node)]]).slice(1, -1);
      return down[i][0] === edges[i][0] ? points : points.reverse();
    }),
    width: rows.length * (width + gapX) - gapX,
    height: Math.max(0, ...[...middle.keys()].map((node) => y(node) + high(node) / 2)),
  };
}

// Moves the nodes of a layer towards their neighbours, in their order and without an overlap.
function settle(row, neighbours, middle, high) {
  const wanted = row.map((node) => (neighbours[node].length ? neighbours[node].reduce((sum, other) => sum + middle[other], 0) / neighbours[node].length : middle[node]));
  let sum = 0;
  row.forEach((node, i) => {
    const least = i ? middle[row[i - 1]] + (high(row[i - 1]) + high(node)) / 2 : -Infinity;
    middle[node] = Math.max(wanted[i], least);
    sum += middle[node] - wanted[i];
  });
  for (const node of row) middle[node] -= sum / row.length;
}
