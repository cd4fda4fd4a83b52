// Loaded before app.js. On a narrow screen a message opens over the list, so that going back is instant and the list stays where it was.
// The server prepares the next message while one is read; nothing of it is sent before it is opened, because opening is recorded.
const panes = document.querySelector("main.panes");
const narrow = matchMedia("(max-width: 699px)");
const prepared = new Set();
const title = document.title;
let scrolled = 0;

async function open(link) {
  const url = new URL(link.href);
  url.searchParams.set("part", "pane");
  try {
    const answer = await fetch(url, { headers: { Accept: "text/html" } });
    if (answer.redirected || !answer.ok) throw new Error("not a message");
    const message = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("article.message");
    if (!message) throw new Error("not a message");
    scrolled = panes.scrollTop;
    panes.querySelector("#reading").replaceChildren(message);
    panes.classList.add("over");
    panes.scrollTop = 0;
    history.pushState({ over: true }, "", link.href);
    document.title = `${message.querySelector("h1")?.textContent.trim() ?? ""} · Archiver`;
    panes.querySelector("#reading").focus();
  } catch {
    location.href = link.href;
  }
}

function close() {
  panes.classList.remove("over");
  panes.scrollTop = scrolled;
  document.title = title;
  panes.querySelector(".hit > a[aria-current]")?.focus();
}

function prepareNext(link) {
  const next = link.closest(".hit")?.nextElementSibling?.querySelector(":scope > a[data-id]");
  if (!next || prepared.has(next.dataset.id) || navigator.connection?.saveData) return;
  prepared.add(next.dataset.id);
  setTimeout(() => fetch(`/messages/${next.dataset.id}/prepare`).catch(() => {}), 200);
}

if (panes) {
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.(".hit > a[data-id]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    prepareNext(link);
    if (!narrow.matches) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    for (const one of panes.querySelectorAll(".hit > a[aria-current]")) one.removeAttribute("aria-current");
    link.setAttribute("aria-current", "true");
    open(link);
  }, true);
  document.addEventListener("focusin", (event) => {
    if (event.target.matches(".hit > a[data-id]")) prepareNext(event.target);
  });
  addEventListener("popstate", (event) => {
    if (!panes.classList.contains("over")) return;
    event.stopImmediatePropagation();
    close();
  });
  document.addEventListener("click", (event) => {
    if (!panes.classList.contains("over") || !event.target.closest?.("#reading [data-back]")) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    history.back();
  }, true);
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !panes.classList.contains("over") || document.querySelector("dialog[open]")) return;
    event.stopImmediatePropagation();
    history.back();
  }, true);
}
