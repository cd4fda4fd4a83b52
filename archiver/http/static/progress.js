// Live progress bars, fed by server-sent events. The browser reconnects by itself.
import { $, $$ } from "./app.js";

const containers = $$("[data-progress]");
const number = new Intl.NumberFormat(document.documentElement.lang);

// A reload must not interrupt a user who is typing or uploading files, nor send a form again whose response is being read.
function refresh() {
  if (!$(".upload, [data-response]") && !document.activeElement?.matches("input, select, textarea")) location.reload();
}

// A rough length of time in the reader's language.
function span(seconds) {
  const [unit, length] = seconds >= 172800 ? ["day", 86400] : seconds >= 7200 ? ["hour", 3600] : seconds > 90 ? ["minute", 60] : ["second", 1];
  const format = new Intl.NumberFormat(document.documentElement.lang, { style: "unit", unit, unitDisplay: unit === "day" ? "long" : "short" });
  return format.format(Math.round(seconds / length));
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
