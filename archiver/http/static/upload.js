// Uploads dropped or chosen files: several at once, each in resumable pieces. Then starts one import of all of them.
import { $, csrf } from "./app.js";

const PIECE = 4 << 20;
const AT_ONCE = 3;
const TRIES = 8;
const form = $("#drop");
const list = $(".uploads", form);
const input = $("#upload-files", form);
const size = new Intl.NumberFormat(document.documentElement.lang, { maximumFractionDigits: 1 });

async function call(method, path, { body, headers } = {}) {
  const response = await fetch(`/api/v1/uploads${path}`, { method, body, headers: { "X-CSRF-Token": csrf, ...headers } });
  if (response.ok) return response;
  const problem = await response.json().catch(() => ({}));
  throw Object.assign(new Error(problem.detail ?? problem.title ?? response.statusText), { status: response.status });
}

function row(file) {
  const item = Object.assign(document.createElement("li"), { className: "upload" });
  const bar = Object.assign(document.createElement("progress"), { max: Math.max(file.size, 1), value: 0 });
  bar.setAttribute("aria-label", file.name);
  const state = Object.assign(document.createElement("span"), { className: "quiet" });
  const wrong = Object.assign(document.createElement("span"), { className: "bad" });
  item.append(Object.assign(document.createElement("span"), { textContent: file.name }), state, bar, wrong);
  list.append(item);
  return {
    at(offset) { bar.value = offset; state.textContent = `${size.format(offset / 1e6)} / ${size.format(file.size / 1e6)} MB`; wrong.textContent = ""; },
    waits() { state.textContent = form.dataset.waits; },
    done() { bar.value = bar.max; state.textContent = form.dataset.done; },
    failed(error) { state.textContent = ""; wrong.textContent = `${form.dataset.failed} ${error.message}`; },
  };
}

const pause = (milliseconds) => new Promise((resume) => { setTimeout(resume, milliseconds); });

// A broken connection, a full disk or a busy server is temporary; a refusal is not.
const isTemporary = (error) => error.status === undefined || error.status === 408 || error.status === 409 || error.status === 429 || error.status >= 500;

async function send(file, shown) {
  const begun = await call("POST", "", { body: JSON.stringify({ name: file.name, size_bytes: file.size }), headers: { "Content-Type": "application/json" } });
  const { id } = await begun.json();
  let offset = 0;
  let tries = 0;
  shown.at(0);
  while (offset < file.size) {
    try {
      const headers = { "Upload-Offset": String(offset), "Content-Type": "application/octet-stream" };
      const answer = await call("PATCH", `/${id}`, { body: file.slice(offset, offset + PIECE), headers });
      offset = Number(answer.headers.get("Upload-Offset"));
      tries = 0;
    } catch (error) {
      tries += 1;
      if (!isTemporary(error) || tries > TRIES) throw error;
      shown.waits();
      await pause(250 * 2 ** tries);
      const there = await call("GET", `/${id}`).then((answer) => answer.json()).catch(() => null);
      offset = there?.offset ?? offset;
    }
    shown.at(offset);
  }
  await call("POST", `/${id}/complete`);
  shown.done();
  return id;
}

async function upload(files) {
  if (!files.length || !form.reportValidity()) return;
  input.disabled = true;
  list.replaceChildren();
  const waiting = [...files].map((file) => [file, row(file)]);
  const sent = [];
  const next = async () => {
    for (let one = waiting.shift(); one; one = waiting.shift()) {
      try { sent.push(await send(...one)); } catch (error) { one[1].failed(error); }
    }
  };
  const total = files.length;
  await Promise.all(Array.from({ length: AT_ONCE }, next));
  input.disabled = false;
  if (sent.length === total) {
    form.elements.uploads.value = sent.join(" ");
    form.submit();
  }
}

form.hidden = false;
input.addEventListener("change", () => upload([...input.files]));
for (const kind of ["dragenter", "dragover"]) {
  form.addEventListener(kind, (event) => { event.preventDefault(); form.classList.add("over"); });
}
for (const kind of ["dragleave", "drop"]) form.addEventListener(kind, () => form.classList.remove("over"));
form.addEventListener("drop", (event) => { event.preventDefault(); upload([...event.dataTransfer.files]); });
