// Reads the data and fills the page.

function showTop(meta) {
  byId("lead").textContent = meta.lead;
  byId("caveats").textContent = meta.caveats;
  byId("foot").textContent = meta.foot;
  clear(byId("facts"), meta.facts.map(([name, value, note]) =>
    make("div", { class: "fact" }, [make("dt", {}, name), make("dd", {}, value), note ? make("dd", { class: "fact-note" }, note) : null])));
}

async function start() {
  try {
    const graphs = await readData();
    showTop(graphs.meta);
    const explorer = new Explorer(graphs);
    showQuality(graphs);
    showMetrics(graphs.meta);
    globalThis.graphcaps = { graphs, explorer };
    document.documentElement.dataset.ready = "true";
  } catch (error) {
    byId("failure").textContent = `This page could not read its data: ${error.message}. It needs a browser of 2023 or later.`;
    byId("failure").hidden = false;
    throw error;
  }
}

start();
