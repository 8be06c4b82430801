// Tables sort by the heading that is clicked: first the largest numbers, or texts from A, then the other way round, then as they stood.

function startSorting() {
  document.querySelectorAll("table[data-sorts]").forEach((table) => makeSortable(table));
}

function makeSortable(table) {
  table.querySelectorAll("thead th").forEach((head, index) => {
    if (head.hasAttribute("data-unsorted")) return;
    // No <button>: browsers do not print those in the headings that they repeat on each page.
    const button = html("span", { role: "button", tabindex: "0", class: "sort" }, ...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => sortTable(table, head, index));
    button.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      sortTable(table, head, index);
    });
  });
}

function sortTable(table, head, index) {
  const orders = head.classList.contains("text") ? ["ascending", "descending", ""] : ["descending", "ascending", ""];
  const order = orders[(orders.indexOf(head.getAttribute("aria-sort") ?? "") + 1) % orders.length];
  table.querySelectorAll("th[aria-sort]").forEach((one) => one.removeAttribute("aria-sort"));
  if (order) head.setAttribute("aria-sort", order);
  if (table.classList.contains("listing")) sortListing(table, index, order);
  else sortRows(table.tBodies[0], index, order);
}

function sortRows(body, index, order) {
  const rows = [...body.rows];
  rows.forEach((row, place) => { row.dataset.place ??= place; });
  body.append(...sorted(rows, order, (row) => row.cells[index].textContent, (row) => Number(row.dataset.place)));
}

// The source has its own order, so its operations sort as a list without the text between them. A click on one leads to its line.
function sortListing(table, index, order) {
  table.querySelector("tbody.sorted")?.remove();
  for (const body of table.tBodies) body.classList.toggle("aside", Boolean(order));
  if (!order) return;
  const copies = [...table.querySelectorAll("tr.op")].map((row) => {
    let line = row;
    while (!line.classList.contains("hot")) line = line.previousElementSibling;
    const copy = row.cloneNode(true);
    const link = html("a", { href: `#${line.id}` }, line.querySelector(".number").textContent);
    link.addEventListener("click", () => showInSourceOrder(table)); // before the browser goes to the line
    copy.cells[0].append(link);
    copy.cells[0].className = "number";
    return copy;
  });
  const body = html("tbody", { class: "sorted" });
  body.append(...sorted(copies, order, (row) => row.cells[index].textContent, () => 0));
  table.append(body);
}

function showInSourceOrder(table) {
  table.querySelectorAll("th[aria-sort]").forEach((one) => one.removeAttribute("aria-sort"));
  sortListing(table, 0, "");
}

// Rows in an order; where the value is not known they come last.
function sorted(rows, order, textOf, placeOf) {
  if (!order) return rows.sort((a, b) => placeOf(a) - placeOf(b));
  const turn = order === "ascending" ? 1 : -1;
  const keyed = rows.map((row) => ({ row, value: valueOf(textOf(row)) }));
  keyed.sort((a, b) => (a.value === null) - (b.value === null) || turn * compareValues(a.value, b.value));
  return keyed.map((one) => one.row);
}

function compareValues(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), "en", { numeric: true });
}

// The number that a cell begins with (`32 (4)`, `1,024`, `123k`, `<0.1 %`), or else its text; null where it is not known.
function valueOf(text) {
  const cell = text.trim();
  if (cell === "" || cell === "-") return null;
  const found = /^<?(-?[\d,]*\.?\d+)([kMG]?)(?![\w.])/.exec(cell);
  if (!found) return cell;
  return Number(found[1].replaceAll(",", "")) * { "": 1, k: 1e3, M: 1e6, G: 1e9 }[found[2]] - (cell[0] === "<" ? 1e-9 : 0);
}
