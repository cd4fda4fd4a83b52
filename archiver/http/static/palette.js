// Ctrl-K: go to a page, search, or do something that the open page offers. Everything in it is also elsewhere.
const palette = document.querySelector("#palette");
const field = palette.querySelector("input");
const list = palette.querySelector("[role=listbox]");
let entries = [];
let chosen = 0;

const plain = (text) => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase().trim();

function pages() {
  return [...palette.querySelectorAll(".places a")].map((link) => ({ label: link.textContent.trim(), hint: palette.dataset.goto, run: () => link.click() }));
}

function actions() {
  const offered = document.querySelectorAll(".own-tools a, .own-tools button, .tools a, .tools button, .page-head a, .page-head button, #selected:not([hidden]) button");
  return [...offered].filter((one) => one.checkVisibility() && one.textContent.trim())
    .map((one) => ({ label: one.textContent.trim().replace(/\s+/g, " "), hint: palette.dataset.action, run: () => one.click() }));
}

// All words must occur; labels that begin with the text come first.
function matching(text) {
  const words = plain(text).split(/\s+/).filter(Boolean);
  const found = [...actions(), ...pages()].filter((one) => words.every((word) => plain(one.label).includes(word)));
  found.sort((a, b) => plain(b.label).startsWith(words[0] ?? "") - plain(a.label).startsWith(words[0] ?? ""));
  if (text.trim()) found.push({ label: text.trim(), hint: palette.dataset.search, run: () => { location.href = `/?${new URLSearchParams({ q: text.trim() })}`; } });
  return found.slice(0, 30);
}

function mark(index) {
  chosen = entries.length ? (index + entries.length) % entries.length : 0;
  [...list.children].forEach((one, at) => one.setAttribute("aria-selected", String(at === chosen)));
  const current = list.children[chosen];
  field.setAttribute("aria-activedescendant", current?.id ?? "");
  current?.scrollIntoView({ block: "nearest" });
}

function show() {
  entries = matching(field.value);
  list.replaceChildren(...entries.map((one, at) => {
    const item = Object.assign(document.createElement("li"), { id: `palette-${at}` });
    item.setAttribute("role", "option");
    item.append(Object.assign(document.createElement("span"), { textContent: one.label }));
    item.append(Object.assign(document.createElement("span"), { textContent: one.hint, className: "quiet" }));
    item.addEventListener("click", () => run(at));
    return item;
  }));
  mark(0);
}

function run(at) {
  const entry = entries[at];
  palette.close();
  entry?.run();
}

document.addEventListener("keydown", (event) => {
  if (!(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey || event.key.toLowerCase() !== "k") return;
  event.preventDefault();
  if (palette.open) return void palette.close();
  if (document.querySelector("dialog[open]")) return;
  field.value = "";
  palette.showModal();
  show();
  field.focus();
});
field.addEventListener("input", show);
field.addEventListener("keydown", (event) => {
  if (event.key === "ArrowDown" || event.key === "ArrowUp") { event.preventDefault(); mark(chosen + (event.key === "ArrowDown" ? 1 : -1)); }
  else if (event.key === "Enter") { event.preventDefault(); run(chosen); }
});
palette.addEventListener("click", (event) => { if (event.target === palette) palette.close(); });
