// By prefix: how many tasks ran at each moment, how long they ran, and on which worker.

function drawActivity({ begin, step, prefixes }) {
  const table = document.getElementById("activity-table");
  if (!table) return;
  [...table.tBodies[0].rows].forEach((row, i) => {
    const { most, color, running } = prefixes[i], n = running.length, high = Math.max(...running) || 1;
    const svg = shape("svg", { viewBox: `0 0 ${n} 26`, preserveAspectRatio: "none", role: "img", "aria-label": `Up to ${most} at once; times are in the table` });
    const points = running.flatMap((v, k) => { const y = (26 - 25 * (v / high)).toFixed(1); return [`${k},${y}`, `${k + 1},${y}`]; });
    svg.append(shape("polygon", { points: `0,26 ${points.join(" ")} ${n},26`, fill: color }));
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect(), k = Math.min(n - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * n)));
      tip(event, `${numberText(running[k])} at once\n${spell(begin + k * step)} to ${spell(begin + (k + 1) * step)} into the run`);
    });
    svg.addEventListener("pointerleave", (event) => tip(event, null));
    row.cells[1].append(svg);
  });
  table.tFoot.hidden = false;
  const axis = table.tFoot.rows[0].cells[1], svg = shape("svg", { "aria-hidden": "true" });
  axis.append(svg);
  atWidths(table.parentElement, () => {
    const width = table.tBodies[0].rows[0].cells[1].firstChild.getBoundingClientRect().width;
    const span = step * prefixes[0].running.length;
    sized(svg, width, 16).replaceChildren();
    for (const t of ticks({ a: begin, b: begin + span }, width)) {
      const x = ((t - begin) / span) * width;
      svg.append(shape("rect", { x, y: 0, width: 1, height: 4, class: "axis-line" }), shape("text", { x: Math.min(Math.max(x, 12), width - 20), y: 14, "text-anchor": "middle" }, spell(t)));
    }
  });
}

const boxText = (name, [n, low, q1, median, q3, high]) => `${name}: ${counted(n, "attempt")}, ${durationText(low)} to ${durationText(high)}; half of them ${durationText(q1)} to ${durationText(q3)}, median ${durationText(median)}`;

function drawDurations({ durations, bins_per_decade: perDecade }) {
  const $ = (id) => document.getElementById(id), choice = $("durations-of");
  if (!choice || !durations.length) return;
  $("durations-app").hidden = false;
  durations.forEach(({ prefix }, i) => choice.append(element("option", prefix, { value: i })));
  const draw = (width) => {
    const one = durations[choice.value];
    $("durations-chart").replaceChildren(durationChart(one, width, perDecade));
    $("durations-note").textContent = `${counted(one.box[0], "attempt")} whose function ended; the scale of durations is logarithmic. Below, workers with the largest medians first: the box has the middle half, the line goes from the shortest to the longest, and the dashed line is the median of all.${one.others ? ` ${counted(one.others, "more worker")} with smaller medians.` : ""}`;
    const edge = (bin) => [durationText(10 ** (bin / perDecade)), 10 ** (bin / perDecade)];
    $("durations-tables").replaceChildren(
      tableOf("Durations by worker", ["worker", "attempts", "shortest", "quarter below", "median", "quarter above", "longest"],
        [["all workers", one.box], ...one.workers].map(([name, [n, ...seconds]]) => [name, [n.toLocaleString("en"), n], ...seconds.map((s) => [durationText(s), s])])),
      tableOf("Attempts by duration", ["from", "below", "attempts"], one.bins.map(([bin, n]) => [edge(bin), edge(bin + 1), [n.toLocaleString("en"), n]])),
    );
  };
  const box = $("durations-chart");
  choice.addEventListener("change", () => draw(Math.floor(box.clientWidth)));
  atWidths(box, draw);
}

function durationChart({ prefix, color, box, bins, workers }, width, perDecade) {
  const gutter = Math.min(150, Math.round(width * 0.28)), tall = 130, line = 20, top = 14, right = width - 12;
  const rows = [["all workers", box], ...workers], height = top + tall + 24 + rows.length * line + 4;
  const low = bins[0][0] / perDecade, high = (bins.at(-1)[0] + 1) / perDecade, scale = (right - gutter) / (high - low);
  const x = (seconds) => gutter + (Math.min(Math.max(Math.log10(Math.max(seconds, 1e-12)), low), high) - low) * scale;
  const svg = sized(shape("svg", { class: "chart", role: "img", "aria-label": `Durations of ${prefix}: ${boxText("all workers", box)}. The tables below have all numbers.` }), width, height);
  const most = Math.max(...bins.map(([, n]) => n));
  for (const [bin, n] of bins) {
    const left = gutter + (bin / perDecade - low) * scale, tallness = Math.max(1, (n / most) * tall);
    svg.append(titled(shape("rect", { class: "bin", x: left, y: top + tall - tallness, width: Math.max(scale / perDecade - 1, 1), height: tallness, fill: color, "data-n": n }),
      `${durationText(10 ** (bin / perDecade))} to ${durationText(10 ** ((bin + 1) / perDecade))}: ${counted(n, "attempt")}`));
  }
  svg.append(shape("rect", { class: "axis-line", x: gutter, y: top + tall, width: right - gutter, height: 1 }),
    shape("text", { x: 0, y: top + 4 }, counted(most, "attempt")), shape("text", { x: 0, y: top + tall }, "0"));
  for (const decimal of decimals(low, high, scale)) {
    const at = gutter + (Math.log10(decimal) - low) * scale;
    svg.append(shape("rect", { class: "grid-line", "data-seconds": decimal, x: at, y: top, width: 1, height: height - top - 4 }),
      shape("text", { x: Math.min(Math.max(at, 20), right - 16), y: top + tall + 15, "text-anchor": "middle" }, durationText(decimal)));
  }
  svg.append(shape("line", { class: "median-line", x1: x(box[3]), x2: x(box[3]), y1: top + tall + 22, y2: height }));
  rows.forEach(([name, each], i) => {
    const y = top + tall + 24 + i * line, [, least, q1, median, q3, longest] = each;
    const row = titled(shape("g", { class: "box" }), boxText(name, each));
    row.append(shape("rect", { x: 0, y, width: right, height: line, class: "hit" }),
      shape("text", { x: 0, y: y + 13 }, middleLeftOut(name, Math.floor(gutter / 7))),
      shape("rect", { class: "axis-line", x: x(least), y: y + line / 2, width: Math.max(x(longest) - x(least), 1), height: 1 }),
      shape("rect", { x: x(q1), y: y + 4, width: Math.max(x(q3) - x(q1), 2), height: line - 8, fill: color, class: "quartiles" }),
      shape("rect", { class: "median", x: x(median) - 1, y: y + 2, width: 2, height: line - 4 }));
    svg.append(row);
  });
  return svg;
}

// Round numbers of a logarithmic axis from 10^low to 10^high: as many as there is room for.
function decimals(low, high, scale) {
  const steps = scale > 300 ? [1, 2, 5] : [1], every = Math.ceil(60 / scale), found = [];
  for (let decade = Math.floor(low); decade <= high; decade += every) {
    for (const step of steps) found.push(step * 10 ** decade);
  }
  return found.filter((value) => value >= 10 ** (low - 1e-9) && value <= 10 ** (high + 1e-9));
}
