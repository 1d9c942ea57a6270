// Shapes of the charts. Texts of a run are set as text; sizes are attributes, as the page's policy
// forbids inline styles.

const SVG = "http://www.w3.org/2000/svg";

function shape(name, attributes = {}, text) {
  const made = document.createElementNS(SVG, name);
  for (const [attribute, value] of Object.entries(attributes)) made.setAttribute(attribute, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function titled(made, text) {
  made.append(shape("title", {}, text));
  return made;
}

function sized(svg, width, height) {
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("width", width);
  svg.setAttribute("height", height);
  return svg;
}

// The begin and the end of a text: workers on a host differ in the end of their address.
const middleLeftOut = (text, most) => (text.length <= most ? text : `${text.slice(0, Math.ceil((most - 1) / 3))}…${text.slice(-Math.floor(((most - 1) * 2) / 3))}`);
const shortened = (text, most) => (text.length <= most ? text : `${text.slice(0, most - 1)}…`);

// Shows a text beside the pointer; null hides it.
function tip(event, text) {
  const box = document.getElementById("tip");
  box.hidden = text === null;
  if (text === null) return;
  box.textContent = text;
  box.style.left = `${Math.max(4, Math.min(event.clientX + 14, window.innerWidth - box.offsetWidth - 8))}px`;
  box.style.top = `${Math.max(4, Math.min(event.clientY + 16, window.innerHeight - box.offsetHeight - 8))}px`;
}

// Calls a function now and whenever the width of a box changes.
function atWidths(box, draw) {
  let last = 0;
  const check = () => {
    const width = Math.floor(box.clientWidth);
    if (width > 0 && width !== last) { last = width; draw(width); }
  };
  check();
  new ResizeObserver(() => requestAnimationFrame(check)).observe(box);
}

// A table; cells are texts, or pairs of a text and the number behind it.
function tableOf(caption, heads, rows) {
  const table = element("table"), head = element("tr"), body = element("tbody");
  heads.forEach((name, i) => head.append(element("th", name, { scope: "col", className: i ? "n" : "" })));
  for (const row of rows) {
    const line = element("tr");
    row.forEach((cell, i) => {
      const [text, value] = Array.isArray(cell) ? cell : [cell], made = i ? element("td", text, { className: "n" }) : element("th", text, { scope: "row" });
      if (value !== undefined) made.dataset.v = value;
      line.append(made);
    });
    body.append(line);
  }
  const top = element("thead");
  top.append(head);
  table.append(element("caption", caption), top, body);
  downloadable(table);
  const box = element("div", undefined, { className: "wide", tabIndex: 0, role: "group", ariaLabel: caption });
  box.append(table);
  return box;
}

const counted = (n, noun) => `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;
