// Entry point: sortable tables, filters, search and the selected task.

function sortable(table) {
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = element("button", head.textContent, { type: "button", className: "sort" });
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const falling = head.getAttribute("aria-sort") !== "descending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", falling ? "descending" : "ascending");
      const value = (row) => { const cell = row.cells[column]; return "v" in cell.dataset ? (cell.dataset.v === "" ? -Infinity : Number(cell.dataset.v)) : cell.textContent.trim().toLowerCase(); };
      const rows = [...table.tBodies[0].rows].map((row) => [value(row), row]);
      rows.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0) * (falling ? -1 : 1));
      table.tBodies[0].append(...rows.map(([, row]) => row));
    });
  });
}

async function begin() {
  document.querySelectorAll("table.sortable").forEach(sortable);
  const $ = (id) => document.getElementById(id);
  const resources = unpack("resources-data"), m = await readModel();
  $("timeline-app").hidden = m.n === 0;
  m.events = eventsOf(m);
  const filters = { prefix: $("f-prefix"), worker: $("f-worker"), client: $("f-client"), span: $("f-span"), state: $("f-state") };
  const option = (select, value, text) => select.append(element("option", text, { value }));
  for (const [name] of [...m.facts.prefixes].sort()) option(filters.prefix, name, name);
  for (const [worker, name] of new Map(m.facts.rows.map((row) => [row[0], row[1]]))) option(filters.worker, worker, name ? `${name} · ${worker}` : worker);
  for (const name of m.facts.clients) option(filters.client, name, name);
  filters.client.parentElement.hidden = !m.client;
  for (const name of m.facts.spans) option(filters.span, name, name);
  filters.span.parentElement.hidden = !m.span;
  const present = new Set(m.outcome);
  m.facts.outcomes.forEach((name, i) => { if (present.has(i)) option(filters.state, name, name); });

  const choose = (i, { quiet = false } = {}) => {
    markLineage(m, i);
    showTask(m, i, (bar) => { choose(bar); timeline.reveal(bar); });
    timeline.redraw();
    if (i >= 0 && quiet) $("status").textContent = describe(m, i).slice(0, 3).join(", ");
  };
  const panel = makeResources(m, readResources(m, await resources));
  const timeline = makeTimeline(m, choose, panel);
  if (m.facts.resources.workers.length > 1) filters.worker.addEventListener("change", () => panel.follow(filters.worker.value));
  const filter = () => {
    const values = Object.fromEntries(Object.entries(filters).map(([name, select]) => [name, select.value]));
    const count = showOnly(m, values);
    timeline.filtered++;
    $("status").textContent = count === m.n ? "" : `${count.toLocaleString("en")} of ${m.n.toLocaleString("en")} attempts are shown.`;
    timeline.redraw();
  };
  Object.values(filters).forEach((select) => select.addEventListener("change", filter));
  $("clear").addEventListener("click", () => {
    Object.values(filters).forEach((select) => { select.value = ""; });
    $("search").value = "";
    $("found").hidden = true;
    panel.choose(0);
    choose(-1);
    timeline.mark([]);
    filter();
  });
  legend(m, $("legend"));
  makeLinks(m, filters, timeline, choose, filter, panel);
  makePictures(timeline, $);
  document.querySelectorAll("main table.sortable").forEach(downloadable);
  timeline.draw();
  document.body.dataset.firstDrawing = Math.round(performance.now());
  await readKeys(m);
  const graph = await drawCharts(m);
  timeline.links.restore();
  find(m, $, (task) => { const bar = m.barsOf(task).at(-1); choose(bar); timeline.reveal(bar); });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-filter]");
    if (!button) return;
    const { filter: kind, value } = button.dataset;
    if (kind === "key") { $("search").value = value; $("search").dispatchEvent(new Event("input")); } else { filters[kind].value = value; filter(); }
    $("timeline").scrollIntoView();
  });
  for (const item of document.querySelectorAll("li[data-intervals]")) {
    const button = item.querySelector("button.locate");
    button.hidden = m.n === 0;
    button.addEventListener("click", () => {
      timeline.mark(JSON.parse(item.dataset.intervals));
      $("timeline").scrollIntoView();
    });
  }
  globalThis.strata = { model: m, timeline, choose, panel, csv: csvOf, graph };
  document.body.dataset.ready = "yes";
}

function find(m, $, choose) {
  const box = $("search"), found = $("found");
  box.disabled = !m.key;
  const close = (event) => { if (event.key === "Escape") { found.hidden = true; box.focus(); } };
  box.addEventListener("keydown", close);
  found.addEventListener("keydown", close);
  document.addEventListener("pointerdown", (event) => { if (!event.target.closest("#found, #search")) found.hidden = true; });
  box.addEventListener("input", () => {
    found.replaceChildren();
    found.hidden = box.value === "";
    if (found.hidden) return;
    const { found: tasks, count, exact } = search(m, box.value, 20);
    found.append(element("p", `${count.toLocaleString("en")} ${count === 1 ? "key" : "keys"} found`, { className: "note" }));
    for (const task of tasks) {
      const button = element("button", m.key(task), { type: "button", className: "link" });
      button.addEventListener("click", () => { choose(task); found.hidden = true; });
      found.append(button);
    }
    if (count === 1 || exact === 1) choose(tasks[0]);
  });
}

function legend(m, list) {
  const used = new Set(m.partKind);
  const entries = m.facts.prefixes.slice(0, 24).map(([name, color], i) => [name, color, m.facts.patterns[i]]).concat(m.facts.phases.filter((_, i) => used.has(i)));
  if (m.outcome.includes(1)) entries.push(["failed", "#000000"]);
  for (const [name, color, pattern = 0] of entries) {
    const item = element("li");
    item.append(swatch(color, pattern), " ", element("bdi", name));
    list.append(item);
  }
  if (m.facts.prefixes.length > 24) list.append(element("li", `and ${m.facts.prefixes.length - 24} more prefixes`));
}

begin().catch((error) => {
  const note = document.getElementById("timeline-note");
  note.textContent = `The timeline could not be drawn: ${error.message}. The tables are complete.`;
  console.error(error);
});
