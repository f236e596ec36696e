// The measures of the explanations, as they were handed over: a row per method, or a name and its value.

function shown(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value)) return value.toLocaleString("en");
  const size = Math.abs(value);
  if (size >= 10) return value.toLocaleString("en", { maximumFractionDigits: 1 });
  return size >= 0.001 || size === 0 ? value.toFixed(3) : value.toExponential(1);
}

function showMeasures(meta) {
  const tables = meta.measures;
  if (!tables?.length) { byId("measures").hidden = true; return; }
  const body = tables.map(({ caption, head, rows, words }) =>
    make("div", { class: "card" }, [
      table(caption, head, rows.map((row) => row.map((value, c) => (c ? shown(value) : String(value)))), { numeric: head.map((_, c) => c).slice(1) }),
      words.length ? make("dl", { class: "meanings" }, words.map(([name, meaning]) => make("div", {}, [make("dt", {}, name), make("dd", {}, meaning)]))) : null,
    ]),
  );
  clear(byId("measures-body"), body);
}
