// One attempt: its tooltip, and its details when it is selected. All data of a run are set as text,
// never as HTML.

function element(name, text, properties = {}) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  return Object.assign(made, properties);
}

function phasesOf(m, i) {
  const found = m.ran[i] ? [`compute ${spell(m.stop[i] - m.start[i])}`] : [`on the worker ${spell(m.stop[i] - m.start[i])}`];
  for (let p = m.firstPart[i]; p < m.firstPart[i + 1]; p++) found.push(`${m.facts.phases[m.partKind[p]][0]} ${spell(m.partStop[p] - m.partStart[p])}`);
  return found.join(" · ");
}

function factsOf(m, i) {
  const [worker, name, thread, host, pid] = m.facts.rows[m.rowOf(i)];
  const unknown = (column, words) => (m.facts.absent.includes(column) ? "left out of a large page" : words);
  const facts = [
    ["prefix", m.facts.prefixes[m.prefix[i]][0]],
    ...(m.client ? [["client", m.facts.clients[m.client[i]] || "not on record"]] : []),
    ...(m.span && m.facts.spans[m.span[i]] ? [["span", m.facts.spans[m.span[i]]]] : []),
    ["state", m.facts.outcomes[m.outcome[i]]],
    ["worker", name ? `${name}, ${worker}` : worker],
    ["host", host || "not on record"],
    ["process", pid ? `pid ${pid}` : "not on record"],
    ["thread", thread || "not on record"],
    ["started", `${spell(m.start[i])} into the run`],
    ["phases", phasesOf(m, i)],
    ["CPU", m.cpu[i] > 0 ? spell(m.cpu[i] - 1) : unknown("cpu", "not on record")],
    ["CPU of other threads", m.otherCpu[i] > 0 ? spell(m.otherCpu[i] - 1) : unknown("other_cpu", "not known")],
    ["result", m.nbytes[i] > 0 ? sizeText(m.nbytes[i] - 1) : unknown("nbytes", "not on record")],
    ["read", m.read[i] > 0 ? sizeText(m.read[i] - 1) : unknown("read_bytes", "not on record")],
  ];
  if (m.needs) facts.push(["inputs", m.needs(m.task[i]).length], ["needed by", m.neededBy(m.task[i]).length]);
  const exception = m.facts.exceptions[i];
  if (exception) facts.push(["exception", exception]);
  if (m.facts.worker_ends[i]) facts.push(["ended with", m.facts.worker_ends[i]]);
  return facts;
}

const titleOf = (m, i) => (m.key ? m.key(m.task[i]) : m.facts.prefixes[m.prefix[i]][0]);
const describe = (m, i) => [titleOf(m, i), ...factsOf(m, i).map(([name, value]) => `${name}: ${value}`)];

function neighbours(m, title, tasks, choose) {
  const box = element("div");
  box.append(element("h4", `${title}: ${tasks.length.toLocaleString("en")}`));
  const list = element("ul");
  for (const task of tasks.slice(0, 20)) {
    const button = element("button", m.key(task), { type: "button", className: "link" });
    button.addEventListener("click", () => choose(m.barsOf(task).at(-1)));
    const item = element("li");
    item.append(button);
    list.append(item);
  }
  box.append(list);
  if (tasks.length > 20) box.append(element("p", `and ${(tasks.length - 20).toLocaleString("en")} more`, { className: "note" }));
  return box;
}

function filesOf(m, task) {
  const files = m.filesOf(task), box = element("div"), list = element("ul");
  box.append(element("h4", `Files: ${files.length.toLocaleString("en")}`));
  for (const line of files.slice(0, 20)) {
    const item = element("li");
    item.append(element("bdi", line));
    list.append(item);
  }
  box.append(list);
  if (files.length > 20) box.append(element("p", `and ${(files.length - 20).toLocaleString("en")} more`, { className: "note" }));
  return box;
}

function showTask(m, i, choose) {
  const panel = document.getElementById("task");
  panel.replaceChildren();
  panel.hidden = i < 0;
  if (i < 0) return;
  const head = element("h3");
  head.append(element("bdi", titleOf(m, i)));
  if (m.keyType) head.append(" ", element("small", m.keyType(m.task[i])));
  const facts = element("dl", undefined, { className: "pairs" });
  for (const [name, value] of factsOf(m, i)) { const dd = element("dd"); dd.append(element("bdi", value)); facts.append(element("dt", name), dd); }
  panel.append(head, facts);
  if (m.barsOf && m.barsOf(m.task[i]).length > 1) panel.append(element("p", `One of ${m.barsOf(m.task[i]).length} attempts at this task.`));
  if (m.filesOf && m.filesOf(m.task[i]).length) panel.append(filesOf(m, m.task[i]));
  if (m.needs) panel.append(neighbours(m, "Depends on", m.needs(m.task[i]), choose), neighbours(m, "Needed by", m.neededBy(m.task[i]), choose));
  if (m.key && m.key(m.task[i]).includes("…") && m.tokenSize < 16) {
    const line = element("p", "Its whole key: ");
    line.append(element("code", `dask-strata query ${document.body.dataset.run} ${quoted(`select key from tasks where starts_with(key, '${m.key(m.task[i]).split("…")[0].replaceAll("'", "''")}')`)}`));
    panel.append(line);
  } else if (m.key) {
    const line = element("p", "All events: ");
    line.append(element("code", `dask-strata story ${document.body.dataset.run} ${quoted(m.key(m.task[i]))}`));
    panel.append(line);
    const origin = element("p", "Origin and use: ");
    origin.append(element("code", `dask-strata lineage ${document.body.dataset.run} ${quoted(m.key(m.task[i]))}`));
    panel.append(origin);
  }
}

// Quotes a text for a shell: in double quotes if possible, as keys contain single quotes.
function quoted(text) {
  if (/^[\w@%+=:,./-]+$/.test(text)) return text;
  if (!/["$`\\!]/.test(text)) return `"${text}"`;
  return `'${text.replaceAll("'", `'"'"'`)}'`;
}

// Marks: 1 selected, 2 a dependency, 3 a dependent.
function markLineage(m, i) {
  for (const bar of m.marked || []) m.mark[bar] = 0;
  if (m.chosen >= 0) m.mark[m.chosen] = 0;
  m.chosen = i;
  m.marked = [];
  if (i < 0) return;
  if (m.needs) {
    for (const [tasks, mark] of [[m.needs(m.task[i]), 2], [m.neededBy(m.task[i]), 3]]) {
      for (const task of tasks) for (const bar of m.barsOf(task)) { m.mark[bar] = mark; m.marked.push(bar); }
    }
  }
  m.mark[i] = 1;
}

// Keys with a text in them, the whole ones first; `exact` is the number of those.
function search(m, text, most) {
  const same = [], found = [];
  let count = 0;
  const whole = text.toLowerCase(), short = 2 * m.tokenSize;
  const wanted = short < 32 ? whole.replace(/[0-9a-f]{32}/g, (token) => `${token.slice(0, short)}…`) : whole, tasks = m.task.reduce((a, b) => Math.max(a, b), -1) + 1;
  for (let task = 0; task < tasks; task++) {
    const key = m.key(task).toLowerCase();
    if (!key.includes(wanted)) continue;
    count++;
    if (key === wanted) same.push(task); else if (found.length < most) found.push(task);
  }
  return { found: [...same, ...found].slice(0, most), count, exact: same.length };
}
