// Polls the state of the components while the page is visible.
const INTERVAL_MS = 4000;

async function poll() {
  let ready = false;
  let parts = {};
  try {
    ({ ready, parts } = await (await fetch("/readyz", { cache: "no-store" })).json());
  } catch {
    document.getElementById("verdict").textContent = "The server is not responding.";
    return;
  }
  for (const row of document.querySelectorAll("[data-part]")) {
    const ok = parts[row.dataset.part] === "ok";
    const state = row.querySelector(".state");
    state.dataset.ok = String(ok);
    state.textContent = ok ? "ready" : "not responding";
  }
  document.getElementById("verdict").textContent = ready
    ? "All components are running."
    : "A component is not responding. It is checked again every few seconds.";
}

setInterval(() => { if (!document.hidden) poll(); }, INTERVAL_MS);
