// Tables as CSV, in the table's order: numbers and names in full, and no pictures.

// No spreadsheet may take a text for a formula: the same rule as in report/words.py.
function spreadsheetText(text) {
  return /^[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]/.test(text) && !/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text) ? `'${text}` : text;
}

function csvOf(table) {
  const quotedCell = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const rows = [...table.tBodies[0].rows], isPicture = (cell) => cell.querySelector("svg[role=img]") !== null;
  const columns = [...table.tHead.rows[0].cells].map((_, i) => i).filter((i) => !rows.some((row) => isPicture(row.cells[i])));
  // A long name is shown in part; its button has all of it.
  const whole = "button[data-filter]:not([data-filter=worker])";
  const shown = (cell) => cell.querySelector(whole)?.dataset.value ?? cell.textContent.trim().replace(/\s+/g, " ");
  const value = (cell) => ("v" in cell.dataset ? cell.dataset.v : spreadsheetText(shown(cell)));
  const lines = [...table.tHead.rows, ...rows].map((row) => columns.map((i) => quotedCell(value(row.cells[i]))).join(","));
  return `${lines.join("\r\n")}\r\n`;
}

function downloadable(table) {
  const caption = table.caption, words = caption ? caption.textContent.trim() : "table";
  const button = element("button", "CSV", { type: "button", className: "link" });
  button.setAttribute("aria-label", `CSV of: ${words}`);
  button.addEventListener("click", () => save(new Blob([csvOf(table)], { type: "text/csv" }), `-${words.toLowerCase().replace(/[^a-z0-9]+/g, "-").slice(0, 40)}.csv`));
  (caption || table.createCaption()).append(" ", button);
}
