// The view as a picture: the strips, the timeline, the resources, and the keys of colours.

const PICTURED = ["strips", "canvas", "resources"];

const nameOfRun = () => document.querySelector("h1 bdi").textContent;

function save(blob, ending) {
  const link = element("a", undefined, { href: URL.createObjectURL(blob), download: `${nameOfRun().replace(/[^\w.-]+/g, "-").slice(0, 80) || "run"}${ending}` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// Entries of the legends, as pairs of shapes and words.
function keysOfColors() {
  return [...document.querySelectorAll("#legend li, #resource-key li")].map((item) => [...item.childNodes].flatMap((node) => (node.tagName === "svg" ? [node] : [node.textContent.trim()])).filter((part) => part !== ""));
}

function drawKeys(g, top, width, colors) {
  let x = 4, y = top + 10;
  g.textAlign = "left";
  for (const entry of keysOfColors()) {
    const long = entry.reduce((sum, part) => sum + (typeof part === "string" ? g.measureText(part).width + 8 : 26), 8);
    if (x + long > width && x > 4) { x = 4; y += 18; }
    for (const part of entry) {
      if (typeof part === "string") {
        const text = clipped(g, part, width - x - 4);
        g.fillStyle = colors.fg;
        g.fillText(text, x, y);
        x += g.measureText(text).width + 8;
        continue;
      }
      if (part.firstChild.tagName === "rect") { g.strokeStyle = colors.dim; g.lineWidth = 1; g.strokeRect(x - 0.5, y - 5.5, 21, 11); }
      for (const shape of part.children) {
        const of = (name) => Number(shape.getAttribute(name));
        if (shape.tagName === "rect") { g.fillStyle = shape.getAttribute("fill"); g.fillRect(x + of("x"), y - 5, of("width"), 10); continue; }
        g.strokeStyle = shape.getAttribute("stroke");
        g.lineWidth = 2;
        g.setLineDash((shape.getAttribute("stroke-dasharray").match(/\d+/g) || []).map(Number));
        g.beginPath();
        g.moveTo(x, y);
        g.lineTo(x + 20, y);
        g.stroke();
        g.setLineDash([]);
      }
      x += 26;
    }
    x += 8;
  }
  return y + 14;
}

function titleOfView(timeline) {
  const { a, b } = timeline.view, resources = document.getElementById("resources-app").hidden ? null : document.getElementById("r-worker");
  return `${nameOfRun()}: ${spell(Math.max(a, 0))} to ${spell(b)} into the run${resources ? `; resources of ${resources.selectedOptions[0].textContent}` : ""}`;
}

function svgOf(timeline) {
  const colors = theme(), pen = document.createElement("canvas").getContext("2d"), drawn = new Map(), sizes = new Map();
  pen.font = "12px system-ui, 'DejaVu Sans', sans-serif";
  const measure = (text) => pen.measureText(text);
  redirected = (canvas, width, height) => {
    const context = new SvgContext(measure);
    drawn.set(canvas.id, context);
    sizes.set(canvas.id, [width, height]);
    return context;
  };
  try { timeline.draw(); } finally { redirected = null; }
  const width = Math.max(...PICTURED.map((id) => (sizes.get(id) || [0])[0])), parts = [];
  let y = 30;
  for (const id of PICTURED) {
    if (!drawn.has(id)) continue;
    parts.push(`<g transform="translate(8 ${y})">${drawn.get(id).parts.join("")}</g>`);
    y += sizes.get(id)[1] + 6;
  }
  const keys = new SvgContext(measure), end = drawKeys(keys, y, width, colors), head = new SvgContext(measure);
  head.fillStyle = colors.fg;
  head.fillText(titleOfView(timeline), 0, 14);
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width + 16}" height="${end}" viewBox="0 0 ${width + 16} ${end}" font-family="system-ui, 'DejaVu Sans', sans-serif" font-size="12"><rect width="100%" height="100%" fill="${inXml(colors.bg)}"/><g transform="translate(8 0)">${head.parts.join("")}${keys.parts.join("")}</g>${parts.join("")}</svg>`;
}

function pngOf(timeline) {
  timeline.draw();
  const ratio = window.devicePixelRatio || 1, colors = theme(), sources = PICTURED.map((id) => document.getElementById(id)).filter((canvas) => canvas.clientWidth);
  const width = Math.max(...sources.map((canvas) => canvas.width / ratio)) + 16, made = document.createElement("canvas");
  const draw = (g, height) => {
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.font = "12px system-ui, 'DejaVu Sans', sans-serif";
    g.textBaseline = "middle";
    g.fillStyle = colors.bg;
    g.fillRect(0, 0, width, height);
    g.fillStyle = colors.fg;
    g.fillText(titleOfView(timeline), 8, 14);
    let y = 30;
    for (const canvas of sources) { g.drawImage(canvas, 8, y, canvas.width / ratio, canvas.height / ratio); y += canvas.height / ratio + 6; }
    return drawKeys(g, y, width - 8, colors);
  };
  const height = draw(document.createElement("canvas").getContext("2d"), 1);
  made.width = Math.round(width * ratio);
  made.height = Math.round(height * ratio);
  draw(made.getContext("2d"), height);
  return new Promise((done) => { made.toBlob(done, "image/png"); });
}

function makePictures(timeline, $) {
  timeline.svg = () => svgOf(timeline);
  timeline.png = () => pngOf(timeline);
  $("save-svg").addEventListener("click", () => save(new Blob([timeline.svg()], { type: "image/svg+xml" }), ".svg"));
  $("save-png").addEventListener("click", async () => save(await timeline.png(), ".png"));
}
