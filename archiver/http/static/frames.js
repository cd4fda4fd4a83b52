// Frames of mail are as tall as their mail. No script runs inside of them (sandbox and policy), so this page measures them.
const LEAST = 64;
const MOST = 40000; // what is longer scrolls inside

function measure(inside) {
  const root = inside.documentElement;
  const bar = root.scrollWidth > root.clientWidth ? 16 : 0; // a wide table brings a scroll bar
  return Math.min(Math.max(Math.ceil(Number(root.scrollHeight)) + bar, LEAST), MOST) || LEAST;
}

function fit(frame) {
  const inside = frame.contentDocument;
  if (!inside?.body) return; // the browser keeps it to itself: the estimate stays
  const pane = frame.closest(".pane, .page");
  const scrolled = pane?.scrollTop;
  frame.style.height = `${LEAST}px`; // mail that is as tall as its frame, and more, must not make it grow for ever
  frame.style.height = `${measure(inside)}px`;
  if (pane && pane.scrollTop !== scrolled) pane.scrollTop = scrolled;
}

const watched = new WeakMap();

function watch(frame) {
  watched.get(frame)?.disconnect();
  const inside = frame.contentDocument;
  if (!inside?.body || inside.URL === "about:blank") return;
  fit(frame);
  let pending = 0;
  const observer = new ResizeObserver(() => { // a fold that opens, images that arrive, a window that gets narrower
    cancelAnimationFrame(pending);
    pending = requestAnimationFrame(() => fit(frame));
  });
  observer.observe(inside.documentElement);
  watched.set(frame, observer);
}

document.addEventListener("load", (event) => { if (event.target.matches?.("iframe.mail-html")) watch(event.target); }, true);
for (const frame of document.querySelectorAll("iframe.mail-html")) if (frame.contentDocument?.readyState === "complete") watch(frame);
