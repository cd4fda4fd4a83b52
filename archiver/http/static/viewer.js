// Keys of the viewer of files: pages, files, finding. Everything is a link or a form that works without it.
const viewer = document.querySelector("[data-viewer]");

function follow(selector) {
  const link = viewer.querySelector(selector);
  if (link) link.click();
  return Boolean(link);
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const inField = event.target.matches("input, textarea, select");
  if (event.key === "Escape") {
    if (inField) return void event.target.blur();
    follow("[data-back]");
  }
  if (inField) return;
  const forward = document.documentElement.dir === "rtl" ? "ArrowLeft" : "ArrowRight";
  if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
    if (follow(event.key === forward ? "[data-page=after]" : "[data-page=before]")) event.preventDefault();
  } else if (event.key === "n") follow("[data-file=after]");
  else if (event.key === "p") follow("[data-file=before]");
  else if (event.key === "f") { event.preventDefault(); viewer.querySelector("#find")?.focus(); }
});

if (!viewer.querySelector(".drawn-page")) viewer.querySelector(".file-text mark")?.scrollIntoView({ block: "center" });
