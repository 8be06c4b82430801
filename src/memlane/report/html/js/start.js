// Everything begins here, once the page is there.

if (typeof DecompressionStream === "undefined") say("The timeline needs a browser from 2023 or later.");
else unpacked = unpack();
startTheme();
startSource();
startSorting();
(unpacked ?? Promise.resolve()).then(() => {
  if (unpacked && page.launches.length) {
    startWarps();
    startTimeline();
  }
  document.documentElement.dataset.ready = "yes";
});
// A link to a line opens it.
addEventListener("hashchange", openTarget);
openTarget();

function openTarget() {
  const line = location.hash.length > 1 ? document.getElementById(decodeURIComponent(location.hash.slice(1))) : null;
  const button = line?.classList.contains("hot") ? line.querySelector("button") : null;
  if (button) openLine(button, true);
}
