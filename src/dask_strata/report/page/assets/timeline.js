// The timeline's canvas: the visible part of the run, drawing, mouse and keyboard.

function makeTimeline(m, onChoose, panel) {
  const $ = (id) => document.getElementById(id);
  const canvas = $("canvas"), overview = $("overview"), strips = $("strips"), tip = $("tip");
  const rows = m.facts.rows.length, span = Math.max(m.facts.span, 1);
  const height = Math.max(4, Math.min(22, Math.floor(560 / Math.max(rows, 1))));
  // Time before the first submission is folded until a button unfolds it.
  const first = m.facts.first, hasStart = first > span * 0.01;
  let low = hasStart ? first : 0;
  const view = { a: low, b: span };
  const buffer = document.createElement("canvas");
  let waiting = false, range = null, marks = [];

  const width = () => Math.max(60, canvas.parentElement.clientWidth - GUTTER);
  const timeAt = (x) => view.a + ((x - GUTTER) / width()) * (view.b - view.a);
  const xAt = (t) => GUTTER + ((t - view.a) / (view.b - view.a)) * width();

  function see(a, b) {
    const whole = span - low, length = Math.min(Math.max(b - a, 2), whole * 1.02);
    view.a = Math.max(Math.min(a, span + whole * 0.01 - length), low - whole * 0.01);
    view.b = view.a + length;
    redraw();
  }
  const fit = () => see(low, span);
  function fold(yes) {
    low = yes && hasStart ? first : 0;
    timeline.filtered++;  // the overview is drawn anew
    $("fold").setAttribute("aria-pressed", String(low === 0));
  }
  // Show a range, also one that begins in the folded time.
  function show(a, b) {
    if (a < low - (span - low) * 0.01) fold(false);
    see(a, b);
  }
  const zoom = (factor, at = (view.a + view.b) / 2) => see(at - (at - view.a) * factor, at + (view.b - at) * factor);
  const move = (part) => see(view.a + part * (view.b - view.a), view.b + part * (view.b - view.a));
  function redraw() {
    if (!waiting) { waiting = true; requestAnimationFrame(() => { waiting = false; draw(); }); }
  }

  // Of many bars, views of most of the run are made from one finer picture of all of it.
  const FINE = 8192, FINE_FROM = 200000;
  let fine = null, fineStamp = "";
  function coarse(seen, w, pixels) {
    const stamp = `${timeline.filtered} ${m.chosen}`;
    if (fine === null || fineStamp !== stamp) {
      fine = new Uint32Array(FINE * rows);
      fineStamp = stamp;
      paint(m, { a: 0, b: span }, FINE, fine, 0, rows, true);
    }
    const scale = ((seen.b - seen.a) / w) * (FINE / span), from = seen.a * (FINE / span);
    for (let x = 0; x < w; x++) {
      const begin = Math.max(0, Math.round(from + x * scale)), end = Math.min(FINE, Math.round(from + (x + 1) * scale));
      for (let row = 0; row < rows; row++) {
        let sum = 0, best = 0, color = 0;
        for (let k = row * FINE + begin; k < row * FINE + end; k++) {
          const pixel = fine[k], alpha = pixel >>> 24, rank = alpha && (pixel & 0xffffff) === 0 ? 999 : alpha;  // failed tasks are black
          sum += alpha;
          if (rank > best) { best = rank; color = pixel; }
        }
        if (sum) pixels[row * w + x] = (color & 0xffffff) | (Math.max(40, sum / (end - begin)) << 24);
      }
    }
  }

  function bars(seen, w) {
    const image = new ImageData(w, Math.max(rows, 1));
    const pixels = new Uint32Array(image.data.buffer);
    if (m.n > FINE_FROM && rows <= 512 && (seen.b - seen.a) / w > (4 * span) / FINE) coarse(seen, w, pixels);
    else paint(m, seen, w, pixels, 0, rows);
    buffer.width = w;
    buffer.height = Math.max(rows, 1);
    buffer.getContext("2d").putImageData(image, 0, 0);
    return buffer;
  }

  function draw() {
    const began = performance.now();
    // A scrollbar beside the rows must not make their axis shorter than the others.
    for (const other of [strips.parentElement, $("resources-box"), overview]) other.style.width = `${canvas.parentElement.clientWidth}px`;
    const w = width(), g = prepared(canvas, w + GUTTER, rows * height + 4), colors = theme();
    g.fillStyle = colors.lane;
    g.fillRect(GUTTER, 0, w, rows * height);
    g.imageSmoothingEnabled = false;
    const pixels = Math.round(w * (window.devicePixelRatio || 1));
    if (rows) {
      const image = bars(view, pixels);
      g.drawImage(image, GUTTER, 0, w, rows * height);
      if (colors.edge && height > 8) drawEdges(g, image, w, colors.edge);
    }
    g.fillStyle = colors.bg;
    for (let row = 1; height > 5 && row < rows; row++) g.fillRect(GUTTER, row * height - 1, w, 1);
    label(g, colors);
    markEvents(g, m, view, xAt, rows * height, (i) => m.rowOf(i) * height, GUTTER, GUTTER + w);
    outline(g, colors);
    highlight(g);
    if (range) { g.globalAlpha = 0.25; g.fillStyle = colors.mark; g.fillRect(Math.min(...range), 0, Math.abs(range[1] - range[0]), rows * height); g.globalAlpha = 1; }
    drawStrips(m, view, strips);
    panel.draw(view);
    drawOverview(colors);
    timeline.drawn = performance.now() - began;
    canvas.dataset.draws = Number(canvas.dataset.draws || 0) + 1;
    timeline.onDraw();
  }

  // A line under the bars where the theme is dark: some of Dask's colours are as dark as the lane.
  const edges = document.createElement("canvas");
  function drawEdges(g, image, w, color) {
    edges.width = image.width;
    edges.height = image.height;
    const pen = edges.getContext("2d", { willReadFrequently: true });
    pen.drawImage(image, 0, 0);
    pen.globalCompositeOperation = "source-in";
    pen.fillStyle = color;
    pen.fillRect(0, 0, image.width, image.height);
    for (let row = 0; row < rows; row++) g.drawImage(edges, 0, row, image.width, 1, GUTTER, (row + 1) * height - 3, w, 2);
  }

  function label(g, colors) {
    g.textAlign = "left";
    let last = null, free = 0;
    for (let row = 0; row < rows; row++) {
      const [worker, name] = m.facts.rows[row], y = row * height;
      if (worker === last) continue;
      last = worker;
      g.fillStyle = colors.dim;
      g.fillRect(0, y, GUTTER - 4, 1);
      if (y < free) continue;
      g.fillStyle = colors.fg;
      g.fillText(clipped(g, name ? `${name}  ${worker.replace(/^\w+:\/\//, "")}` : worker, GUTTER - 8), 0, y + Math.max(9, height / 2));
      free = y + 14;
    }
  }

  function outline(g, colors) {
    if (m.chosen < 0) return;
    const box = (i, color) => {
      const x = Math.max(xAt(m.start[i]), GUTTER), end = Math.min(xAt(m.stop[i]), GUTTER + width());
      if (end < GUTTER || x > GUTTER + width()) return;
      g.strokeStyle = color;
      g.lineWidth = 2;
      g.strokeRect(x - 1, m.rowOf(i) * height, Math.max(end - x, 1) + 2, height - 1);
    };
    for (const i of m.marked || []) box(i, m.mark[i] === 2 ? "#e8590c" : "#9c36b5");
    box(m.chosen, colors.mark);
  }

  // Intervals of an insight: a band over all rows, and a frame around the occupant's.
  function highlight(g) {
    for (const [start, stop, row] of marks) {
      const x = Math.max(xAt(start), GUTTER), end = Math.min(xAt(stop), GUTTER + width());
      if (end < GUTTER || x > GUTTER + width()) continue;
      const wide = Math.max(end - x, 1);
      g.globalAlpha = 0.18;
      g.fillStyle = "#e8590c";
      g.fillRect(x, 0, wide, rows * height);
      g.globalAlpha = 1;
      if (row < 0) continue;
      g.strokeStyle = "#e8590c";
      g.lineWidth = 2;
      g.strokeRect(x - 1, row * height, wide + 2, height - 1);
    }
  }
  function mark(intervals) {
    const rowOf = (worker, thread) => m.facts.rows.findIndex((row) => row[0] === worker && (!thread || row[2] === thread));
    marks = intervals.map(([start, stop, worker, thread]) => [start, stop, worker ? rowOf(worker, thread) : -1]);
    if (!marks.length) { redraw(); return; }
    const a = Math.min(...marks.map((each) => each[0])), b = Math.max(...marks.map((each) => each[1])), edge = (b - a) * 0.1;
    canvas.dataset.marks = marks.length;
    show(a - edge, b + edge);
  }

  let whole = null;
  function drawOverview(colors) {
    const w = width(), h = 34, g = prepared(overview, w + GUTTER, h);
    const stamp = `${w} ${timeline.filtered}`;
    if (whole === null || whole.stamp !== stamp) {
      const copy = document.createElement("canvas"), source = bars({ a: low, b: span }, w);
      copy.width = w; copy.height = source.height; copy.stamp = stamp;
      copy.getContext("2d").drawImage(source, 0, 0);
      whole = copy;
    }
    g.fillStyle = colors.lane;
    g.fillRect(GUTTER, 0, w, h);
    g.drawImage(whole, GUTTER, 0, w, h);
    const [a, b] = [Math.max(view.a, low), Math.min(view.b, span)].map((t) => GUTTER + ((t - low) / (span - low)) * w);
    g.fillStyle = colors.bg;
    g.globalAlpha = 0.55;
    g.fillRect(GUTTER, 0, a - GUTTER, h);
    g.fillRect(b, 0, GUTTER + w - b, h);
    g.globalAlpha = 1;
    g.strokeStyle = colors.mark;
    g.lineWidth = 2;
    g.strokeRect(a, 1, Math.max(b - a, 2), h - 2);
    g.textAlign = "left";
    g.fillStyle = colors.fg;
    g.fillText(low ? "from first submission" : "whole run", 0, h / 2, GUTTER - 6);
  }

  function barAt(x, y) {
    const row = Math.floor(y / height);
    if (row < 0 || row >= rows || x < GUTTER) return -1;
    const near = (2 * (view.b - view.a)) / width(), t = timeAt(x);
    let best = -1, gap = near;
    const low = m.first[row], end = firstAfter(m.start, t + near, low, m.first[row + 1]);
    for (let i = end - 1, steps = 0; i >= low && steps < 4000 && m.reach[i] >= t - near; i--, steps++) {
      if (!m.shown[i]) continue;
      let a = m.start[i], b = m.stop[i];
      for (let p = m.firstPart[i]; p < m.firstPart[i + 1]; p++) { a = Math.min(a, m.partStart[p]); b = Math.max(b, m.partStop[p]); }
      const away = Math.max(a - t, t - b, 0);
      if (away < gap || (away === 0 && best < 0)) { best = i; gap = away; }
      if (away === 0) break;
    }
    return best;
  }

  function hover(event) {
    const box = canvas.getBoundingClientRect();
    const i = barAt(event.clientX - box.left, event.clientY - box.top), t = timeAt(event.clientX - box.left);
    panel.point(t >= view.a && t <= view.b ? t : null, { quiet: true });
    if (i < 0) tip.hidden = true; else showTip(describe(m, i).join("\n"), event);
  }
  function showTip(text, event) {
    tip.hidden = text === "";
    tip.textContent = text;
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${Math.max(4, Math.min(event.clientY + 16, window.innerHeight - tip.offsetHeight - 8))}px`;
  }

  let held = null;
  canvas.addEventListener("pointerdown", (e) => {
    const x = e.clientX - canvas.getBoundingClientRect().left;
    held = { x, a: view.a, b: view.b, moved: false, choosing: e.shiftKey };
    canvas.setPointerCapture(e.pointerId);
  });
  canvas.addEventListener("pointermove", (e) => {
    if (!held) { hover(e); return; }
    const x = e.clientX - canvas.getBoundingClientRect().left;
    held.moved ||= Math.abs(x - held.x) > 3;
    if (!held.moved) return;
    tip.hidden = true;
    if (held.choosing) { range = [Math.max(held.x, GUTTER), Math.max(x, GUTTER)]; redraw(); } else {
      const shift = ((held.x - x) / width()) * (held.b - held.a);
      see(held.a + shift, held.b + shift);
    }
  });
  canvas.addEventListener("pointerup", (e) => {
    const box = canvas.getBoundingClientRect();
    if (held && !held.moved) onChoose(barAt(e.clientX - box.left, e.clientY - box.top));
    else if (range) { const [a, b] = range.map(timeAt).sort((p, q) => p - q); range = null; see(a, b); }
    held = null;
  });
  canvas.addEventListener("pointercancel", () => { held = range = null; redraw(); });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; panel.point(null, { quiet: true }); });
  canvas.addEventListener("wheel", (e) => {
    if (e.ctrlKey || e.metaKey) { e.preventDefault(); zoom(Math.exp(e.deltaY / 400), timeAt(e.clientX - canvas.getBoundingClientRect().left)); }
    else if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) { e.preventDefault(); move(e.deltaX / width()); }
  }, { passive: false });

  let brush = null;
  const overviewTime = (e) => low + ((e.clientX - overview.getBoundingClientRect().left - GUTTER) / width()) * (span - low);
  overview.addEventListener("pointerdown", (e) => { brush = overviewTime(e); overview.setPointerCapture(e.pointerId); });
  overview.addEventListener("pointermove", (e) => { if (brush !== null && Math.abs(overviewTime(e) - brush) > span / 500) see(Math.min(brush, overviewTime(e)), Math.max(brush, overviewTime(e))); });
  overview.addEventListener("pointerup", (e) => {
    const t = overviewTime(e), half = (view.b - view.a) / 2;
    if (brush !== null && Math.abs(t - brush) <= span / 500) see(t - half, t + half);
    brush = null;
  });

  function step(by) {
    let i = m.chosen < 0 ? (by > 0 ? -1 : m.n) : m.chosen;
    if (m.chosen < 0 && by > 0) i = firstAfter(m.reach, view.a, 0, m.first[1] || 0) - 1;
    do i += by; while (i >= 0 && i < m.n && !m.shown[i]);
    if (i >= 0 && i < m.n) { onChoose(i, { quiet: true }); reveal(i); }
  }
  function reveal(i) {
    const length = view.b - view.a;
    if (m.start[i] < view.a || m.stop[i] > view.b) { const middle = (m.start[i] + m.stop[i]) / 2, wide = Math.max(length, (m.stop[i] - m.start[i]) * 1.2); show(middle - wide / 2, middle + wide / 2); }
    const box = canvas.parentElement, y = m.rowOf(i) * height;
    if (y < box.scrollTop || y + height > box.scrollTop + box.clientHeight) box.scrollTop = y - box.clientHeight / 2;
  }
  const KEYS = {
    ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2), "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6),
    0: fit, Home: fit, n: () => step(1), p: () => step(-1),
    Enter: () => document.getElementById("task").focus(), Escape: () => { mark([]); onChoose(-1); },
  };
  canvas.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || !(e.key in KEYS)) return;
    e.preventDefault();
    KEYS[e.key]();
  });

  $("zoom-in").addEventListener("click", () => zoom(0.6));
  $("zoom-out").addEventListener("click", () => zoom(1 / 0.6));
  $("fit").addEventListener("click", fit);
  $("fold").hidden = !hasStart;
  $("fold").textContent = `Start-up: ${spell(first)}`;
  $("fold").addEventListener("click", () => { fold(low === 0); fit(); });
  new ResizeObserver(redraw).observe(canvas.parentElement);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  const timeline = { draw, redraw, coarse, exact: (seen, w, pixels) => paint(m, seen, w, pixels, 0, rows, true), see, show, fit, fold, zoom, reveal, mark, showTip, view, filtered: 0, drawn: 0, xAt, timeAt, yAt: (i) => (m.rowOf(i) + 0.5) * height, onDraw: () => {}, whole: () => view.a < low + 1 && view.b > span - 1, get low() { return low; } };
  panel.connect(timeline);
  return timeline;
}
