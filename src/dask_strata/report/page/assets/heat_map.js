// Transfers between workers: a square for each pair, darker for more bytes, seconds or transfers.

const PAIR_VALUES = {
  nbytes: { of: (cell) => cell[4], spell: sizeText },
  seconds: { of: (cell) => cell[5], spell: durationText },
  n: { of: (cell) => cell[2], spell: (n) => n.toLocaleString("en") },
};
const FEW_ENDS = 8;  // up to this number, the squares have room for values

function pairText(names, cell, [row, column]) {
  const between = `${names[row]} → ${names[column]}`;
  if (!cell) return `${between}: no transfer on record`;
  const [, , n, keys, nbytes, seconds] = cell;
  return `${between}: ${counted(n, "transfer")} of ${keys === null ? "–" : counted(keys, "result")}, ${sizeText(nbytes ?? NaN)} in ${durationText(seconds ?? NaN)}, ${rateText((nbytes ?? NaN) / (seconds || NaN))}`;
}

function drawHeatMap({ matrix: { names, cells } }) {
  const svg = document.getElementById("heat"), value = document.getElementById("heat-value");
  if (!svg || !cells.length) return;
  document.getElementById("heat-app").hidden = false;
  const of = new Map(cells.map((cell) => [cell[0] * names.length + cell[1], cell]));
  const cellAt = ([row, column]) => of.get(row * names.length + column);
  let place = null, by = "nbytes", geometry = null;
  const frame = shape("rect", { class: "chosen" });

  const choose = (next) => {
    place = next;
    const { left, top, wide, high } = geometry;
    for (const [name, v] of Object.entries({ x: left + place[1] * wide, y: top + place[0] * high, width: wide - 1, height: high - 1 })) frame.setAttribute(name, v);
    svg.append(frame);
    value.textContent = pairText(names, cellAt(place), place);
  };
  const draw = (width) => {
    const n = names.length, few = n <= FEW_ENDS;
    const longest = Math.max(...names.map((name) => Math.min(name.length, 20)));
    const left = Math.min(8 + longest * 7, Math.round(width * 0.4)), most = Math.floor(left / 7);
    const wide = Math.max(few ? 62 : 12, Math.min(few ? 90 : 30, Math.floor((width - left - 8) / n))), high = few ? 30 : wide;
    const top = few ? 22 : 12 + Math.min(longest, 20) * 5.5;
    geometry = { left, top, wide, high };
    const { of: valueOf, spell: words } = PAIR_VALUES[by], largest = Math.max(...cells.map((cell) => valueOf(cell) ?? 0), 0) || 1;
    sized(svg, Math.max(left + n * wide + (few ? 8 : 60), 240), top + n * high + 34).replaceChildren();
    names.forEach((name, i) => {
      const y = top + (i + 0.5) * high + 4, x = left + (i + 0.5) * wide;
      svg.append(shape("text", { x: left - 6, y, "text-anchor": "end" }, middleLeftOut(name, most)));
      svg.append(few ? shape("text", { x, y: top - 7, "text-anchor": "middle" }, middleLeftOut(name, Math.floor(wide / 7)))
        : shape("text", { x, y: top - 5, transform: `rotate(-55 ${x} ${top - 5})` }, middleLeftOut(name, 20)));
    });
    for (let row = 0; row < n; row++) {
      for (let column = 0; column < n; column++) {
        const cell = cellAt([row, column]), v = cell ? valueOf(cell) : null, x = left + column * wide, y = top + row * high;
        const part = v === null ? 0 : 0.1 + 0.9 * (v / largest);
        svg.append(shape("rect", { class: "empty", x, y, width: wide - 1, height: high - 1 }));
        if (!cell) continue;
        svg.append(titled(shape("rect", { class: "heat", x, y, width: wide - 1, height: high - 1, "fill-opacity": part.toFixed(3), "data-pair": `${row} ${column}` }), pairText(names, cell, [row, column])));
        if (few) svg.append(shape("text", { class: part > 0.6 ? "on-dark" : "on-pale", x: x + wide / 2, y: y + high / 2 + 4, "text-anchor": "middle" }, v === null ? "–" : words(v)));
      }
    }
    const y = top + n * high + 12;
    for (let i = 0; i < 5; i++) svg.append(shape("rect", { class: "heat", x: left + i * 20, y, width: 20, height: 10, "fill-opacity": 0.1 + 0.225 * i }));
    svg.append(shape("text", { x: left - 6, y: y + 9, "text-anchor": "end" }, "0"), shape("text", { x: left + 106, y: y + 9 }, words(largest)));
    if (place) choose(place);
  };
  for (const radio of document.querySelectorAll("input[name=heat]")) {
    radio.addEventListener("change", () => { by = radio.value; draw(svg.parentElement.clientWidth); });
  }
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect(), { left, top, wide, high } = geometry;
    const at = [Math.floor((event.clientY - box.top - top) / high), Math.floor((event.clientX - box.left - left) / wide)];
    if (at.some((i) => i < 0 || i >= names.length)) { tip(event, null); return; }
    choose(at);
    tip(event, pairText(names, cellAt(at), at));
  });
  svg.addEventListener("pointerleave", (event) => tip(event, null));
  const MOVES = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  svg.addEventListener("keydown", (event) => {
    if (!(event.key in MOVES)) return;
    event.preventDefault();
    choose(place ? place.map((i, axis) => Math.min(names.length - 1, Math.max(0, i + MOVES[event.key][axis]))) : [0, 0]);
  });
  atWidths(svg.parentElement, draw);
}
