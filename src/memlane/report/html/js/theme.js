// Light and dark, and the colours of what is drawn on canvases.

const THEMES = ["system", "light", "dark"];
const HUES = ["#3f76b5", "#d98324", "#459a63", "#b9506a", "#7d66b3", "#2f9a9f", "#94703f", "#c7a52c", "#c46fa6", "#7c8794"];
const RAMP = ["#2b5d8c", "#2f8f9d", "#7fae5a", "#d9a831", "#d9622b", "#a81f2d"]; // short to long

const redraws = []; // functions that draw again in new colours

function applyTheme(chosen) {
  if (chosen === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
  byId("theme").textContent = `Theme: ${chosen}`;
  inks.clear();
  applyThemeToPictures();
  redraws.forEach((draw) => draw());
}

// The pictures of accesses bring a style of their own that asks the system alone.
function applyThemeToPictures() {
  const chosen = document.documentElement.dataset.theme;
  document.querySelectorAll(".picture style").forEach((style) => {
    style.dataset.own ??= style.textContent;
    const media = { dark: "all", light: "not all" }[chosen] ?? "(prefers-color-scheme: dark)";
    style.textContent = style.dataset.own.replace("(prefers-color-scheme: dark)", media);
  });
}

function startTheme() {
  let chosen = "system";
  try { chosen = localStorage.getItem("memlane-theme") || chosen; } catch { /* a page from a file may have no storage */ }
  applyTheme(THEMES.includes(chosen) ? chosen : "system");
  byId("theme").addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme || "system") + 1) % THEMES.length];
    try { localStorage.setItem("memlane-theme", next); } catch { /* then it is forgotten */ }
    applyTheme(next);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => applyTheme(document.documentElement.dataset.theme || "system"));
  // Paper is white: canvases are pictures and would keep their dark colours. What is folded away could not be opened on paper.
  let before = null;
  let closed = [];
  addEventListener("beforeprint", () => {
    before = document.documentElement.dataset.theme || "system";
    applyTheme("light");
    closed = [...document.querySelectorAll("#findings details:not([open])")];
    closed.forEach((one) => { one.open = true; });
  });
  addEventListener("afterprint", () => {
    if (before) applyTheme(before);
    closed.forEach((one) => { one.open = false; });
    before = null;
    closed = [];
  });
}

const inks = new Map();
const probe = document.createElement("span");
probe.hidden = true;
document.body.append(probe);

// A colour of the style sheet as it is now; `light-dark()` is only worked out where it is used as a colour.
function ink(name) {
  if (!inks.has(name)) {
    probe.style.color = `var(--${name})`;
    inks.set(name, getComputedStyle(probe).color);
  }
  return inks.get(name);
}

const hue = (operation) => HUES[operation % HUES.length];

const steps = RAMP.map((text) => [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16)));
const ramp = Array.from({ length: 128 }, (_, index) => {
  const at = (index / 127) * (steps.length - 1);
  const low = Math.min(Math.floor(at), steps.length - 2);
  const mixed = steps[low].map((value, part) => Math.round(value + (steps[low + 1][part] - value) * (at - low)));
  return `rgb(${mixed.join(",")})`;
});
const rampColour = (share) => ramp[Math.max(0, Math.min(127, Math.round(share * 127)))];

// A canvas in device pixels, ready to draw in CSS pixels.
function surface(canvas, height) {
  const scale = devicePixelRatio || 1;
  const width = canvas.clientWidth || canvas.parentElement.clientWidth;
  canvas.style.height = `${height}px`;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = "11px system-ui, -apple-system, 'Segoe UI', Roboto, Arial, sans-serif";
  pen.textBaseline = "middle";
  return { pen, width, height };
}
