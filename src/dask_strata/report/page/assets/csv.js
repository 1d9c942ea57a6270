// Tables as CSV: numbers in full, as the table's order has them, and the texts that are shown.

// No spreadsheet may take a text for a formula: the same rule as in report/words.py.
function spreadsheetText(text) {
  return /^[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]/.test(text) && !/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text) ? `'${text}` : text;
}

function csvOf(table) {
  const quotedCell = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const shown = (cell) => cell.textContent.trim().replace(/\s+/g, " ");
  const value = (cell) => ("v" in cell.dataset ? cell.dataset.v : spreadsheetText(shown(cell)));
  const lines = [...table.tHead.rows, ...table.tBodies[0].rows].map((row) => [...row.cells].map((cell) => quotedCell(value(cell))).join(","));
  return `${lines.join("\r\n")}\r\n`;
}

function downloadable(table) {
  const caption = table.caption, words = caption ? caption.textContent.trim() : "table";
  const button = element("button", "CSV", { type: "button", className: "link" });
  button.setAttribute("aria-label", `CSV of: ${words}`);
  button.addEventListener("click", () => save(new Blob([csvOf(table)], { type: "text/csv" }), `-${words.toLowerCase().replace(/[^a-z0-9]+/g, "-").slice(0, 40)}.csv`));
  (caption || table.createCaption()).append(" ", button);
}
