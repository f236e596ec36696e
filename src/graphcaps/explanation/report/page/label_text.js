// Text of node labels inside circles: short labels as they are, longer ones by their first letters.

const MAX_LABEL_CHARS = 3; // as element symbols
const MAX_LISTED_LABELS = 12; // of a legend

const ION = /^[A-Z][a-z]?\d?[+−-]$/; // a charged atom, such as Cu2+

// The text of each label: the label, if it is short; else one or two first letters that no other label starts with; else "".
function labelTexts(names) {
  const starts = new Map();
  for (const name of names) {
    for (let length = 1; length < MAX_LABEL_CHARS; length += 1) {
      const start = [...name].slice(0, length).join("");
      if ([...name].length >= length) starts.set(start, (starts.get(start) ?? 0) + 1);
    }
  }
  return names.map((name) => {
    const letters = [...name];
    if (letters.length <= MAX_LABEL_CHARS || ION.test(name)) return name;
    if (!/^\p{L}/u.test(name)) return ""; // the first digits of a number say nothing
    return [1, 2].map((length) => letters.slice(0, length).join("")).find((start) => starts.get(start) === 1) ?? "";
  });
}

// What the texts in the nodes stand for; "" if all labels are written in full.
function labelNote(graphs) {
  const names = graphs.meta.labels?.names ?? [], texts = graphs.labelTexts;
  const cut = names.map((name, i) => [texts[i], name]).filter(([text, name]) => text !== name);
  if (!cut.length) return "";
  const shown = cut.filter(([text]) => text !== "");
  const legend = shown.length && shown.length <= MAX_LISTED_LABELS ? `${shown.map(([text, name]) => `${text} = ${name}`).join(", ")}. ` : "";
  return `Node labels: ${legend}Long labels are abbreviated or left out in nodes; hover a node for its label.`;
}

// Font size of a text inside a circle; 0 if it does not fit in a readable size.
function textSize(text, radius, smallest) {
  const width = [...text].reduce((sum, letter) => sum + (letter > "\u2e7f" ? 1 : 0.7), 0);
  const size = Math.min(1.05 * radius, (1.9 * radius) / (width || 1));
  if (size >= smallest) return size;
  return width < 1.5 ? smallest : 0;
}
