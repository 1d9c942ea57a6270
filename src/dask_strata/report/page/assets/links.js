// Permalinks: the address contains the view, the filters and the selected task. All of it may be
// wrong or hostile: only values that the page itself offers are used.

// Times are in seconds from the start of the run, such as t=1.5-3.
function parsedLink(hash) {
  const text = hash.replace(/^#/, "");
  if (!text.includes("=") || text.length > 20000) return null;
  const found = new URLSearchParams(text);
  const range = /^(-?\d{1,12}(?:\.\d{1,9})?)-(-?\d{1,12}(?:\.\d{1,9})?)$/.exec(found.get("t") || "");
  const [a, b] = range ? [Number(range[1]) * 1e6, Number(range[2]) * 1e6] : [NaN, NaN];
  return { range: a < b ? [a, b] : null, get: (name) => found.get(name) || "" };
}

const linkTime = (us) => String(Number((us / 1e6).toFixed(6)));

function makeLinks(m, filters, timeline, choose, filter, panel) {
  let waiting = 0, ready = false, written = null;
  const current = () => {
    const parts = new URLSearchParams();
    if (!timeline.whole()) parts.set("t", `${linkTime(timeline.view.a)}-${linkTime(timeline.view.b)}`);
    if (m.chosen >= 0 && m.key) {
      parts.set("key", m.key(m.task[m.chosen]));
      const bars = m.barsOf(m.task[m.chosen]);
      if (bars.length > 1) parts.set("attempt", String(bars.indexOf(m.chosen) + 1));
    }
    for (const [name, select] of Object.entries(filters)) if (select.value) parts.set(name, select.value);
    if (panel.row && !filters.worker.value) parts.set("resources", document.getElementById("r-worker").selectedOptions[0].textContent);
    return parts.toString();
  };
  const write = () => {
    waiting = 0;
    const text = current();
    if (text === written || (text === "" && written === null)) return;
    written = text;
    // Frames without an address of their own refuse this.
    try { history.replaceState(history.state, "", text ? `#${text}` : location.href.replace(/#.*$/, "")); } catch { /* without a permalink */ }
  };
  const links = {
    current,
    changed: () => { if (ready && !waiting) waiting = setTimeout(write, 250); },
    restore: () => {
      const link = parsedLink(location.hash);
      ready = true;
      if (!link) return;
      written = location.hash.slice(1);
      for (const [name, select] of Object.entries(filters)) {
        const wanted = link.get(name);
        select.value = [...select.options].some((option) => option.value === wanted) ? wanted : "";
      }
      filter();
      if (filters.worker.value && m.facts.resources.workers.length > 1) panel.follow(filters.worker.value);
      const shown = [...document.getElementById("r-worker").options].find((option) => option.textContent === link.get("resources"));
      if (shown) panel.choose(Number(shown.value));
      const task = link.get("key") && m.key ? taskOf(m, link.get("key")) : -1;
      const bars = task >= 0 ? m.barsOf(task) : [], bar = bars[Number(link.get("attempt")) - 1] ?? bars.at?.(-1) ?? -1;
      if (m.n) choose(bar);
      if (link.range) timeline.show(...link.range); else if (bar >= 0) timeline.reveal(bar); else timeline.fit();
      if (link.range || bar >= 0) document.getElementById("timeline").scrollIntoView();
    },
  };
  timeline.links = links;
  timeline.onDraw = links.changed;
  addEventListener("hashchange", () => { if (location.hash.slice(1) !== written) links.restore(); });
  return links;
}

function taskOf(m, key) {
  const tasks = m.task.reduce((a, b) => Math.max(a, b), -1) + 1;
  for (let task = 0; task < tasks; task++) if (m.key(task) === key) return task;
  return -1;
}
