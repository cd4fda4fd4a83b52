// Sends the files that another app shared to the archive, one by one; what was taken leaves the device's cache.
import { $, csrf } from "./app.js";

const form = $("#share");
const list = $(".uploads", form);
const cache = await caches.open("shared");
const waiting = await Promise.all((await cache.keys()).map(async (request) => {
  const answer = await cache.match(request);
  const item = Object.assign(document.createElement("li"), { className: "upload" });
  const state = Object.assign(document.createElement("span"), { className: "quiet" });
  item.append(Object.assign(document.createElement("span"), { textContent: decodeURIComponent(answer.headers.get("X-Name") ?? "") }), state);
  list.append(item);
  return { request, answer, state };
}));
form.hidden = waiting.length === 0;
$("#nothing-shared").hidden = waiting.length > 0;

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  for (const one of waiting.filter(({ done }) => !done)) {
    const mailbox = new URLSearchParams({ mailbox: form.elements.mailbox.value });
    const sent = await fetch(`/api/v1/messages?${mailbox}`, { method: "POST", body: await one.answer.clone().blob(), headers: { "X-CSRF-Token": csrf } });
    if (sent.ok) {
      await cache.delete(one.request);
      one.done = true;
      const link = Object.assign(document.createElement("a"), { href: `/messages/${(await sent.json()).id}`, textContent: form.dataset.done });
      one.state.replaceChildren(link);
    } else {
      const problem = await sent.json().catch(() => ({}));
      one.state.className = "bad";
      one.state.textContent = problem.detail ?? problem.title ?? sent.statusText;
    }
  }
  form.querySelector("button").hidden = waiting.every(({ done }) => done);
});
