// Reads the data and fills the page.

function showTop(meta) {
  byId("lead").textContent = meta.lead;
  byId("caveats").textContent = meta.caveats;
  byId("foot").textContent = meta.foot;
  const facts = (rows) => rows.map(([name, value, note, caution]) =>
    make("div", { class: "fact" }, [
      make("dt", {}, name), make("dd", {}, value), make("dd", { class: "fact-note" }, note),
      caution ? make("dd", { class: "fact-note caution" }, caution) : null,
    ]));
  clear(byId("facts"), facts(meta.facts));
  clear(byId("other-facts-list"), facts(meta.other_facts));
  byId("other-facts-title").textContent = meta.other_title;
  byId("other-facts").hidden = !meta.other_facts.length;
}

async function start() {
  try {
    const graphs = await readData();
    showTop(graphs.meta);
    const explorer = new Explorer(graphs);
    showCards(graphs, (graph) => explorer.goTo(graph));
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
