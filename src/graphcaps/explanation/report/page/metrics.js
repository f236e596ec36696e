// Tables of explanation metrics: a row per method, or a row per metric.

function formatValue(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value)) return value.toLocaleString("en");
  const size = Math.abs(value);
  if (size >= 10) return value.toLocaleString("en", { maximumFractionDigits: 1 });
  return size >= 0.001 || size === 0 ? value.toFixed(3) : value.toExponential(1);
}

function showMetrics(meta) {
  const tables = meta.metrics;
  if (!tables?.length) { byId("metrics").hidden = true; return; }
  const body = tables.map(({ caption, head, rows, definitions }) =>
    make("div", { class: "card" }, [
      table(caption, head, rows.map((row) => row.map((value, c) => (c ? formatValue(value) : String(value)))), { numeric: head.map((_, c) => c).slice(1) }),
      definitions.length ? make("dl", { class: "meanings" }, definitions.map(([name, meaning]) => make("div", {}, [make("dt", {}, name), make("dd", {}, meaning)]))) : null,
    ]),
  );
  clear(byId("metrics-body"), body);
}
