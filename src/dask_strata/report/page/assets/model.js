// The model: bars in order of row and start, their phases and keys, and which bars are shown.

function firstsOf(counts) {
  const firsts = new Uint32Array(counts.length + 1);
  for (let i = 0; i < counts.length; i++) firsts[i + 1] = firsts[i] + counts[i];
  return firsts;
}

function packed(color) {  // color "#rrggbb" as a 32-bit pixel
  const v = parseInt(color.slice(1), 16);
  return (0xff000000 | ((v & 255) << 16) | (v & 0xff00) | (v >> 16)) >>> 0;
}

async function readModel() {
  const facts = JSON.parse(document.getElementById("facts").textContent);
  const c = await unpack("bars");
  const first = firstsOf(ints(c, "row", Uint32Array));
  const start = ints(c, "gap"), stop = ints(c, "length"), n = start.length;
  const reach = new Float64Array(n);  // latest end of the bars of a row up to this one
  for (let row = 0; row + 1 < first.length; row++) {
    for (let i = first[row], at = 0, far = 0; i < first[row + 1]; i++) {
      start[i] += at;
      at = stop[i] += start[i];
      reach[i] = far = Math.max(far, at);
    }
  }
  // Sizes are decoded at their first use.
  const sizes = (name) => (m.sizes[name] ??= facts.absent.includes(name) ? new Float64Array(n) : ints(c, name));
  const m = {
    facts, n, first, start, stop, reach,
    prefix: ints(c, "prefix", Uint16Array), outcome: ints(c, "outcome", Uint8Array),
    client: facts.clients.length ? ints(c, "client", Uint32Array) : null,
    span: facts.spans.length ? ints(c, "span", Uint16Array) : null,
    ran: ints(c, "ran", Uint8Array), sizes: {},
    get nbytes() { return sizes("nbytes"); }, get read() { return sizes("read_bytes"); },
    get cpu() { return sizes("cpu"); }, get otherCpu() { return sizes("other_cpu"); },
    task: ints(c, "task", Uint32Array),
    partBar: ints(c, "part.bar", Uint32Array), partKind: ints(c, "part.kind", Uint8Array),
    partStart: ints(c, "part.before"), partStop: ints(c, "part.length"),
    colors: Uint32Array.from(facts.prefixes, ([, color]) => packed(color)),
    partColors: Uint32Array.from(facts.phases, ([, color]) => packed(color)),
    shown: new Uint8Array(n).fill(1), mark: new Uint8Array(n),
    chosen: -1, key: null, keyType: null, filesOf: null, needs: null,
  };
  m.color = new Uint32Array(n);
  for (let i = 0; i < n; i++) m.color[i] = m.outcome[i] === 1 ? ERRED : m.colors[m.prefix[i]];
  const partsOf = new Uint32Array(n);
  for (let p = 0; p < m.partBar.length; p++) {
    const bar = m.partBar[p];
    partsOf[bar]++;
    m.partStart[p] = start[bar] - m.partStart[p];
    m.partStop[p] += m.partStart[p];
  }
  m.firstPart = firstsOf(partsOf);
  m.rowOf = (i) => {
    let low = 0, high = first.length - 1;
    while (high - low > 1) { const half = (low + high) >> 1; if (first[half] <= i) low = half; else high = half; }
    return low;
  };
  return m;
}

// Keys and edges are decoded after the first drawing.
async function readKeys(m) {
  if (!m.facts.keys) return;
  const c = await unpack("keys-data");
  const type = ints(c, "type", Uint8Array);
  m.key = texts(c, "key");
  m.tokenSize = c.get("key.tokens").size;
  m.keyType = (task) => m.facts.types[type[task]];
  m.barsOf = barsByTask(m, c.get("key").n);
  const firstFile = firstsOf(ints(c, "file.count", Uint32Array)), file = texts(c, "file");
  m.filesOf = (task) => Array.from({ length: firstFile[task + 1] - firstFile[task] }, (_, k) => file(firstFile[task] + k));
  if (!m.facts.edges) return;
  const e = await unpack("edges");
  const counts = ints(e, "count", Uint32Array), needed = ints(e, "needed", Uint32Array);
  const firstNeed = firstsOf(counts), uses = new Uint32Array(counts.length);
  for (const task of needed) uses[task]++;
  const firstUse = firstsOf(uses), users = new Uint32Array(needed.length), at = firstUse.slice();
  for (let task = 0; task < counts.length; task++) {
    for (let k = firstNeed[task]; k < firstNeed[task + 1]; k++) users[at[needed[k]]++] = task;
  }
  m.needs = (task) => needed.subarray(firstNeed[task], firstNeed[task + 1]);
  m.neededBy = (task) => users.subarray(firstUse[task], firstUse[task + 1]);
}

function barsByTask(m, tasks) {
  const counts = new Uint32Array(tasks);
  for (const task of m.task) counts[task]++;
  const first = firstsOf(counts), at = first.slice(), bars = new Uint32Array(m.n);
  for (let i = 0; i < m.n; i++) bars[at[m.task[i]]++] = i;
  return (task) => bars.subarray(first[task], first[task + 1]);
}

function firstAfter(values, value, low, high) {  // index of the first larger value in a range
  while (low < high) { const half = (low + high) >> 1; if (values[half] > value) high = half; else low = half + 1; }
  return low;
}

function showOnly(m, { prefix, worker, client, span, state }) {
  const rows = m.facts.rows, wanted = m.facts.prefixes.findIndex(([name]) => name === prefix);
  const outcome = m.facts.outcomes.indexOf(state), owner = m.facts.clients.indexOf(client);
  const within = new Set(m.facts.spans.flatMap((name, i) => (name === span || name.startsWith(`${span} / `) ? [i] : [])));
  let count = 0;
  for (let row = 0; row < rows.length; row++) {
    const onWorker = worker === "" || rows[row][0] === worker;
    for (let i = m.first[row]; i < m.first[row + 1]; i++) {
      const yes = onWorker && (prefix === "" || m.prefix[i] === wanted) && (client === "" || m.client[i] === owner) && (span === "" || within.has(m.span[i])) && (state === "" || m.outcome[i] === outcome);
      m.shown[i] = yes ? 1 : 0;
      count += m.shown[i];
    }
  }
  return count;
}
