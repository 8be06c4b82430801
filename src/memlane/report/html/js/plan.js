// The timeline of a plan: choosing steps by pointer and keys, and zooming.

const TITLE = 0, ROW = 1, START = 2, END = 3, TAKES = 4, NEEDED = 5, CRITICAL = 6; // of a span
const MOST_ZOOM = 512;
const spans = page.spans;
const followers = spans.map(() => []);
spans.forEach((span, number) => span[NEEDED].forEach((other) => followers[other]?.push(number)));
const inRow = [];
spans.forEach((span, number) => (inRow[span[ROW]] ??= []).push(number));
inRow.forEach((row) => row.sort((one, other) => spans[one][START] - spans[other][START] || one - other));

let chosen = null;
let zoom = 1;

function choose(number) {
  chosen = number;
  document.querySelectorAll(".chosen").forEach((one) => one.classList.remove("chosen"));
  if (number === null) {
    byId("told").textContent = "";
    return;
  }
  document.querySelectorAll(`[data-step="${number}"], [data-of="${number}"], [data-to="${number}"]`).forEach((one) => one.classList.add("chosen"));
  const span = spans[number];
  const said = [`${span[TITLE]} (${span[TAKES]})`];
  if (span[CRITICAL]) said.push("on the critical path");
  if (span[NEEDED].length) said.push(`waited for ${names(span[NEEDED])}`);
  if (followers[number].length) said.push(`${names(followers[number])} waited for it`);
  byId("told").textContent = `${said.join("; ")}.`;
  show(number);
}

function names(numbers) {
  const listed = numbers.slice(0, 4).map((number) => (spans[number] ? spans[number][TITLE].replace(/: [^:]* to [^:]*$/, "") : `step ${number}`));
  return numbers.length > 4 ? `${listed.join(", ")} and ${numbers.length - 4} more` : listed.join(", ");
}

// Scrolls sideways until a step can be seen.
function show(number) {
  const stage = byId("stage");
  const box = document.querySelector(`[data-step="${number}"]`)?.getBoundingClientRect();
  const view = stage.getBoundingClientRect();
  if (box && (box.left < view.left || box.right > view.right)) stage.scrollLeft += box.left - view.left - view.width / 3;
}

function zoomTo(wanted) {
  const stage = byId("stage");
  const middle = chosen === null ? (stage.scrollLeft + stage.clientWidth / 2) / stage.scrollWidth : null;
  zoom = Math.max(1, Math.min(MOST_ZOOM, wanted));
  byId("drawing").style.width = `${100 * zoom}%`;
  fitNames();
  if (middle === null) show(chosen);
  else stage.scrollLeft = middle * stage.scrollWidth - stage.clientWidth / 2;
}

// A name stands in its box where there is room for all of it.
function fitNames() {
  document.querySelectorAll("svg.step").forEach((step) => {
    const name = step.querySelector("text").textContent;
    step.classList.toggle("narrow", step.getBoundingClientRect().width < 6.6 * name.length + 9);
  });
}

const last = (numbers) => numbers.reduce((best, number) => (best === null || spans[number][END] > spans[best][END] ? number : best), null);

function beside(step) {
  const row = inRow[spans[chosen][ROW]];
  return row[row.indexOf(chosen) + step] ?? chosen;
}

// The step of another queue that is nearest in time.
function across(step) {
  const span = spans[chosen], middle = (span[START] + span[END]) / 2;
  for (let row = span[ROW] + step; row >= 0 && row < inRow.length; row += step) {
    if (!inRow[row]) continue;
    const distance = (number) => Math.max(spans[number][START] - middle, middle - spans[number][END], 0);
    return inRow[row].reduce((best, number) => (distance(number) < distance(best) ? number : best));
  }
  return chosen;
}

function along(step) {
  const at = page.path.indexOf(chosen);
  if (at < 0) return page.path[step > 0 ? 0 : page.path.length - 1] ?? chosen;
  return page.path[at + step] ?? chosen;
}

const KEYS = {
  ArrowLeft: () => choose(beside(-1)),
  ArrowRight: () => choose(beside(1)),
  ArrowUp: () => choose(across(-1)),
  ArrowDown: () => choose(across(1)),
  Enter: () => choose(last(spans[chosen][NEEDED].filter((number) => spans[number])) ?? chosen),
  ",": () => choose(along(-1)),
  ".": () => choose(along(1)),
};
const ALWAYS = {
  "+": () => zoomTo(zoom * 2),
  "=": () => zoomTo(zoom * 2),
  "-": () => zoomTo(zoom / 2),
  Home: () => zoomTo(1),
  Escape: () => choose(null),
};

function startPlan() {
  const stage = byId("stage");
  stage.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = ALWAYS[event.key] ?? KEYS[event.key];
    if (!act) return;
    event.preventDefault();
    if (ALWAYS[event.key] || chosen !== null) act();
    else choose(event.key === "," ? page.path.at(-1) : page.path[0] ?? 0);
  });
  stage.addEventListener("click", (event) => {
    const step = event.target.closest("[data-step]");
    choose(step ? Number(step.dataset.step) : null);
  });
  byId("in").addEventListener("click", () => zoomTo(zoom * 2));
  byId("out").addEventListener("click", () => zoomTo(zoom / 2));
  byId("whole").addEventListener("click", () => zoomTo(1));
  addEventListener("resize", fitNames);
  fitNames();
  addEventListener("beforeprint", () => { zoomTo(1); byId("all-steps").open = true; });
}

startTheme();
if (byId("stage")) startPlan();
document.documentElement.dataset.ready = "yes";
