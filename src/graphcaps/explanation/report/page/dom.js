// Helpers that create elements. Text is always inserted as text, never as markup, because names come from users.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of [children].flat()) {
    if (child !== null && child !== undefined) element.append(child);
  }
  return element;
}

function make(tag, attributes = {}, children = []) {
  return fill(document.createElement(tag), attributes, children);
}

function draw(tag, attributes = {}, children = []) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function byId(name) {
  return document.getElementById(name);
}

function clear(element, ...children) {
  element.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

// On narrow screens drawings have fewer units, so that text stays readable.
const NARROW = matchMedia("(max-width: 800px)");

// An SVG with a label for screen readers.
function picture(width, height, label, children, name = "") {
  return draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label, class: name }, children);
}

// Words for screen readers alone.
function spoken(words) {
  return words ? make("span", { class: "unseen" }, words) : null;
}

// A box with a title; "h3" directly below the title of a section of the page.
function card(title, note, ...children) {
  return titledCard("h4", title, note, ...children);
}

function titledCard(heading, title, note, ...children) {
  return make("section", { class: "card" }, [
    make(heading, { class: "card-title" }, title),
    note ? make("p", { class: "card-note" }, note) : null,
    ...children,
  ]);
}

// A table with a caption; rows are lists of strings, numeric columns are right-aligned.
function table(caption, head, rows, { numeric = [], headed = true } = {}) {
  const side = (column) => (numeric.includes(column) ? "number" : null);
  const cell = (value, column) =>
    column === 0 && headed
      ? make("th", { scope: "row", class: side(column) }, value)
      : make("td", { class: side(column) }, value);
  return make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption }, [
    make("table", {}, [
      make("caption", {}, caption),
      make("thead", {}, make("tr", {}, head.map((name, c) => make("th", { scope: "col", class: side(c) }, name)))),
      make("tbody", {}, rows.map((row) => make("tr", {}, row.map(cell)))),
    ]),
  ]);
}

function percent(share, digits = 0) {
  return `${(100 * share).toFixed(digits)}\u00a0%`;
}

function plural(count, one, many = `${one}s`) {
  return `${count.toLocaleString("en")}\u00a0${count === 1 ? one : many}`;
}
