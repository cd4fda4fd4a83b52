// The API reference: sends a request of the visitor's own session, shows the answer, and keeps the curl example in step.
const SHOWN_BYTES = 200_000;
const PATIENCE_MS = 30_000;  // a stream of events has no end

function requestOf(form) {
  let path = form.dataset.path;
  const query = new URLSearchParams();
  const headers = {};
  let body;
  for (const field of form.querySelectorAll("[data-place]")) {
    const value = field.value.trim();
    if (field.dataset.place === "path") path = path.replace(`{${field.name}}`, value ? encodeURIComponent(value) : `{${field.name}}`);
    else if (field.dataset.place === "file") { body = field.files[0]; headers["Content-Type"] = field.dataset.type; }
    else if (field.dataset.place === "body") { body = field.value; headers["Content-Type"] = "application/json"; }
    else if (value && field.dataset.place === "header") headers[field.name] = value;
    else if (value) for (const one of "list" in field.dataset ? value.split(",") : [value]) query.append(field.name, one.trim());
  }
  const search = query.toString();
  return { method: form.dataset.method, path: search ? `${path}?${search}` : path, headers, body };
}

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function curlOf(form) {
  const { method, path, headers, body } = requestOf(form);
  const words = ["curl"];
  if (method !== "GET") words.push("-X", method);
  words.push("-H", '"Authorization: Bearer $KEY"');
  for (const [name, value] of Object.entries(headers)) words.push("-H", quoted(`${name}: ${value}`));
  if (typeof body === "string") words.push("--data-binary", quoted(body));
  else if ("Content-Type" in headers) words.push("--data-binary", quoted(`@${body?.name ?? "FILE"}`));
  return [...words, quoted(form.dataset.address + path)].join(" ");
}

async function contentOf(response) {
  const type = response.headers.get("Content-Type") ?? "";
  if (!/json|text|xml|rfc822/.test(type)) return type ? `${type}, ${response.headers.get("Content-Length") ?? "?"} bytes` : "";
  const decoder = new TextDecoder();
  const reader = response.body.getReader();
  let text = "";
  try {
    for (let part = await reader.read(); !part.done && text.length < SHOWN_BYTES; part = await reader.read()) text += decoder.decode(part.value, { stream: true });
  } catch (error) {
    if (error.name !== "AbortError" && error.name !== "TimeoutError") throw error;
  }
  reader.cancel().catch(() => {});
  if (type.includes("json") && text.length < SHOWN_BYTES) return JSON.stringify(JSON.parse(text), null, 2);
  return text.length < SHOWN_BYTES ? text : `${text.slice(0, SHOWN_BYTES)}\n…`;
}

async function send(form) {
  if (form.dataset.confirm && !confirm(form.dataset.confirm)) return;
  const { method, path, headers, body } = requestOf(form);
  headers["X-CSRF-Token"] = document.querySelector("meta[name=csrf]")?.content ?? "";
  const [answer, status, content] = ["[data-answer]", "[data-status]", "[data-content]"].map((name) => form.querySelector(name));
  const started = performance.now();
  answer.hidden = false;
  status.textContent = "…";
  content.textContent = "";
  try {
    const response = await fetch(path, { method, headers, body: method === "GET" ? undefined : body, signal: AbortSignal.timeout(PATIENCE_MS) });
    status.textContent = `${response.status} · ${Math.round(performance.now() - started)} ms`;
    content.textContent = await contentOf(response);
  } catch (error) {
    status.textContent = String(error);
  }
}

for (const form of document.querySelectorAll("form[data-path]")) {
  const curl = form.querySelector("[data-curl]");
  const copy = form.querySelector("[data-copy-curl]");
  form.querySelector("[data-send]").hidden = copy.hidden = false;
  form.addEventListener("input", () => { curl.textContent = curlOf(form); });
  form.addEventListener("submit", (event) => { event.preventDefault(); send(form); });
  copy.addEventListener("click", () => navigator.clipboard.writeText(curl.textContent));
  curl.textContent = curlOf(form);
}

function openTarget() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target instanceof HTMLDetailsElement) { target.open = true; target.scrollIntoView(); }
}

addEventListener("hashchange", openTarget);
openTarget();
