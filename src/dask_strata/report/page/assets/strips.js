// Strips above the timeline, on its time axis: times, critical path, events and stopped processes.

const STRIPS = [
  { name: "stopped", lines: [["collecting", "#e8590c"], ["blocked", "#6f42c1"]], spell: (v) => `${v} % of a process` },
];

function drawStrips(m, view, canvas) {
  const width = canvas.parentElement.clientWidth, inner = width - GUTTER;
  const strips = STRIPS.filter((s) => [...(s.stack || []), ...(s.lines || [])].some(([name]) => m.facts.series[name]));
  const pathHeight = m.facts.path.length ? 20 : 0, eventHeight = m.events.length ? 30 : 0;
  const top = 22 + pathHeight + eventHeight, height = top + strips.length * 56;
  const g = prepared(canvas, width, height), colors = theme(), scale = inner / (view.b - view.a);
  const x = (t) => GUTTER + (t - view.a) * scale;
  g.fillStyle = colors.dim;
  g.textAlign = "center";
  for (const t of ticks(view, inner)) {
    g.fillRect(Math.round(x(t)), 16, 1, height - 16);
    g.fillText(spell(t), Math.min(x(t), width - 24), 8);
  }
  g.save();
  g.beginPath();
  g.rect(GUTTER, 0, inner, height);
  g.clip();
  let drawnTo = -1;
  for (const [cause, start, length] of m.facts.path) {
    const a = x(start), b = x(start + length);
    if (b < GUTTER || a > width || b < drawnTo) continue;
    g.fillStyle = m.facts.causes[cause][1];
    g.fillRect(a, 20, Math.max(b - a, 0.5), pathHeight - 4);
    drawnTo = Math.max(a + 0.25, drawnTo);
  }
  drawEvents(g, m, view, x, 22 + pathHeight, colors);
  strips.forEach((strip, n) => drawStrip(g, m, strip, x, top + n * 56, 50, view, colors));
  g.restore();
  g.textAlign = "left";
  g.fillStyle = colors.fg;
  g.fillText("time", 0, 8);
  if (pathHeight) g.fillText("critical path", 0, 28);
  if (eventHeight) g.fillText("events", 0, 28 + pathHeight);
  strips.forEach((strip, n) => {
    const y = top + n * 56;
    g.fillStyle = colors.fg;
    g.fillText(strip.name, 0, y + 10);
    g.fillStyle = colors.dim;
    g.fillText(`up to ${strip.spell(highest(m, strip))}`, 0, y + 26);
    let at = 0;
    for (const [name, color] of [...(strip.stack || []), ...(strip.lines || [])]) {
      g.fillStyle = color;
      g.fillRect(at, y + 41, 10, 3);
      g.fillStyle = colors.dim;
      g.fillText(name, at + 13, y + 42);
      at += g.measureText(name).width + 20;
    }
  });
}

function highest(m, strip) {
  const series = m.facts.series, sums = [];
  for (const [name] of strip.stack || []) (series[name] || []).forEach((v, i) => { sums[i] = (sums[i] || 0) + (v || 0); });
  let most = sums.reduce((a, b) => Math.max(a, b), 0);
  for (const [name] of strip.lines || []) for (const v of series[name] || []) most = Math.max(most, v || 0);
  return most;
}

function drawStrip(g, m, strip, x, top, height, view, colors) {
  const series = m.facts.series, step = series.step, most = highest(m, strip) || 1;
  const low = Math.max(0, Math.floor(view.a / step) - 1), high = Math.ceil(view.b / step) + 1;
  const below = [];
  g.fillStyle = colors.lane;
  g.fillRect(GUTTER, top + height - 1, 1e5, 1);
  for (const [name, color] of strip.stack || []) {
    const values = series[name];
    if (!values) continue;
    g.fillStyle = color;
    for (let i = low; i < Math.min(high, values.length); i++) {
      if (values[i] === null) continue;
      const from = below[i] || 0, to = from + values[i];
      below[i] = to;
      const left = Math.round(x(i * step)), right = Math.round(x((i + 1) * step));  // whole pixels, to avoid seams
      g.fillRect(left, top + height - (to / most) * height, Math.max(right - left, 1), ((to - from) / most) * height);
    }
  }
  for (const [name, color] of strip.lines || []) {
    const values = series[name];
    if (!values) continue;
    g.strokeStyle = color;
    g.lineWidth = 1.5;
    g.beginPath();
    let on = false;
    for (let i = low; i < Math.min(high, values.length); i++) {
      if (values[i] === null) { on = false; continue; }
      const y = top + height - 1 - (values[i] / most) * (height - 3);
      if (on) g.lineTo(x((i + 0.5) * step), y); else g.moveTo(x((i + 0.5) * step), y);
      on = true;
    }
    g.stroke();
  }
}
