// P2P barriers and reschedules: a lane of labels above the timeline, and marks on it.

// Times, kinds and rows, in order. A barrier starts when all input partitions have been sent.
function eventsOf(m) {
  const barrier = Uint8Array.from(m.facts.prefixes, ([name]) => (name.startsWith("shuffle-barrier") ? 1 : 0));
  const rescheduled = m.facts.outcomes.indexOf("rescheduled"), found = [];
  if (!barrier.includes(1) && !m.outcome.includes(rescheduled)) return found;
  for (let i = 0; i < m.n; i++) {
    if (barrier[m.prefix[i]]) found.push([m.start[i], "barrier", i]);
    if (m.outcome[i] === rescheduled) found.push([m.stop[i], "rescheduled", i]);
  }
  return found.sort((a, b) => a[0] - b[0]);
}

const eventWords = (kind, n) => (kind === "barrier" ? (n > 1 ? `${n} P2P barriers` : "P2P barrier") : (n > 1 ? `${n} rescheduled` : "rescheduled"));

// Labels of the visible events: neighbours of a kind share one, and no label covers another.
function eventLabels(m, view, x, measure) {
  const labels = [], last = {};
  for (const [t, kind, i] of m.events) {
    if (t < view.a || t > view.b || !m.shown[i]) continue;
    const before = last[kind];
    if (before && x(t) < before.end) { before.n++; continue; }
    last[kind] = { x: x(t), kind, n: 1, end: x(t) + measure(eventWords(kind, 99)) + 16 };
    labels.push(last[kind]);
  }
  return labels;
}

function drawEvents(g, m, view, x, y, colors) {
  g.textAlign = "left";
  for (const label of eventLabels(m, view, x, (text) => g.measureText(text).width)) {
    const top = y + (label.kind === "barrier" ? 0 : 14);
    g.fillStyle = label.kind === "barrier" ? "#8a6fd1" : "#e8590c";
    g.fillRect(label.x - 1, top, 3, 12);
    g.fillStyle = colors.fg;
    g.fillText(eventWords(label.kind, label.n), label.x + 5, top + 6);
  }
}

function markEvents(g, m, view, x, height, yOf, left, right) {
  let drawnTo = -1;
  for (const [t, kind, i] of m.events) {
    if (t < view.a || t > view.b || !m.shown[i] || x(t) < left || x(t) > right) continue;
    if (kind === "rescheduled") { g.fillStyle = "#e8590c"; g.fillRect(x(t) - 3, yOf(i), 3, 5); continue; }
    if (x(t) < drawnTo + 1) continue;
    drawnTo = x(t);
    g.strokeStyle = "#8a6fd1";
    g.lineWidth = 1.5;
    g.setLineDash([4, 3]);
    g.beginPath();
    g.moveTo(x(t), 0);
    g.lineTo(x(t), height);
    g.stroke();
    g.setLineDash([]);
  }
}
