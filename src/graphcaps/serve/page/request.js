// Requests to the server, and its responses.

class RequestError extends Error {}

// A SMILES may start with a bracket, but never with "[{".
function looksLikeJson(text) {
  return /^(\{|\[\s*\{)/.test(text);
}

function bodyOfText(text) {
  const trimmed = text.trim();
  if (!trimmed) throw new RequestError("The text box is empty.");
  const body = looksLikeJson(trimmed) ? trimmed : JSON.stringify({ smiles: trimmed.split(/\r?\n/).map((line) => line.trim()).filter(Boolean) });
  return { body, headers: { "Content-Type": "application/json" } };
}

function bodyOfFiles(files) {
  const form = new FormData();
  for (const file of files) form.append("file", file, file.name);
  return { body: form, headers: {} };
}

async function postRequest(request, { column, ignore }, signal) {
  const options = new URLSearchParams();
  if (column && column !== "smiles") options.set("column", column);
  if (ignore) options.set("unseen", "ignore");
  let response;
  try {
    response = await fetch(`page/data?${options}`, { method: "POST", ...request, signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new RequestError("The server does not respond. Is it still running?");
  }
  const content = await response.json().catch(() => ({ error: "The response of the server cannot be read." }));
  if (!response.ok) throw new RequestError(content.error ?? `The server returned status ${response.status}.`);
  return content;
}
