// Looks at the parts again every few seconds, while the page can be seen.
const every = 4000;

async function look() {
  let ready = false;
  let parts = {};
  try {
    ({ ready, parts } = await (await fetch("/readyz", { cache: "no-store" })).json());
  } catch {
    document.getElementById("verdict").textContent = "The server does not answer.";
    return;
  }
  for (const row of document.querySelectorAll("[data-part]")) {
    const ok = parts[row.dataset.part] === "ok";
    const state = row.querySelector(".state");
    state.dataset.ok = String(ok);
    state.textContent = ok ? "ready" : "does not answer";
  }
  document.getElementById("verdict").textContent = ready
    ? "Everything runs."
    : "Something is missing. It is looked at again every few seconds.";
}

setInterval(() => { if (!document.hidden) look(); }, every);
