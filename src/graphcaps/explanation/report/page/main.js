// Reads the data and fills the page.

function showTop(meta) {
  byId("lead").textContent = meta.lead;
  byId("honest").textContent = meta.honest;
  byId("foot").textContent = meta.foot;
  clear(byId("facts"), meta.facts.map(([name, value, words]) =>
    make("div", { class: "fact" }, [make("dt", {}, name), make("dd", {}, value), words ? make("dd", { class: "fact-note" }, words) : null])));
}

async function start() {
  try {
    const graphs = await readData();
    showTop(graphs.meta);
    const explorer = new Explorer(graphs);
    showQuality(graphs);
    showMeasures(graphs.meta);
    globalThis.graphcaps = { graphs, explorer };
    document.documentElement.dataset.ready = "true";
  } catch (error) {
    byId("failure").textContent = `This page could not read its data: ${error.message}. A browser of 2023 or later is needed.`;
    byId("failure").hidden = false;
    throw error;
  }
}

start();
