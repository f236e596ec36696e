// The form: one request at a time; a new request aborts the one before.

let running = null;

async function send(request) {
  running?.abort();
  const control = new AbortController();
  running = control;
  const form = byId("ask"), fault = byId("fault"), state = byId("state");
  fault.hidden = true;
  form.setAttribute("aria-busy", "true");
  state.textContent = "Working …";
  try {
    const entries = new FormData(form);
    const response = await postRequest(request(), { column: entries.get("column").trim(), ignore: entries.get("ignore") !== null }, control.signal);
    const count = await showResults(response);
    state.textContent = `Done: ${count}.`;
    byId("results-title").focus({ preventScroll: true });
    byId("results").scrollIntoView({ block: "start", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
  } catch (error) {
    if (error.name === "AbortError") return;
    byId("results").hidden = true;
    state.textContent = "";
    fault.textContent = error instanceof RequestError ? error.message : `This page could not show the response: ${error.message}. It needs a browser of 2023 or later.`;
    fault.hidden = false;
    if (!(error instanceof RequestError)) throw error;
  } finally {
    if (running === control) { running = null; form.removeAttribute("aria-busy"); }
  }
}

function start() {
  const form = byId("ask"), drop = byId("drop"), file = byId("file");
  form.addEventListener("submit", (event) => { event.preventDefault(); send(() => bodyOfText(byId("text").value)); });
  byId("text").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); form.requestSubmit(); }
  });
  file.addEventListener("change", () => {
    const chosen = [...file.files];
    file.value = ""; // so that the same file can be chosen again after an edit
    if (chosen.length) send(() => bodyOfFiles(chosen));
  });
  const holds = (event) => event.dataTransfer?.types.includes("Files");
  document.addEventListener("dragover", (event) => { if (holds(event)) { event.preventDefault(); drop.classList.add("over"); } });
  document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) drop.classList.remove("over"); });
  document.addEventListener("drop", (event) => {
    drop.classList.remove("over");
    if (!holds(event)) return;
    event.preventDefault();
    const dropped = [...event.dataTransfer.files];
    if (dropped.length) send(() => bodyOfFiles(dropped));
  });
  document.documentElement.dataset.ready = "true";
}

start();
