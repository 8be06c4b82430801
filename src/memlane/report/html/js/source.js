// The listing: lines open to show the distributions of their operations.

const SVG = "http://www.w3.org/2000/svg";
const PLOT = { width: 560, height: 156, left: 8, right: 8, top: 34, bottom: 28 };

function svg(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function html(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function startSource() {
  document.querySelectorAll("[data-colour]").forEach((dot) => { dot.style.background = hue(Number(dot.dataset.colour)); });
  document.querySelectorAll(".code button").forEach((button) => {
    button.addEventListener("click", () => openLine(button, button.getAttribute("aria-expanded") !== "true"));
  });
  document.querySelectorAll("tr.hot").forEach((row) => {
    row.addEventListener("click", (event) => {
      if (event.target.closest("a, button") || String(getSelection())) return; // they act by themselves; who marks text wants to copy it
      const button = row.querySelector("button");
      openLine(button, button.getAttribute("aria-expanded") !== "true");
    });
  });
  document.querySelectorAll(".unfold").forEach((button) => {
    button.addEventListener("click", () => {
      const rows = button.closest("tbody").nextElementSibling;
      rows.hidden = !rows.hidden;
      button.setAttribute("aria-expanded", String(!rows.hidden));
    });
  });
}

function openLine(button, open) {
  const detail = byId(button.getAttribute("aria-controls"));
  const panel = detail.querySelector(".panel");
  if (!panel.childElementCount) panel.dataset.operations.split(" ").forEach((id) => panel.append(distribution(page.operations[Number(id)])));
  const picture = detail.querySelector(".picture[hidden]");
  if (open && picture && unpacked) unpacked.then(() => showPicture(picture));
  detail.hidden = !open;
  button.setAttribute("aria-expanded", String(open));
}

function showPicture(figure) {
  const text = new TextDecoder().decode(column(figure.dataset.picture));
  figure.append(document.importNode(new DOMParser().parseFromString(text, "image/svg+xml").documentElement, true));
  figure.hidden = false;
  applyThemeToPictures();
}

// Opens the line of an operation and shows it.
function showLine(operation) {
  const row = document.querySelector(`tr[data-operation="${operation}"]`);
  let line = row;
  while (line && !line.classList.contains("hot")) line = line.previousElementSibling;
  if (!line) return;
  showInSourceOrder(line.closest("table"));
  const button = line.querySelector("button");
  openLine(button, true);
  line.scrollIntoView({ block: "center" });
  button.focus({ preventScroll: true });
}

function distribution(one) {
  const heading = html("h4", {}, one.op);
  if (page.launches.length && one.accesses) {
    const button = html("button", { type: "button", class: "seek" }, "Show on the timeline");
    button.addEventListener("click", () => focusOperation(one.id));
    heading.append(button);
  }
  const facts = html("dl", { class: "facts" });
  for (const [name, text] of one.facts) facts.append(html("dt", {}, name), html("dd", {}, text));
  if (one.accesses) facts.append(html("dt", {}, "marks"), html("dd", {}, `triangles: p50, p95, p99${one.levels.length ? "; dashes: the latencies of the levels" : ""}`));
  return html("div", { class: "distribution" }, heading, one.accesses ? histogram(one) : html("p", { class: "note" }, "No access was recorded here."), facts);
}

function histogram(one) {
  const { width, height, left, right, top, bottom } = PLOT;
  const { first, counts } = one.histogram;
  const low = Math.max(0, Math.min(page.bins[first], ...one.levels.map((level) => level.cycles)) * 0.7);
  const high = Math.max(page.bins[first + counts.length], ...one.levels.map((level) => level.cycles)) * 1.25 + 1;
  const place = (cycles) => left + (Math.log((cycles + 1) / (low + 1)) / Math.log((high + 1) / (low + 1))) * (width - left - right);
  const base = height - bottom;
  const most = Math.max(...counts);
  const drawn = svg("svg", { class: "histogram", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": described(one) });
  counts.forEach((count, index) => {
    if (!count) return;
    const from = page.bins[first + index];
    const to = page.bins[first + index + 1];
    const tall = Math.max(1, (count / most) * (base - top));
    const bar = svg("rect", { class: "bar", x: place(from), y: base - tall, width: Math.max(1, place(to) - place(from) - 0.6), height: tall });
    bar.append(svg("title", {}, `${grouped(count)} of ${grouped(one.accesses)} accesses: ${from === to - 1 ? from : `${grouped(from)} to ${grouped(to - 1)}`} cycles`));
    drawn.append(bar);
  });
  drawn.append(svg("line", { class: "axis", x1: left, x2: width - right, y1: base + 0.5, y2: base + 0.5 }));
  for (const tick of niceCycles(low, high)) drawn.append(svg("text", { x: place(tick), y: height - 6, "text-anchor": "middle" }, grouped(tick)));
  drawLevels(drawn, one.levels, place, base);
  for (const [name, value] of [["p50", one.cycles_p50], ["p95", one.cycles_p95], ["p99", one.cycles_p99]]) {
    const mark = svg("path", { class: "rank-mark", d: `M${place(value)} ${base + 1}l3.5 6h-7z` });
    mark.append(svg("title", {}, `${name}: ${grouped(value)} cycles`));
    drawn.append(mark);
  }
  return drawn;
}

function drawLevels(drawn, levels, place, base) {
  const ends = [-1, -1]; // where the names of the two rows end
  for (const level of [...levels].sort((a, b) => a.cycles - b.cycles)) {
    const x = place(level.cycles);
    const name = `${level.name} ${three(level.cycles)}`;
    const wide = name.length * 6.6 + 6;
    const end = x + wide > PLOT.width;
    const row = (end ? x - wide : x) > ends[0] ? 0 : 1;
    ends[row] = end ? x : x + wide;
    const line = svg("line", { class: "level", x1: x, x2: x, y1: row ? 15 : 27, y2: base });
    line.append(svg("title", {}, `${level.name}: ${three(level.cycles)} cycles; ${level.source}`));
    drawn.append(line, svg("text", { class: "level-name", x: x + (end ? -3 : 3), y: row ? 12 : 25, "text-anchor": end ? "end" : "start" }, name));
  }
}

// Numbers for a logarithmic axis; where it is too short for powers of ten and their halves, even steps.
function niceCycles(low, high) {
  const found = [];
  if (high < 6 * low) {
    const rough = (high - low) / 4;
    const scale = 10 ** Math.floor(Math.log10(rough));
    const step = Math.max(1, [1, 2, 5, 10].map((by) => by * scale).find((by) => by >= rough));
    for (let at = Math.ceil((low * 1.02) / step) * step; at < high * 0.98; at += step) found.push(at);
    return found;
  }
  for (let scale = 1; scale <= high; scale *= 10) {
    for (const step of [1, 2, 5]) if (scale * step > low * 1.15 + 0.5 && scale * step < high * 0.93) found.push(scale * step);
  }
  return found;
}

function described(one) {
  const marked = one.levels.map((level) => `${level.name} ${three(level.cycles)}`).join(", ");
  return `Distribution of cycles of ${one.op}, line ${one.line}: p50 ${one.cycles_p50}, p95 ${one.cycles_p95}, p99 ${one.cycles_p99}.${marked ? ` Levels: ${marked}.` : ""}`;
}
