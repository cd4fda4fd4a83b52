// A one-time token travels in the fragment of a link, which browsers keep to themselves. It is moved into the form here, and out
// of the address and the history.
const field = document.querySelector("input[name=token]");

function takeToken() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!token || !field) return;
  history.replaceState(null, "", location.pathname + location.search);
  field.value = token;
  if (field.form.hasAttribute("data-submit")) field.form.submit();
  else (document.querySelector("input[name=email]") ?? field).focus();
}

addEventListener("hashchange", takeToken);
takeToken();
