// Bars as pixels: one line of pixels per row, stretched to the row's height. Bars thinner than a
// pixel share it; the opacity of a pixel is the busy share of its time.

const GUTTER = 150, ERRED = 0xff000000;
const DIM = 0.22;

function paint(m, view, width, pixels, low, high, plain = false) {
  const scale = width / (view.b - view.a), busy = new Float32Array(width);
  const dims = m.chosen >= 0 && m.needs !== null, parts = m.partBar.length > 0, striped = !plain && m.facts.patterns.some((p) => p);
  const { start, stop, shown, ran, mark, color } = m, { patterns } = m.facts, { a, b } = view;
  for (let row = low; row < high; row++) {
    busy.fill(0);
    const base = (row - low) * width, end = m.first[row + 1];
    let i = firstAfter(m.reach, view.a, m.first[row], end);
    for (; i < end && start[i] < b; i++) {
      if (!shown[i] || stop[i] < a) continue;
      let opacity = ran[i] ? 1 : 0.3;
      if (dims && mark[i] === 0) opacity *= DIM;
      const x0 = (start[i] - a) * scale, x1 = (stop[i] - a) * scale, x = x0 | 0;
      if (x0 >= 0 && x1 < x + 1 && x < width) {  // within a pixel, as most bars of large runs
        if (busy[x] <= 0.5 || color[i] === ERRED) pixels[base + x] = color[i];
        busy[x] += (x1 - x0 > 0.02 ? x1 - x0 : 0.02) * opacity;
      } else {
        put(pixels, busy, base, width, x0, x1, color[i], opacity);
        if (striped && patterns[m.prefix[i]] && color[i] !== ERRED) stripe(pixels, base, width, x0, x1, color[i], patterns[m.prefix[i]]);
      }
      if (!parts) continue;
      for (let p = m.firstPart[i]; p < m.firstPart[i + 1]; p++) {
        put(pixels, busy, base, width, (m.partStart[p] - a) * scale, (m.partStop[p] - a) * scale,
          m.partColors[m.partKind[p]], 0.4 * opacity);
      }
    }
    for (let x = 0; x < width; x++) {
      if (busy[x] > 0) pixels[base + x] = (pixels[base + x] & 0xffffff) | (Math.max(40, Math.min(255, busy[x] * 255)) << 24);
    }
  }
}

function put(pixels, busy, base, width, x0, x1, color, opacity) {
  if (x1 <= 0 || x0 >= width) return;
  const left = x0 < 0 ? 0 : x0, right = x1 > width ? width : x1;
  const first = left | 0;
  let last = right | 0;
  if (last >= width) last = width - 1;
  if (first === last) {
    if (busy[first] <= 0.5 || color === ERRED) pixels[base + first] = color;
    busy[first] += Math.max(right - left, 0.02) * opacity;
    return;
  }
  for (let x = first; x <= last; x++) {
    const part = x === first ? first + 1 - left : x === last ? right - last : 1;
    if (part <= 0) continue;
    if (part >= 0.5 || busy[x] === 0) pixels[base + x] = color;
    busy[x] += part * opacity;
  }
}

// Stripes of a bar: pixels of it in a lighter or darker colour, so that similar colours differ.
const STRIPES = [null, [8, 3], [4, 1], [14, 9], [18, 3], [10, 8]];  // period and width in pixels
const contrast = (color) => {
  const [r, g, b] = [color & 255, (color >> 8) & 255, (color >> 16) & 255], light = 0.3 * r + 0.6 * g + 0.1 * b > 110;
  const to = (v) => (light ? v * 0.45 : 255 - (255 - v) * 0.45) | 0;
  return (0xff000000 | (to(b) << 16) | (to(g) << 8) | to(r)) >>> 0;
};
function stripe(pixels, base, width, x0, x1, color, pattern) {
  const [period, thick] = STRIPES[pattern], other = contrast(color), begin = Math.round(x0) + 2;
  if (x1 - x0 < period) return;
  const from = begin < 0 ? begin + Math.ceil(-begin / period) * period - period : begin;
  for (let x = from; x < x1 && x < width; x += period) {
    for (let k = Math.max(x, 0); k < x + thick && k < x1 - 1 && k < width; k++) if (pixels[base + k] === color) pixels[base + k] = other;
  }
}
function swatch(color, pattern) {
  const shapes = [["rect", { width: 20, height: 10, fill: color }]], stripes = STRIPES[pattern];
  for (let x = 2; stripes && x < 20; x += stripes[0]) shapes.push(["rect", { x, width: Math.min(stripes[1], 20 - x), height: 10, fill: hex(contrast(packed(color))) }]);
  return drawingOf("mark", "0 0 20 10", shapes);
}
const hex = (pixel) => `#${[pixel & 255, (pixel >> 8) & 255, (pixel >> 16) & 255].map((v) => v.toString(16).padStart(2, "0")).join("")}`;
function drawingOf(className, viewBox, shapes) {  // an SVG element from names and attributes
  const svg = (name, attributes) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [attribute, value] of Object.entries(attributes)) made.setAttribute(attribute, value);
    return made;
  };
  const made = svg("svg", { class: className, viewBox, "aria-hidden": "true" });
  made.append(...shapes.map(([name, attributes]) => svg(name, attributes)));
  return made;
}

// Times in the page are in µs.
const spell = (us) => durationText(us / 1e6);

function ticks(view, width) {
  const rough = (view.b - view.a) / Math.max(2, width / 110);
  const steps = [1, 2, 5].flatMap((s) => Array.from({ length: 13 }, (_, e) => s * 10 ** e));
  steps.push(15e6, 30e6, 60e6, 120e6, 300e6, 600e6, 1800e6, 3600e6, 7200e6, 21600e6, 86400e6);
  const step = Math.min(...steps.filter((s) => s >= rough));
  const places = [];
  for (let t = Math.ceil(view.a / step) * step; t <= view.b; t += step) places.push(t);
  return places;
}

// Where drawings go in place of their canvas, as while a picture of the view is made.
let redirected = null;

function prepared(canvas, width, height) {
  if (redirected) return redirected(canvas, width, height);
  const ratio = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = "12px system-ui, 'DejaVu Sans', sans-serif";
  context.textBaseline = "middle";
  return context;
}

function theme() {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries(["fg", "dim", "line", "mark", "lane", "bg", "edge"].map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

function clipped(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  while (text.length > 1 && context.measureText(`${text}…`).width > width) text = text.slice(0, -1);
  return `${text}…`;
}
