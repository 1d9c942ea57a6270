// The panel of resources under the timeline: a lane for each kind, on the timeline's axis.

const cores = (v) => `${numberText(v)} ${v === 1 ? "core" : "cores"}`;
const perSecond = (v) => `${sizeText(v)}/s`;
const LANES = [
  { name: "CPU", spell: cores, areas: [["cpu", "processes", "#8fa3b8"], ["task_cpu", "of it tasks", "#20A585"]] },
  { name: "memory", spell: sizeText, areas: [["rss", "processes", "#8fa3b8"], ["managed", "of it results", "#20A585"]], lines: [["spilled", "spilled to disk", "#b35900"]],
    limits: [["target", "target", "#3b7dd8"], ["spill", "spill", "#e08000"], ["pause", "pause", "#d63384"], ["limit", "limit", "#d62728"]] },
  { name: "files", spell: perSecond, lines: [["read", "read", "#3b7dd8"], ["written", "written", "#d64545"]] },
  { name: "disk", spell: perSecond, lines: [["storage_read", "fetched from disk", "#3b7dd8"], ["storage_written", "sent to disk", "#d64545"]] },
  { name: "network of hosts", spell: perSecond, lines: [["received", "received", "#3b7dd8"], ["sent", "sent", "#d64545"]] },
  { name: "event loop", spell: durationText, areas: [["lag", "longest delay", "#8a6fd1"]] },
  { name: "threads", spell: numberText, areas: [["busy", "busy", "#20A585"]], lines: [["threads", "connected", "#e8590c"]] },
  { name: "tasks", spell: numberText, areas: [["processing", "processing", "#8fa3b8"]] },
];
const LANE = 52, DASHES = [[], [5, 3], [2, 2], [8, 3, 2, 3]];
const seriesOf = (lane) => [...(lane.areas || []), ...(lane.lines || []), ...(lane.limits || [])];

// Numbers are stored one higher; 0 is an unknown value.
function readResources(m, c) {
  const facts = m.facts.resources, series = {};
  for (const name of Object.keys(facts.scales)) series[name] = ints(c, name);
  const rows = facts.workers.length + 2;
  const bins = Object.values(series).length ? Object.values(series)[0].length / rows : 0;
  const value = (name, row, bin) => {
    const stored = series[name] ? series[name][row * bins + bin] : 0;
    return stored ? (stored - 1) / facts.scales[name] : null;
  };
  const known = (name, row) => series[name] !== undefined && series[name].subarray(row * bins, (row + 1) * bins).some((v) => v);
  const peak = (name, row) => {
    let most = 0;
    for (let bin = 0; bin < bins; bin++) most = Math.max(most, value(name, row, bin) || 0);
    return most;
  };
  return { lanes: [], step: facts.step, workers: facts.workers, rows, bins, value, known, peak, present: Object.keys(series) };
}

function roundUp(value, base = 10) {  // the next number of 1, 2, 2.5 or 5 times a power of the base
  if (!(value > 0)) return 1;
  const power = base ** Math.floor(Math.log(value) / Math.log(base) + 1e-9);
  const steps = base === 1024 ? [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024] : [1, 2, 2.5, 5, 10];
  return power * steps.find((s) => s * power >= value * (1 - 1e-9));
}

// The top of a lane's axis. Limits belong to it only where memory comes near them.
function topOf(lane, r, row) {
  const base = lane.spell === sizeText || lane.spell === perSecond ? 1024 : 10;
  const most = Math.max(...[...(lane.areas || []), ...(lane.lines || [])].map(([name]) => r.peak(name, row)), 0);
  const limit = Math.max(...(lane.limits || []).map(([name]) => r.peak(name, row)), 0);
  if (limit && most > limit * 0.3) return Math.max(most, limit) * 1.05;
  return roundUp(most, base);
}

function lanesOf(r, row) {
  return r.lanes[row] ??= LANES.filter((lane) => [...(lane.areas || []), ...(lane.lines || [])].some(([name]) => r.known(name, row)))
    .map((lane) => ({ ...lane, top: topOf(lane, r, row) }));
}

function drawLane(g, r, row, lane, top, x, low, high, colors) {
  const height = LANE - 10, y = (v) => top + height - (v / lane.top) * height;
  const left = (bin) => Math.round(x(bin * r.step));
  g.fillStyle = colors.lane;
  g.fillRect(GUTTER, top, x.right - GUTTER, height);
  for (const [name, , color] of lane.areas || []) {
    g.fillStyle = color;
    for (let bin = low; bin < high; bin++) {
      const v = r.value(name, row, bin);
      // A known 0 is a line on the ground, an unknown value is a gap.
      const tall = v === null ? 0 : Math.max((v / lane.top) * height, 1);
      if (v !== null) g.fillRect(left(bin), top + height - tall, Math.max(left(bin + 1) - left(bin), 1), tall);
    }
  }
  (lane.lines || []).concat(lane.limits || []).forEach(([name, , color], n) => {
    g.strokeStyle = color;
    g.lineWidth = n >= (lane.lines || []).length ? 1.2 : 1.5;
    g.setLineDash(DASHES[n % 4]);
    g.beginPath();
    let on = false;
    for (let bin = low; bin < high; bin++) {
      const v = r.value(name, row, bin);
      if (v === null || v > lane.top) { on = false; continue; }
      if (!on) g.moveTo(x(bin * r.step), y(v));
      g.lineTo(x((bin + 0.5) * r.step), y(v));
      if (bin + 1 >= high || r.value(name, row, bin + 1) === null) g.lineTo(x((bin + 1) * r.step), y(v));
      on = true;
    }
    g.stroke();
  });
  g.setLineDash([]);
}

function drawResources(r, row, view, canvas, at) {
  const width = canvas.parentElement.clientWidth, lanes = lanesOf(r, row), height = lanes.length * LANE + 2;
  const g = prepared(canvas, width, height), colors = theme(), scale = (width - GUTTER) / (view.b - view.a);
  const x = (t) => GUTTER + (t - view.a) * scale;
  x.right = width;
  const low = Math.max(0, Math.floor(view.a / r.step)), high = Math.min(r.bins, Math.ceil(view.b / r.step));
  g.save();
  g.beginPath();
  g.rect(GUTTER, 0, width - GUTTER, height);
  g.clip();
  lanes.forEach((lane, n) => drawLane(g, r, row, lane, n * LANE + 6, x, low, high, colors));
  g.fillStyle = colors.line;
  for (const t of ticks(view, width - GUTTER)) g.fillRect(Math.round(x(t)), 0, 1, height);
  if (at !== null && at >= view.a && at <= view.b) { g.fillStyle = colors.mark; g.fillRect(Math.round(x(at)), 0, 1, height); }
  g.restore();
  lanes.forEach((lane, n) => {
    const top = n * LANE + 6;
    g.textAlign = "left";
    g.fillStyle = colors.fg;
    g.fillText(lane.name, 0, top + 6);
    g.textAlign = "right";
    g.fillStyle = colors.dim;
    g.fillText(lane.spell(lane.top), GUTTER - 4, top + (lane.name.length > 8 ? 20 : 6));
    g.fillText("0", GUTTER - 4, top + LANE - 15);
    g.textAlign = "left";
    const limit = (lane.limits || []).map(([name]) => r.peak(name, row)).reduce((a, b) => Math.max(a, b), 0);
    if (limit > lane.top) g.fillText(clipped(g, `limit ${lane.spell(limit)}`, GUTTER - 24), 0, top + 22);
  });
  return lanes;
}

// The values of all lanes at a time, as words.
function valuesAt(r, row, t) {
  const bin = Math.floor(t / r.step);
  if (bin < 0 || bin >= r.bins) return [];
  return lanesOf(r, row).map((lane) => [lane.name, seriesOf(lane).filter(([name]) => r.known(name, row))
    .map(([name, words]) => { const v = r.value(name, row, bin); return `${words} ${v === null ? "–" : lane.spell(v)}`; }).join(", ")]);
}

function resourceKey(r, row, list) {
  list.replaceChildren();
  for (const lane of lanesOf(r, row)) {
    const item = element("li", `${lane.name}:`);
    let lines = 0;
    for (const series of seriesOf(lane)) {
      const [name, words, color] = series, area = (lane.areas || []).includes(series), dash = area ? [] : DASHES[lines++ % 4];
      if (!r.known(name, row)) continue;
      item.append(" ", drawingOf("mark", "0 0 20 10", [area ? ["rect", { width: 20, height: 10, fill: color }] : ["line", { x1: 0, x2: 20, y1: 5, y2: 5, stroke: color, "stroke-width": 2, "stroke-dasharray": dash.join(" ") || "none" }]]), ` ${words}`);
    }
    list.append(item);
  }
}

function makeResources(m, r) {
  const $ = (id) => document.getElementById(id), canvas = $("resources"), select = $("r-worker"), tip = $("tip"), values = $("resource-values");
  let row = 0, at = null, waiting = false, timeline = null, held = null;
  $("resources-app").hidden = !r.present.length || !m.n;
  select.append(element("option", r.workers.length === 1 ? "worker" : "all workers", { value: "0" }));
  if (r.workers.length > 1) r.workers.forEach(([address, name], i) => select.append(element("option", name ? `${name} · ${address}` : address, { value: String(i + 1) })));
  if (LANES.some((lane) => seriesOf(lane).some(([name]) => r.known(name, r.rows - 1)))) select.append(element("option", "scheduler", { value: String(r.rows - 1) }));
  const choose = (wanted) => { row = wanted; select.value = String(wanted); resourceKey(r, row, $("resource-key")); timeline?.redraw(); };
  select.addEventListener("change", () => choose(Number(select.value)));
  const words = (t) => {
    const bin = Math.floor(t / r.step), found = valuesAt(r, row, t);
    return found.length ? [`${spell(bin * r.step)} to ${spell((bin + 1) * r.step)} into the run, ${select.selectedOptions[0].textContent}`, ...found.map(([name, text]) => `${name}: ${text}`)] : [];
  };
  const panel = {
    connect: (made) => { timeline = made; },
    follow: (worker) => choose(1 + r.workers.findIndex(([address]) => address === worker)),  // 0: all
    choose, words, values: (t) => valuesAt(r, row, t),
    get row() { return row; },
    data: r, lanes: () => lanesOf(r, row),
    draw: (view) => { if (!$("resources-app").hidden) drawResources(r, row, view, canvas, at); },
    point: (t, { quiet = false } = {}) => {
      at = t;
      values.setAttribute("aria-live", quiet ? "off" : "polite");
      values.textContent = t === null ? "" : words(t).join(" · ");
      if (!waiting) { waiting = true; requestAnimationFrame(() => { waiting = false; panel.draw(timeline.view); }); }
    },
  };
  const timeOf = (e) => timeline.timeAt(e.clientX - canvas.getBoundingClientRect().left);
  canvas.addEventListener("pointerdown", (e) => { held = { x: e.clientX, a: timeline.view.a, b: timeline.view.b }; canvas.setPointerCapture(e.pointerId); });
  canvas.addEventListener("pointermove", (e) => {
    if (held) { const shift = ((held.x - e.clientX) / (canvas.clientWidth - GUTTER)) * (held.b - held.a); tip.hidden = true; timeline.see(held.a + shift, held.b + shift); return; }
    const t = timeOf(e);
    if (t < timeline.view.a || t > timeline.view.b) { tip.hidden = true; return; }
    panel.point(t, { quiet: true });
    timeline.showTip(words(t).join("\n"), e);
  });
  canvas.addEventListener("pointerup", () => { held = null; });
  canvas.addEventListener("pointercancel", () => { held = null; });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; panel.point(null, { quiet: true }); });
  canvas.addEventListener("wheel", (e) => {
    if (e.ctrlKey || e.metaKey) { e.preventDefault(); timeline.zoom(Math.exp(e.deltaY / 400), timeOf(e)); }
  }, { passive: false });
  const step = (by) => {
    const from = at === null || at < timeline.view.a || at > timeline.view.b ? timeline.view.a : at;
    const t = Math.min(Math.max((Math.floor(from / r.step) + by + 0.5) * r.step, r.step / 2), (r.bins - 0.5) * r.step);
    if (t > timeline.view.b || t < timeline.view.a) timeline.see(t - (timeline.view.b - timeline.view.a) / 2, t + (timeline.view.b - timeline.view.a) / 2);
    panel.point(t);
  };
  const KEYS = { ArrowLeft: () => step(-1), ArrowRight: () => step(1), "+": () => timeline.zoom(0.6), "=": () => timeline.zoom(0.6), "-": () => timeline.zoom(1 / 0.6), 0: () => timeline.fit(), Escape: () => panel.point(null) };
  canvas.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || !(e.key in KEYS)) return;
    e.preventDefault();
    KEYS[e.key]();
  });
  choose(0);
  return panel;
}
