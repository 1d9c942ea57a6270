// The graph: nodes are prefixes; a prefix can be replaced by its groups, a group by its tasks.

const NODE = { width: 168, height: 40, gapX: 116, gapY: 14 };
const MOST_LABELS = 60;  // edges up to which each has its label
const MOST_DRAWN = 400;  // edges, those with the most dependencies; tables of nodes have the others

async function readGraph() {
  const { kinds, contents } = JSON.parse(document.getElementById("charts").textContent);
  const c = await unpack("graph-data"), name = texts(c, "name"), kind = ints(c, "kind", Uint8Array);
  const [parent, nTasks, nErred, micros, nbytes] = ["parent", "n_tasks", "n_erred", "micros", "nbytes"].map((column) => ints(c, column));
  const nodes = Array.from(kind, (k, i) => ({
    id: i, name: name(i), kind: kinds[k], parent: parent[i], n: nTasks[i], erred: nErred[i],
    seconds: micros[i] < 0 ? NaN : micros[i] / 1e6, nbytes: nbytes[i] < 0 ? NaN : nbytes[i], children: [],
  }));
  for (const node of nodes) {
    if (node.parent >= 0) nodes[node.parent].children.push(node.id);
    node.prefix = node.parent >= 0 ? nodes[node.parent].prefix : node.name;
  }
  const [source, target, n, bytes, unknown] = ["source", "target", "n", "edge_bytes", "n_unknown"].map((column) => ints(c, column));
  const edges = Array.from(source, (from, i) => ({ from, to: target[i], n: n[i], nbytes: bytes[i], unknown: unknown[i] }));
  return { nodes, edges, contents };
}

const bytesOfEdge = ({ n, nbytes, unknown }) => (unknown === n ? "–" : `${sizeText(nbytes)}${unknown ? ` and ${unknown.toLocaleString("en")} unknown` : ""}`);
const plural = (n) => `${n.toLocaleString("en")} ${n === 1 ? "dependency" : "dependencies"}`;

// The nodes that are shown when some are expanded, and the sums of the edges between them.
function shownGraph({ nodes, edges }, expanded) {
  const shown = [], showing = new Int32Array(nodes.length);
  for (const node of nodes) {  // parents come before their children
    const above = node.parent >= 0 && !expanded.has(node.parent);
    showing[node.id] = above ? showing[node.parent] : node.id;
    if (!above && !expanded.has(node.id)) shown.push(node);
  }
  const sums = new Map();
  for (const { from, to, n, nbytes, unknown } of edges) {
    const key = showing[from] * nodes.length + showing[to];
    const sum = sums.get(key) || { from: showing[from], to: showing[to], n: 0, nbytes: 0, unknown: 0 };
    sum.n += n; sum.nbytes += nbytes; sum.unknown += unknown;
    sums.set(key, sum);
  }
  return { shown, between: [...sums.values()] };
}

async function drawGraph(colorOf) {
  const $ = (id) => document.getElementById(id), svg = $("graph-svg");
  if (!svg) return null;
  const g = await readGraph(), expanded = new Set();
  $("graph-app").hidden = false;
  let chosen = -1, current = null;

  const label = (node) => `${node.kind === "others" ? "" : `${node.kind} `}${node.name}: ${counted(node.n, "task")}, ${durationText(node.seconds)} of compute, ${sizeText(node.nbytes)} of results${node.erred ? `, ${node.erred} failed` : ""}${node.children.length ? `, ${node.children.length} parts` : ""}`;
  function expand(node, on) {
    if (on && !node.children.length) return;
    if (!on && node.parent < 0) return;
    const place = on ? node : g.nodes[node.parent];
    const forget = (id) => { expanded.delete(id); g.nodes[id].children.forEach(forget); };
    if (on) expanded.add(node.id); else forget(place.id);
    chosen = on ? node.children[0] : place.id;
    draw();
    show();
    svg.querySelector(`[data-node="${chosen}"]`)?.focus({ preventScroll: true });
    $("graph-status").textContent = on ? `${node.name} is shown as its ${node.children.length} parts.` : `${place.name} is one node again.`;
  }
  function choose(id, focus) {
    chosen = id;
    mark();
    show();
    if (focus) $("graph-node").focus();
  }

  function draw() {
    current = shownGraph(g, expanded);
    const { shown, between } = current, at = new Map(shown.map((node, i) => [node.id, i]));
    const all = between.filter((edge) => edge.from !== edge.to), drawn = all.sort((a, b) => b.n - a.n).slice(0, MOST_DRAWN);
    const placed = layered(shown.length, drawn.map(({ from, to }) => [at.get(from), at.get(to)]), NODE);
    const few = drawn.length <= MOST_LABELS, largest = Math.log1p(Math.max(1, ...drawn.map((edge) => edge.nbytes)));
    sized(svg, Math.max(placed.width + 20, 200), placed.height + 16).replaceChildren();
    const lines = shape("g", { transform: "translate(6 8)" }), labels = shape("g", { transform: "translate(6 8)" }), boxes = shape("g", { transform: "translate(6 8)" });
    drawn.forEach((edge, i) => {
      const points = placed.routes[i], text = `${g.nodes[edge.from].name} → ${g.nodes[edge.to].name}: ${plural(edge.n)}, ${bytesOfEdge(edge)}`;
      const line = titled(shape("path", { class: "edge", d: curve(points), "data-from": edge.from, "data-to": edge.to, "data-n": edge.n, "data-bytes": edge.nbytes, "stroke-width": (1 + 3 * (Math.log1p(edge.nbytes) / largest)).toFixed(2) }), text);
      const [a, b] = points, [[x2, y2], [x1]] = [points.at(-1), points.at(-2)], way = x2 > x1 ? 1 : -1;
      lines.append(line, shape("path", { class: "arrow", "data-from": edge.from, "data-to": edge.to, d: `M${x2} ${y2}l${-7 * way} -4v8z` }));
      labels.append(shape("text", { class: few ? "edge-label" : "edge-label many", "data-from": edge.from, "data-to": edge.to, x: (a[0] + b[0]) / 2, y: (a[1] + b[1]) / 2 - 3, "text-anchor": "middle" }, `${edge.n.toLocaleString("en")} · ${edge.unknown === edge.n ? "–" : sizeText(edge.nbytes)}`));
    });
    const own = new Map(between.filter((edge) => edge.from === edge.to).map((edge) => [edge.from, edge]));
    shown.forEach((node, i) => boxes.append(box(node, placed.nodes[i], own.get(node.id))));
    svg.append(lines, labels, boxes);
    $("graph-hint").hidden = few;
    $("graph-left-out").textContent = all.length > drawn.length ? ` ${(all.length - drawn.length).toLocaleString("en")} arrows with the fewest dependencies are not drawn; the tables of nodes have them.` : "";
    mark();
  }
  function box(node, [x, y], own) {
    const made = shape("g", { class: "node", transform: `translate(${x} ${y})`, tabindex: 0, role: "button", "data-node": node.id, "aria-label": label(node), "aria-pressed": "false" });
    const more = node.children.length > 0;
    const marks = [own && `↻${own.n.toLocaleString("en")}`, node.erred && `✕${node.erred.toLocaleString("en")}`].filter(Boolean).join(" ");
    made.append(titled(shape("rect", { class: "node-box", width: NODE.width, height: NODE.height, rx: 4 }), label(node)),
      shape("rect", { width: 6, height: NODE.height, rx: 2, fill: colorOf(node.prefix), class: "stripe" }),
      shape("text", { x: 12, y: 16 }, middleLeftOut(node.name, (more ? 19 : 21) - (marks.length && marks.length + 2))),
      shape("text", { x: NODE.width - (more ? 22 : 6), y: 16, class: node.erred ? "bad-text" : "dim-text", "text-anchor": "end" }, marks),
      shape("text", { x: 12, y: 32, class: "dim-text" }, `${node.n.toLocaleString("en")} · ${durationText(node.seconds)} · ${sizeText(node.nbytes)}`));
    if (more) {
      const plus = shape("text", { class: "plus", x: NODE.width - 16, y: 18 }, "+");
      plus.addEventListener("click", (event) => { event.stopPropagation(); expand(node, true); });
      made.append(plus);
    }
    made.addEventListener("click", () => choose(node.id, false));
    made.addEventListener("dblclick", () => expand(node, true));
    made.addEventListener("keydown", (event) => {
      const act = { Enter: () => choose(node.id, true), " ": () => choose(node.id, true), "+": () => expand(node, true), "=": () => expand(node, true), "-": () => expand(node, false), Escape: () => choose(-1, false) }[event.key];
      if (act && !event.ctrlKey && !event.metaKey) { event.preventDefault(); act(); }
    });
    return made;
  }
  function mark() {
    for (const node of svg.querySelectorAll(".node")) node.setAttribute("aria-pressed", String(Number(node.dataset.node) === chosen));
    for (const edge of svg.querySelectorAll("[data-from]")) edge.classList.toggle("of-chosen", Number(edge.dataset.from) === chosen || Number(edge.dataset.to) === chosen);
  }

  function show() {
    const panel = $("graph-node"), node = g.nodes[chosen];
    panel.replaceChildren();
    panel.hidden = !node;
    if (!node) return;
    const head = element("h3"), tools = element("div", undefined, { className: "tools" }), facts = element("dl", undefined, { className: "pairs" });
    head.append(element("bdi", node.name), " ", element("small", node.kind === "others" ? "" : node.kind));
    const button = (text, act) => { const made = element("button", text, { type: "button" }); made.addEventListener("click", act); tools.append(made); };
    if (node.children.length) button(`Show its ${node.children.length} parts`, () => expand(node, true));
    if (node.parent >= 0) button(`Back to ${shortened(g.nodes[node.parent].name, 40)}`, () => expand(node, false));
    if (node.kind !== "others") {
      const filter = element("button", node.kind === "group" ? "Show its prefix on timeline" : "Show on timeline", { type: "button" });
      Object.assign(filter.dataset, node.kind === "task" ? { filter: "key", value: node.name } : { filter: "prefix", value: node.prefix });
      tools.append(filter);
    }
    const fact = (name, value) => { const dd = element("dd"); dd.append(element("bdi", value)); facts.append(element("dt", name), dd); };
    fact("tasks", `${node.n.toLocaleString("en")}${node.erred ? `, ${node.erred.toLocaleString("en")} failed` : ""}`);
    fact("compute", durationText(node.seconds));
    fact("results", sizeText(node.nbytes));
    if (node.kind !== "others") contentsOf(g.contents[node.prefix] || [], node.kind === "prefix" ? "" : "of its prefix, ").forEach(([name, value]) => fact(name, value));
    const tables = element("div", undefined, { className: "two" });
    for (const [caption, here, there] of [["Depends on", "to", "from"], ["Needed by", "from", "to"]]) {
      const found = current.between.filter((edge) => edge[here] === chosen).sort((a, b) => b.nbytes - a.nbytes || b.n - a.n);
      if (found.length) tables.append(tableOf(caption, ["node", "dependencies", "bytes"], found.slice(0, 50).map((edge) => [g.nodes[edge[there]].name, [edge.n.toLocaleString("en"), edge.n], [bytesOfEdge(edge), edge.unknown === edge.n ? "" : edge.nbytes]])));
      if (found.length > 50) tables.append(element("p", `and ${found.length - 50} more`, { className: "note" }));
    }
    panel.append(head, tools, facts, tables);
  }
  $("graph-collapse").addEventListener("click", () => { expanded.clear(); chosen = -1; draw(); show(); $("graph-status").textContent = ""; });
  draw();
  return { g, expanded, expand, shown: () => current };
}

// What tasks of a prefix call and contain, as names and values of facts.
function contentsOf(found, of) {
  if (!found.length) return [["contains", "–"]];
  return found.flatMap(({ n, functions, layers, more }) => [
    [`${of}${counted(n, "task")} ${n === 1 ? "calls" : "call"}`, `${functions.join(" → ") || "no function: data"}${more ? ` and ${more} more` : ""}`],
    ["fused into each", layers.join(", ") || "nothing"],
  ]);
}

function curve(points) {
  let d = `M${points[0][0]} ${points[0][1].toFixed(1)}`;
  for (let i = 1; i < points.length; i++) {
    const [[x0, y0], [x1, y1]] = [points[i - 1], points[i]], half = (x0 + x1) / 2;
    d += Math.abs(y0 - y1) < 0.5 ? `L${x1} ${y1.toFixed(1)}` : `C${half} ${y0.toFixed(1)} ${half} ${y1.toFixed(1)} ${x1} ${y1.toFixed(1)}`;
  }
  return d;
}
