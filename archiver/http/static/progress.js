// Live progress bars, fed by server-sent events. The browser reconnects by itself.
import { $, $$ } from "./app.js";

const containers = $$("[data-progress]");
const number = new Intl.NumberFormat(document.documentElement.lang);

// A reload must not interrupt a user who is typing or uploading files.
function refresh() {
  if (!$(".upload") && !document.activeElement?.matches("input, select, textarea")) location.reload();
}

function span(seconds) {
  const [days, hours, minutes] = [seconds / 86400, seconds / 3600, seconds / 60].map(Math.round);
  if (seconds >= 2 * 86400) return `${number.format(days)} d`;
  if (seconds >= 2 * 3600) return `${number.format(hours)} h`;
  return seconds > 90 ? `${number.format(minutes)} min` : `${seconds} s`;
}

function set(root, session) {
  const live = $(".live", root);
  live.hidden = false;
  const status = root.dataset.detail === undefined ? null : $("#status");
  if (status && status.dataset.state !== "importing") {
    status.dataset.state = "syncing";
    status.textContent = status.dataset.running;
  }
  const bar = $("progress", live);
  bar.max = session.total ?? Math.max(session.mailboxes, 1);
  bar.value = session.total === null ? session.ended_mailboxes : session.seen;
  const rate = session.seconds > 1 ? session.seen / session.seconds : 0;
  const left = session.left_seconds === null ? null : Math.round(session.left_seconds);
  const parts = [session.total === null ? number.format(session.seen) : `${number.format(session.seen)} / ${number.format(session.total)}`];
  if (rate) parts.push(`${number.format(Math.round(rate))}/s`);
  if (left !== null && left > 2) parts.push(root.closest("[data-progress]").dataset.left.replace("{time}", span(left)));
  $(".live-text", live).textContent = parts.join(" · ");
}

function setBoxes(body, mailboxes) {
  body.replaceChildren(...mailboxes.map((box) => {
    const row = document.createElement("tr");
    const cell = (tag, text) => Object.assign(document.createElement(tag), { textContent: text });
    const name = cell("th", box.address);
    name.scope = "row";
    const bar = document.createElement("progress");
    bar.max = box.total ?? 1;
    bar.value = box.state === "done" ? bar.max : box.seen;
    bar.setAttribute("aria-label", box.address);
    const shown = document.createElement("td");
    shown.append(bar);
    if (box.error) shown.append(Object.assign(cell("div", box.error), { className: "bad" }));
    const archived = Object.assign(cell("td", number.format(box.archived)), { className: "number" });
    const failed = Object.assign(cell("td", number.format(box.failed)), { className: "number" });
    row.append(name, shown, archived, failed);
    return row;
  }));
}

if (containers.length) {
  // Includes runs that were active when the page was rendered: one that ends before the first event has finished, too.
  const known = new Set($$("[data-runs]").map((one) => one.dataset.runs));
  const events = new EventSource("/api/v1/progress");
  events.addEventListener("progress", (event) => {
    const { running } = JSON.parse(event.data);
    let begun = false;
    const now = new Set(running.map((one) => one.session.source_id));
    for (const { session, mailboxes } of running) {
      const card = $(`[data-source="${session.source_id}"]`);
      if (!card) continue;
      begun ||= $(".live", card).hidden;
      set(card, session);
      const body = $(".live-boxes", card);
      if (body) setBoxes(body, mailboxes);
    }
    const over = [...known].some((one) => !now.has(one));
    const started = document.querySelector("[data-all]") && [...now].some((one) => !known.has(one)) && known.size;
    now.forEach((one) => known.add(one));
    if (over || started || begun) refresh();
  });
  addEventListener("pagehide", () => events.close());
}
