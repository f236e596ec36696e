// What is sent to the server, and what it answers.

class Refusal extends Error {}

// SMILES may begin with a bracket, and never with one before a brace.
function looksLikeJson(text) {
  return /^(\{|\[\s*\{)/.test(text);
}

function bodyOfText(text) {
  const plain = text.trim();
  if (!plain) throw new Refusal("There is nothing in the box yet.");
  const body = looksLikeJson(plain) ? plain : JSON.stringify({ smiles: plain.split(/\r?\n/).map((line) => line.trim()).filter(Boolean) });
  return { body, headers: { "Content-Type": "application/json" } };
}

function bodyOfFiles(files) {
  const form = new FormData();
  for (const file of files) form.append("file", file, file.name);
  return { body: form, headers: {} };
}

async function ask(request, { column, ignore }, signal) {
  const options = new URLSearchParams();
  if (column && column !== "smiles") options.set("column", column);
  if (ignore) options.set("unseen", "ignore");
  let answer;
  try {
    answer = await fetch(`page/data?${options}`, { method: "POST", ...request, signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal("The server does not answer. Is it still running?");
  }
  const told = await answer.json().catch(() => ({ error: "The answer of the server cannot be read." }));
  if (!answer.ok) throw new Refusal(told.error ?? `The server answers ${answer.status}.`);
  return told;
}
