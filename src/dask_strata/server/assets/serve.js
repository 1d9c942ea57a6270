"use strict";
// The list of runs: updates, search and facets without a new page, ticked runs. Without script, all of it works with reloads.
const EVERY = 2000;
const LONGEST = 6000;

function startList() {
  const form = document.getElementById("compare");
  const search = document.getElementById("search");
  const list = () => document.getElementById("list");
  // The list may not show all runs that the address selects.
  const ticked = new Set(new URLSearchParams(location.search).getAll("select"));
  for (const box of form.querySelectorAll("input[name=run]:checked")) ticked.add(box.value);
  let asked = 0;

  const count = () => {
    document.getElementById("ticked").textContent = ticked.size ? `${ticked.size} ${ticked.size === 1 ? "run" : "runs"} ticked` : "";
  };

  const show = async (address, { force = false } = {}) => {
    const mine = ++asked;
    const mark = force ? "" : list().dataset.mark;
    const answer = await fetch(`${address}${address.includes("?") ? "&" : "?"}part=list&mark=${mark}`);
    if (!answer.ok || answer.status === 204 || mine !== asked) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("list");
    if (!fresh || mine !== asked) return;
    for (const box of fresh.querySelectorAll("input[name=run]")) box.checked = ticked.has(box.value);
    const open = new Map([...list().querySelectorAll("#facets details")].map((d) => [d.querySelector("summary").textContent, d.open]));
    for (const facet of fresh.querySelectorAll("#facets details")) facet.open = open.get(facet.querySelector("summary").textContent) ?? facet.open;
    const [wide, left] = [list().querySelector(".wide"), list().querySelector(".wide").scrollLeft];
    const focus = place(document.activeElement, wide);
    list().replaceWith(document.adoptNode(fresh));
    list().querySelector(".wide").scrollLeft = left;
    if (focus) list().querySelector(focus)?.focus();
    hidden();
  };

  // Where the focus was, as a selector, so that it is there again after an update.
  const place = (element, wide) => {
    if (!list().contains(element)) return null;
    if (element === wide) return ".wide";
    if (element.name === "run") return `input[value="${CSS.escape(element.value)}"]`;
    if (element.tagName === "SUMMARY") return `#facets details:nth-of-type(${[...element.parentElement.parentElement.children].indexOf(element.parentElement) + 1}) summary`;
    const within = element.closest("th") ? "th " : element.closest("#facets") ? "#facets " : "";
    const sort = element.closest("th");
    if (sort) return `th:nth-child(${sort.cellIndex + 1}) a`;
    return element.getAttribute("href") ? `${within}a[href="${CSS.escape(element.getAttribute("href"))}"]` : null;
  };

  // Ticked runs that the list does not show are compared, too.
  const hidden = () => {
    for (const old of form.querySelectorAll("input[type=hidden]")) old.remove();
    const shown = new Set([...list().querySelectorAll("input[name=run]")].map((box) => box.value));
    for (const name of ticked) if (!shown.has(name)) form.append(Object.assign(document.createElement("input"), { type: "hidden", name: "run", value: name }));
  };

  const go = (address, options) => {
    history.replaceState(null, "", address);
    return show(address, { force: true, ...options }).catch(() => { location.href = address; });
  };

  form.addEventListener("change", (event) => {
    if (event.target.name !== "run") return;
    if (event.target.checked) ticked.add(event.target.value); else ticked.delete(event.target.value);
    count();
  });
  form.addEventListener("submit", (event) => {
    if ([...ticked].join("").length + 9 * ticked.size < LONGEST) {
      // The way back from the comparison leads to the same ticks.
      const address = new URL(list().dataset.address, location.href);
      for (const name of ticked) address.searchParams.append("select", name);
      history.replaceState(null, "", address);
      return;
    }
    // Too many for an address: one field has all names, which contain no slash.
    event.preventDefault();
    const long = Object.assign(document.createElement("form"), { method: "post", action: form.action });
    long.append(Object.assign(document.createElement("input"), { type: "hidden", name: "runs", value: [...ticked].join("/") }));
    document.body.append(long);
    long.submit();
  });
  form.addEventListener("click", (event) => {
    const link = event.target.closest("#facets a, #list th a");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    go(link.getAttribute("href"));
  });
  const searched = () => {
    const address = new URL(list().dataset.address, location.href);
    const words = document.getElementById("filter").value.trim();
    if (words) address.searchParams.set("q", words); else address.searchParams.delete("q");
    go(address.pathname + address.search);
  };
  let waiting = 0;
  document.getElementById("filter").addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(searched, 150);
  });
  search.addEventListener("submit", (event) => { event.preventDefault(); searched(); });
  const tick = async () => {
    if (!document.hidden) await show(list().dataset.address).catch(() => { /* the server has ended, or responds to the next request */ });
    setTimeout(tick, EVERY);
  };
  setTimeout(tick, EVERY);
  count();
  hidden();
}

// Completion of tables and columns in the query.
function startSql(text) {
  const columns = new Map([...document.querySelectorAll("#schema details")].map((d) => [d.dataset.table, [...d.querySelectorAll("dt")].map((dt) => dt.firstChild.textContent.trim())]));
  const every = [...new Set([...columns.values()].flat())].sort();
  const box = Object.assign(document.createElement("ul"), { id: "completions", hidden: true });
  box.setAttribute("role", "listbox");
  box.setAttribute("aria-label", "Completions");
  text.after(box);
  const state = Object.assign(document.createElement("span"), { className: "out" });
  state.setAttribute("role", "status");
  box.after(state);
  text.setAttribute("aria-autocomplete", "list");
  text.setAttribute("aria-controls", box.id);
  let found = [];
  let active = 0;
  let start = 0;

  const close = () => { box.hidden = true; found = []; text.removeAttribute("aria-activedescendant"); state.textContent = ""; };

  const candidates = () => {
    const before = text.value.slice(0, text.selectionStart);
    const [, owner, word] = /(?:([A-Za-z_]\w*)\.)?([A-Za-z_]\w*)?$/.exec(before);
    start = text.selectionStart - (word ?? "").length;
    const named = [...columns.keys()].filter((table) => new RegExp(`\\b${table}\\b`).test(text.value));
    if (owner) {
      const alias = new RegExp(`\\b(?:from|join)\\s+(\\w+)\\s+(?:as\\s+)?${owner}\\b`, "i").exec(text.value);
      return [columns.get(owner) ?? columns.get(alias?.[1]) ?? [], word ?? ""];
    }
    if (!word || word.length < 2) return [[], ""];
    if (/\b(?:from|join)\s+\w*$/i.test(before)) return [[...columns.keys()], word];
    const near = [...new Set(named.flatMap((table) => columns.get(table)))];
    return [[...near, ...columns.keys(), ...every.filter((name) => !near.includes(name))], word];
  };

  const mark = () => {
    [...box.children].forEach((item, i) => item.setAttribute("aria-selected", String(i === active)));
    text.setAttribute("aria-activedescendant", `completion-${active}`);
    box.children[active]?.scrollIntoView({ block: "nearest" });
  };

  const complete = () => {
    const [names, word] = candidates();
    const lower = word.toLowerCase();
    found = [...new Set(names)].filter((name) => name.toLowerCase().startsWith(lower) && name !== word).slice(0, 8);
    if (!found.length) { close(); return; }
    active = 0;
    box.replaceChildren(...found.map((name, i) => {
      const item = Object.assign(document.createElement("li"), { id: `completion-${i}`, textContent: name });
      item.setAttribute("role", "option");
      item.addEventListener("mousedown", (event) => { event.preventDefault(); active = i; insert(); });
      return item;
    }));
    box.hidden = false;
    state.textContent = `${found.length} completions, ${found[0]}`;
    mark();
  };

  const insert = () => {
    const name = found[active];
    text.setRangeText(name, start, text.selectionStart, "end");
    close();
  };

  text.addEventListener("input", complete);
  text.addEventListener("blur", close);
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); text.form.requestSubmit(); return; }
    if (event.key === " " && event.ctrlKey) { event.preventDefault(); complete(); return; }
    if (box.hidden) return;
    if (event.key === "Escape") close();
    else if (event.key === "Tab" && !event.shiftKey) insert();
    else if (event.key === "ArrowDown") active = (active + 1) % found.length;
    else if (event.key === "ArrowUp") active = (active + found.length - 1) % found.length;
    else return;
    event.preventDefault();
    if (!box.hidden) mark();
  });
  text.form.addEventListener("submit", () => {
    text.form.method = encodeURIComponent(text.value).length > LONGEST ? "post" : "get";
  });
  const filter = document.getElementById("schema-filter");
  filter.addEventListener("input", () => {
    const word = filter.value.trim().toLowerCase();
    for (const table of document.querySelectorAll("#schema details")) {
      const inName = table.dataset.table.includes(word);
      const inColumns = word && columns.get(table.dataset.table).some((name) => name.includes(word));
      table.hidden = !(inName || inColumns);
      table.open = Boolean(inColumns);
    }
  });
}

if (document.getElementById("compare")) startList();
const query = document.getElementById("query");
if (query) startSql(query);
