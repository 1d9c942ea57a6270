// A drawing context that writes SVG: the part of a canvas's context that the page uses.

const inXml = (text) => String(text).replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "\ufffd").replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
const rounded = (v) => Number(v.toFixed(2));

class SvgContext {
  constructor(measure) {
    this.parts = [];
    this.measureText = measure;
    Object.assign(this, { clipped: false, fillStyle: "#000", strokeStyle: "#000", lineWidth: 1, globalAlpha: 1, textAlign: "left", dash: [], path: "", box: null });
  }
  _add(name, attributes, text) {
    const written = Object.entries(attributes).map(([key, value]) => ` ${key}="${inXml(typeof value === "number" ? rounded(value) : value)}"`).join("");
    this.parts.push(text === undefined ? `<${name}${written}/>` : `<${name}${written}>${inXml(text)}</${name}>`);
  }
  get _alpha() { return this.globalAlpha < 1 ? { opacity: this.globalAlpha } : {}; }
  get _line() { return { fill: "none", stroke: this.strokeStyle, "stroke-width": this.lineWidth, ...(this.dash.length ? { "stroke-dasharray": this.dash.join(" ") } : {}), ...this._alpha }; }
  fillRect(x, y, width, height) { if (width > 0 && height > 0) this._add("rect", { x, y, width, height, fill: this.fillStyle, ...this._alpha }); }
  strokeRect(x, y, width, height) { this._add("rect", { x, y, width: Math.max(width, 0), height: Math.max(height, 0), ...this._line }); }
  fillText(text, x, y, most) {
    const anchor = { left: "start", center: "middle", right: "end" }[this.textAlign], wide = most && this.measureText(text).width > most;
    this._add("text", { x, y: y + 4, fill: this.fillStyle, "text-anchor": anchor, ...(wide ? { textLength: most, lengthAdjust: "spacingAndGlyphs" } : {}), ...this._alpha }, text);
  }
  setLineDash(dash) { this.dash = dash; }
  beginPath() { this.path = ""; this.box = null; }
  moveTo(x, y) { this.path += `M${rounded(x)} ${rounded(y)}`; }
  lineTo(x, y) { this.path += `L${rounded(x)} ${rounded(y)}`; }
  rect(x, y, width, height) { this.box = { x, y, width, height }; }
  stroke() { if (this.path) this._add("path", { d: this.path, ...this._line }); }
  save() {}
  restore() { if (this.clipped) this.parts.push("</svg>"); this.clipped = false; }
  clip() {
    const { x, y, width, height } = this.box, wide = Math.max(width, 1);
    this.parts.push(`<svg x="${x}" y="${y}" width="${wide}" height="${height}" viewBox="${x} ${y} ${wide} ${height}">`);  // hides what is outside
    this.clipped = true;
  }
  // Pixels become rectangles: neighbours of one colour on a line are one. The place of the image may
  // follow that of its visible part.
  drawImage(image, ...place) {
    const [left, top, w, h] = place.length > 4 ? place : [0, 0, image.width, image.height], [x, y, width, height] = place.slice(-4);
    const data = new Uint32Array(image.getContext("2d").getImageData(left, top, w, h).data.buffer);
    for (let row = 0; row < h; row++) {
      for (let from = 0, to; from < w; from = to) {
        const pixel = data[row * w + from];
        for (to = from + 1; to < w && data[row * w + to] === pixel; to++);
        const alpha = (pixel >>> 24) / 255;
        if (alpha) this._add("rect", { x: x + (from / w) * width, y: y + (row / h) * height, width: ((to - from) / w) * width, height: height / h, fill: hex(pixel), ...(alpha < 1 ? { "fill-opacity": alpha } : {}) });
      }
    }
  }
}
