// Selected messages: the progress of a change, Enter in the field of a tag, and links to copy.
const WAIT_MS = 700;

async function follow(notice) {
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, WAIT_MS));
    if (!notice.isConnected) return;
    const answer = await fetch(notice.dataset.change, { headers: { Accept: "application/json" } }).catch(() => null);
    if (!answer?.ok) continue;
    const change = await answer.json();
    if (!change.is_open) return void location.reload(); // the rows have changed, too
    notice.querySelector("span").textContent = change.text;
    const bar = notice.querySelector("progress");
    if (change.total) Object.assign(bar, { max: change.total, value: change.done });
  }
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") for (const menu of document.querySelectorAll("details.menu[open]")) { menu.open = false; menu.querySelector("summary").focus(); }
  if (event.key !== "Enter" || !event.target.matches("[data-enter]")) return;
  event.preventDefault(); // the first button of the whole form would be pressed otherwise
  event.target.closest("div").querySelector("button")?.click();
}, true);
document.addEventListener("toggle", (event) => {
  if (event.target.matches?.("details.menu[open]")) event.target.querySelector("input:not([type=hidden]):not([type=checkbox]), textarea")?.focus();
}, true);
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy-link]");
  if (!button) return;
  await navigator.clipboard?.writeText(new URL(button.dataset.copyLink, location.href).href);
  button.querySelector("span").textContent = button.dataset.copied;
});

function reveal(root) {
  for (const button of root.querySelectorAll("[data-copy-link]")) button.hidden = !navigator.clipboard;
}
new MutationObserver((changes) => {
  for (const change of changes) for (const node of change.addedNodes) if (node.nodeType === 1) reveal(node);
}).observe(document.body, { childList: true, subtree: true });
reveal(document.body);
const notice = document.querySelector("[data-change][data-open]");
if (notice) follow(notice);
