// Progressive enhancement: every page works without it. Adds results while typing, a reading pane, and keyboard shortcuts.
import "./frames.js";
import "./selection.js";

const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
const csrf = $("meta[name=csrf]")?.content ?? "";
const wide = matchMedia("(min-width: 700px)");

document.cookie = `zone=${Intl.DateTimeFormat().resolvedOptions().timeZone}; path=/; max-age=31536000; samesite=lax`;

async function fragment(url, signal) {
  const answer = await fetch(url, { signal, headers: { Accept: "text/html" } });
  if (answer.redirected && new URL(answer.url).pathname === "/sign-in") location.reload();
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

// --- results while typing

const box = $("#q");
const panes = $("main.panes");
const broad = matchMedia("(min-width: 1100px)");
let typing;
let pendingSearch;

function address(query) {
  const url = new URL(location.href);
  url.pathname = "/";
  url.search = "";
  if (query) url.searchParams.set("q", query);
  const sort = $("form.search input[name=sort]")?.value;
  if (sort) url.searchParams.set("sort", sort);
  return url;
}

async function show(url, { push = false, keep = false } = {}) {
  pendingSearch?.abort();
  pendingSearch = new AbortController();
  const slow = setTimeout(() => $("#list .hits")?.closest("#list").classList.add("skeleton"), 250);
  const part = new URL(url);
  part.searchParams.set("part", "results");
  try {
    const page = await fragment(part, pendingSearch.signal);
    const open = $("#facets")?.open;
    for (const name of ["facets", "list"]) {
      const fresh = page.getElementById(name);
      if (fresh) $(`#${name}`).replaceWith(fresh);
    }
    if (open) $("#facets").open = true;
    history[push ? "pushState" : "replaceState"]({ q: new URL(url).searchParams.get("q") ?? "" }, "", url);
    document.title = `${new URL(url).searchParams.get("q") || "Archiver"} · Archiver`;
    if (!keep) $("#list").scrollTop = 0;
    arrange();
    return true;
  } catch (error) {
    if (error.name !== "AbortError") location.href = url;
    return false;
  } finally {
    clearTimeout(slow);
    $("#list")?.classList.remove("skeleton");
  }
}

function openFacets() {
  if ($("#facets")) $("#facets").open = broad.matches; // shown beside the list: screen readers must not hear that it is collapsed
}
broad.addEventListener("change", openFacets);
openFacets();

if (panes && box) {
  let first = true;
  box.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(async () => {
      if (await show(address(box.value.trim()), { push: first })) first = false; // a response superseded by a keystroke adds no history entry
    }, 60);
  });
  $("form.search").addEventListener("submit", (event) => {
    event.preventDefault();
    clearTimeout(typing);
    closeSuggestions();
    first = true;
    show(address(box.value.trim()), { push: true });
  });
  addEventListener("popstate", () => {
    if (location.pathname !== "/") return location.reload();
    first = true;
    box.value = new URL(location.href).searchParams.get("q") ?? "";
    show(location.href);
    return undefined;
  });
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  if (link.closest(".every")) return;
  if (panes && link.closest("#facets, .sorts, .more, .histogram, .filters")) {
    const chosen = (event.altKey && link.nextElementSibling?.matches(".without") && link.nextElementSibling) || link; // alt-click excludes
    const url = new URL(chosen.href?.baseVal ?? chosen.href, location.href);
    event.preventDefault();
    box.value = url.searchParams.get("q") ?? "";
    show(url, { push: true });
  } else if (panes && wide.matches && link.dataset.id && link.closest(".hits, .thread, .more-of-it")) {
    event.preventDefault();
    read(link);
  } else if (link.matches(".other")) {
    event.preventDefault();
    unfold(link);
  } else if (link.dataset.remote !== undefined) {
    link.hidden = true;
  } else if (link.dataset.back !== undefined && link.closest("#reading")) {
    event.preventDefault();
    closeMessage();
  }
});

// --- the reading pane

let reading;

async function read(link) {
  reading?.abort();
  reading = new AbortController();
  $$(".hit a[aria-current]").forEach((one) => one.removeAttribute("aria-current"));
  const row = ["data-id", "data-variants", "data-also"].map((name) => $(`.hit a[${name}~="${link.dataset.id}"]`)).find(Boolean);
  row?.setAttribute("aria-current", "true");
  const url = new URL(link.href);
  url.searchParams.set("part", "pane");
  try {
    const page = await fragment(url, reading.signal);
    const message = $("article.message", page);
    if (!message) return void (location.href = link.href);
    $("#reading").replaceChildren(message);
    $("#reading").scrollTop = 0;
    goToHit();
  } catch (error) {
    if (error.name !== "AbortError") location.href = link.href;
  }
}

// A message of the conversation, opened in its place.
async function unfold(link) {
  const place = link.parentElement;
  let opened = $(".opened", place);
  if (!opened) {
    const url = new URL(link.href);
    url.searchParams.set("part", "pane");
    try {
      opened = $(".opened", await fragment(url));
      if (!opened) throw new Error("no message");
    } catch {
      return void (location.href = link.href);
    }
    place.append(opened);
  }
  opened.hidden = false;
  link.hidden = true;
  for (const button of $$("[data-fold]", opened)) button.hidden = false;
  return undefined;
}

function fold(opened) {
  const link = $(":scope > .other", opened.parentElement);
  if (!link) return;
  opened.hidden = true;
  link.hidden = false;
  link.focus();
}

function goToHit() {
  const hit = $(".hit-message");
  const pane = hit?.closest(".pane, .page");
  if (pane && hit.offsetTop > pane.clientHeight / 2) hit.scrollIntoView({ block: "start" });
  for (const button of $$("[data-fold]")) button.hidden = false;
}

const nothingOpen = $("#reading")?.cloneNode(true).childNodes;
function closeMessage() {
  $$(".hit a[aria-current]").forEach((one) => one.removeAttribute("aria-current"));
  if (nothingOpen) $("#reading").replaceChildren(...[...nothingOpen].map((one) => one.cloneNode(true)));
}

// --- keyboard shortcuts

function move(step) {
  const rows = $$(".hit > a");
  if (!rows.length) return;
  const at = rows.findIndex((one) => one === document.activeElement || one.hasAttribute("aria-current"));
  const next = rows[Math.min(Math.max(at + step, 0), rows.length - 1)];
  next.focus();
  next.scrollIntoView({ block: "nearest" });
  if (wide.matches && panes) read(next);
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || $("dialog[open]")) return;
  const inField = event.target.matches("input:not([type=checkbox]), textarea, select");
  if (event.key === "Escape") {
    if (!$("#suggestions").hidden) return closeSuggestions();
    if (inField) return event.target.blur();
    if ($("#reading article")) return closeMessage();
    if ($("article.message [data-back]")) return $("article.message [data-back]").click();
    return undefined;
  }
  if (inField) return undefined;
  if (event.key === "/") { event.preventDefault(); box?.focus(); box?.select(); }
  else if (event.key === "?") $("#keys")?.showModal();
  else if (event.key === "j" || event.key === "k") move(event.key === "j" ? 1 : -1);
  else if (event.key === "a") {
    const boxes = $$(".hit input[type=checkbox]");
    const wanted = boxes.some((one) => !one.checked);
    for (const one of boxes) one.checked = wanted;
    arrange();
  } else if (event.key === "x") {
    const tick = document.activeElement?.closest(".hit")?.querySelector("input[type=checkbox]");
    if (tick) { tick.checked = !tick.checked; tick.dispatchEvent(new Event("change", { bubbles: true })); }
  }
  return undefined;
});

// --- suggestions

const list = $("#suggestions");
let chosen = -1;
let suggesting;

function closeSuggestions() {
  list.hidden = true;
  chosen = -1;
  box.setAttribute("aria-expanded", "false");
  box.removeAttribute("aria-activedescendant");
}

function mark(index) {
  const items = $$("li", list);
  chosen = (index + items.length) % items.length;
  items.forEach((one, at) => one.setAttribute("aria-selected", String(at === chosen)));
  box.setAttribute("aria-activedescendant", items[chosen].id);
}

function applySuggestion(text) {
  box.value = text;
  closeSuggestions();
  box.focus();
  box.dispatchEvent(new Event("input", { bubbles: true }));
}

async function suggest() {
  suggesting?.abort();
  suggesting = new AbortController();
  const upTo = box.value;
  if (!upTo || upTo.endsWith(" ")) return closeSuggestions();
  try {
    const answer = await fetch(`/suggest?q=${encodeURIComponent(upTo)}`, { signal: suggesting.signal });
    const found = answer.ok ? await answer.json() : [];
    if (!found.length || box.value !== upTo || document.activeElement !== box) return closeSuggestions();
    list.replaceChildren(...found.map((one, at) => {
      const item = document.createElement("li");
      item.id = `suggestion-${at}`;
      item.setAttribute("role", "option");
      item.setAttribute("aria-selected", "false");
      item.append(Object.assign(document.createElement("span"), { textContent: one.text }));
      item.append(Object.assign(document.createElement("span"), { textContent: one.hint, className: "quiet" }));
      item.addEventListener("mousedown", (event) => { event.preventDefault(); applySuggestion(one.text); });
      return item;
    }));
    list.hidden = false;
    chosen = -1;
    box.setAttribute("aria-expanded", "true");
  } catch (error) {
    if (error.name !== "AbortError") closeSuggestions();
  }
  return undefined;
}

if (box) {
  let wait;
  box.addEventListener("input", () => { clearTimeout(wait); wait = setTimeout(suggest, 90); });
  box.addEventListener("blur", closeSuggestions);
  box.addEventListener("keydown", (event) => {
    if (list.hidden) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") { event.preventDefault(); mark(chosen + (event.key === "ArrowDown" ? 1 : -1)); }
    else if ((event.key === "Enter" || event.key === "Tab") && chosen >= 0) {
      event.preventDefault();
      event.stopPropagation();
      applySuggestion($$("li span:first-child", list)[chosen].textContent);
    }
  }, true);
}

// --- selection, date histogram, and small page actions

function arrange() {
  const selected = $("#selected");
  if (selected) {
    const ticks = $$(".hit input[type=checkbox]:checked");
    const count = ticks.reduce((sum, one) => sum + 1 + (one.value.match(/\S+/g)?.length ?? 0), 0); // with the conversation's other hits
    selected.hidden = count === 0;
    const everything = $("#select-all");
    if (everything) {
      everything.hidden = ticks.length < $$(".hit").length; // all of this page: offer all of the others
      if (everything.hidden) $("input", everything).checked = false;
    }
    $(".hits").classList.toggle("selecting", count > 0);
    const isEvery = Boolean(everything && $("input", everything).checked);
    $("#selected-count").textContent = isEvery ? selected.dataset.every : selected.dataset.text.replace("#", String(count));
    for (const button of $$("[formaction='/export']", selected)) button.value = isEvery ? "all" : "selected";
  }
  const histogram = $(".histogram");
  if (histogram && !histogram.dataset.ready) {
    histogram.dataset.ready = "yes";
    const bars = $$("a", histogram);
    let begun = -1;
    const barAt = (event) => bars.indexOf(event.target.closest("a"));
    histogram.addEventListener("pointerdown", (event) => { begun = barAt(event); event.preventDefault(); });
    histogram.addEventListener("pointermove", (event) => {
      const now = barAt(event);
      if (begun < 0 || now < 0) return;
      bars.forEach((bar, n) => bar.classList.toggle("in", n >= Math.min(begun, now) && n <= Math.max(begun, now)));
    });
    histogram.addEventListener("pointerup", (event) => {
      const ended = barAt(event);
      if (begun >= 0 && ended >= 0 && begun !== ended) {
        const [low, high] = [bars[Math.min(begun, ended)], bars[Math.max(begun, ended)]];
        box.value = `${histogram.dataset.base} after:${low.dataset.from} before:${high.dataset.to}`.trim();
        show(address(box.value), { push: true });
      }
      begun = -1;
    });
  }
}

document.addEventListener("change", async (event) => {
  if (event.target.closest(".hit, #select-all")) arrange();
  const { into } = event.target.dataset;
  if (into) document.getElementById(into).value = await event.target.files[0].text();
});
for (const file of $$("input[data-into]")) file.hidden = false;
document.addEventListener("click", (event) => {
  if (event.target.closest("[data-print]")) print();
  if (event.target.closest("[data-fold]")) fold(event.target.closest(".opened"));
  for (const menu of $$("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
  const copy = event.target.closest("[data-copy]");
  if (copy) navigator.clipboard?.writeText(copy.dataset.copy);
});
document.addEventListener("submit", (event) => {
  const question = event.submitter?.dataset.confirm;
  if (question && !confirm(question)) event.preventDefault();
});
arrange();
goToHit();

export { $, $$, csrf };
