// Sorts a table by a column: numbers by size, names by the alphabet, cells without a number last.
const value = (row, column) => {
  const text = row.cells[column] ? row.cells[column].dataset.value : "";
  return text === undefined || text === "" ? null : column === 0 ? text : Number(text);
};

const sortBy = (table, column, ascending) => {
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const compare = (one, other) => {
    const [a, b] = [value(one, column), value(other, column)];
    if (a === null || b === null) return (a === null) - (b === null);
    const order = typeof a === "string" ? a.localeCompare(b) : a - b;
    return ascending ? order : -order;
  };
  rows.sort(compare);
  body.append(...rows);
  [...table.tHead.rows[0].cells].forEach((cell, number) => {
    if (number === column) cell.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    else cell.removeAttribute("aria-sort");
  });
};

for (const table of document.querySelectorAll("table.sortable")) {
  [...table.tHead.rows[0].cells].forEach((cell, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.append(...cell.childNodes);
    cell.append(button);
    button.addEventListener("click", () => {
      const now = cell.getAttribute("aria-sort");
      // Small is good for ranks, p-values, seconds and memory; large for accuracies.
      const smallFirst = cell.dataset.order === "ascending";
      sortBy(table, column, now === null ? smallFirst : now === "descending");
    });
  });
}
document.documentElement.dataset.ready = "";
