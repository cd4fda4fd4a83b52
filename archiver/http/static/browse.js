// The tree of folders: levels are loaded when they are opened, and the arrow keys walk through it.
const tree = () => document.querySelector(".tree");

function reveal() {
  for (const button of document.querySelectorAll(".twisty[hidden], .more-folders[hidden]")) button.hidden = false;
}

async function load(url) {
  const answer = await fetch(url, { headers: { Accept: "text/html" } });
  if (!answer.ok) throw new Error(String(answer.status));
  return new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("ul");
}

async function toggle(button, wanted = button.getAttribute("aria-expanded") !== "true") {
  const item = button.closest("li");
  let list = item.querySelector(":scope > ul");
  if (wanted && !list) {
    button.disabled = true;
    try {
      list = await load(button.dataset.load);
    } finally {
      button.disabled = false;
    }
    item.append(list);
    reveal();
  }
  if (list) list.hidden = !wanted;
  button.setAttribute("aria-expanded", String(wanted));
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest(".twisty");
  if (button) return toggle(button);
  const more = event.target.closest(".more-folders");
  if (!more) return undefined;
  const list = await load(more.dataset.more);
  const place = more.closest("ul");
  more.closest("li").remove();
  const first = list.querySelector("a");
  place.append(...list.children);
  reveal();
  first?.focus();
  return undefined;
});

document.addEventListener("keydown", (event) => {
  const link = event.target.closest?.(".tree a");
  if (!link || event.altKey || event.ctrlKey || event.metaKey) return;
  const button = link.parentElement.querySelector(".twisty");
  const links = [...tree().querySelectorAll("li a")].filter((one) => one.offsetParent);
  const at = links.indexOf(link);
  const isOpen = button?.getAttribute("aria-expanded") === "true";
  if (event.key === "ArrowDown" || event.key === "ArrowUp") links[at + (event.key === "ArrowDown" ? 1 : -1)]?.focus();
  else if (event.key === "ArrowRight" && button) isOpen ? links[at + 1]?.focus() : toggle(button, true);
  else if (event.key === "ArrowLeft" && isOpen) toggle(button, false);
  else if (event.key === "ArrowLeft") link.closest("ul").closest("li")?.querySelector("a").focus();
  else return;
  event.preventDefault();
});

new MutationObserver(reveal).observe(document.querySelector("main"), { childList: true, subtree: true });
reveal();
