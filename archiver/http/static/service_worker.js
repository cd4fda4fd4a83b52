// Shows a page of ours when the server can't be reached, and takes files that other apps share. Stores no mail:
// a shared file waits in a cache of its own until the page has sent it, and is then removed.
const SHELL = "shell-VERSION";
const SHARED = "shared";
const FILES = ["/offline", "STATIC/archiver.css", "STATIC/reading.css", "STATIC/icon.svg"];

addEventListener("install", (event) => {
  skipWaiting();
  event.waitUntil(caches.open(SHELL).then((cache) => cache.addAll(FILES)));
});
addEventListener("activate", (event) => {
  event.waitUntil((async () => {
    for (const name of await caches.keys()) if (name !== SHELL && name !== SHARED) await caches.delete(name);
    await clients.claim();
  })());
});

async function takeShared(request) {
  const form = await request.formData();
  const cache = await caches.open(SHARED);
  let number = 0;
  for (const file of form.getAll("mail")) {
    if (!(file instanceof File)) continue;
    await cache.put(`/shared/${Date.now()}-${number}`, new Response(file, { headers: { "X-Name": encodeURIComponent(file.name) } }));
    number += 1;
  }
  return Response.redirect("/share", 303);
}

addEventListener("fetch", (event) => {
  const { request } = event;
  const url = new URL(request.url);
  if (url.origin !== location.origin) return;
  if (request.method === "POST" && url.pathname === "/share") event.respondWith(takeShared(request));
  else if (request.mode === "navigate" && request.method === "GET" && request.destination === "document") {
    event.respondWith(fetch(request).catch(() => caches.match("/offline")));
  } else if (FILES.includes(url.pathname)) event.respondWith(caches.match(request).then((known) => known ?? fetch(request)));
});
