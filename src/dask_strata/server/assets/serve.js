"use strict";
// Update runs that are being recorded; sort and filter the list. Without script, pages show all but updates.
const EVERY = 2000;

function filterRuns() {
  const words = document.getElementById("filter").value.toLowerCase().split(/\s+/);
  let n = 0;
  for (const row of document.querySelectorAll("#runs tbody tr")) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => text.includes(word));
    n += !row.hidden;
  }
  document.getElementById("count").textContent = `${n} runs`;
}

let sorted = null;

function sortRuns() {
  if (!sorted) return;
  const body = document.querySelector("#runs tbody");
  const value = (row) => row.cells[sorted.column]?.dataset.v ?? "";
  const rows = [...body.rows].sort((a, b) => value(a).localeCompare(value(b), "en", { numeric: true }));
  if (sorted.down) rows.reverse();
  body.append(...rows);
}

function startList(table) {
  document.getElementById("filter").addEventListener("input", filterRuns);
  table.tHead.addEventListener("click", (event) => {
    const head = event.target.closest("th");
    if (!head || !head.querySelector("button")) return;
    const down = sorted && sorted.column === head.cellIndex && !sorted.down;
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    sorted = { column: head.cellIndex, down };
    sortRuns();
  });
  const tick = async () => {
    if (!document.hidden) {
      try {
        const answer = await fetch(table.dataset.live);
        if (answer.ok) {
          const chosen = new Set([...table.querySelectorAll("input:checked")].map((box) => box.value));
          const parsed = new DOMParser().parseFromString(`<table><tbody>${await answer.text()}</tbody></table>`, "text/html");
          table.tBodies[0].replaceChildren(...parsed.querySelector("tbody").rows);
          for (const box of table.querySelectorAll("input")) box.checked = chosen.has(box.value);
          sortRuns();
          filterRuns();
        }
      } catch { /* the server has ended, or responds to the next request */ }
    }
    setTimeout(tick, EVERY);
  };
  setTimeout(tick, EVERY);
}

function startRun(frame) {
  let mark = frame.dataset.mark;
  let shown = Date.now();
  const tick = async () => {
    let live = true;
    try {
      const answer = await fetch(frame.dataset.state);
      if (answer.ok) {
        const state = await answer.json();
        document.getElementById("headline").textContent = state.headline;
        const badge = document.getElementById("state");
        badge.textContent = state.outcome;
        badge.className = `state ${state.outcome.replace(" ", "-")}`;
        live = state.state === "recording";
        // The page is large: reload it less often than the headline.
        if (state.mark !== mark && (!live || Date.now() - shown > 5 * EVERY)) {
          mark = state.mark;
          shown = Date.now();
          frame.contentWindow.location.reload();
        }
      } else if (answer.status === 404) {
        document.getElementById("headline").textContent = "This run has been removed.";
        live = false;
      }
    } catch { /* the server has ended, or responds to the next request */ }
    if (live) setTimeout(tick, EVERY);
  };
  if (frame.dataset.live) setTimeout(tick, EVERY);
}

const table = document.getElementById("runs");
if (table) startList(table);
const frame = document.getElementById("page");
if (frame) startRun(frame);
