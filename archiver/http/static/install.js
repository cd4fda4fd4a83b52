// The app on a phone or desktop: an offline page, and mail files that other apps share. No mail is stored on the device.
if ("serviceWorker" in navigator && isSecureContext) navigator.serviceWorker.register("/service-worker.js").catch(() => {});
