// Drawing the timeline: an overview of all multiprocessors, or the slots of one with every access.

const PALE = 0.4;

function drawLines() {
  const canvas = byId("lanes");
  if (!canvas || !now.launch) return;
  const rows = rowsNow();
  const high = rowHeight();
  const { pen, width, height } = surface(canvas, Math.max(60, rows.length * high) + AXIS + 4);
  if (now.sm === null) drawOverview(pen, width, rows, high);
  else if (rows.length) drawSlots(pen, width, rows, high);
  else drawNothing(pen, width);
  drawAxis(pen, width, height);
  drawNames(pen, width, rows, high);
}

function drawAxis(pen, width, height) {
  const { tick_ns } = now.launch;
  const from = now.from * tick_ns, to = now.to * tick_ns;
  const rough = (to - from) / Math.max(2, (width - GUTTER) / 110);
  const scale = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((by) => by * scale).find((by) => by >= rough);
  pen.fillStyle = ink("soft");
  pen.textAlign = "center";
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
    const x = xOf(at / tick_ns, width);
    pen.globalAlpha = 0.35;
    pen.fillRect(Math.round(x), AXIS - 3, 0.6, height - AXIS);
    pen.globalAlpha = 1;
    if (x > GUTTER + 20 && x < width - 22) pen.fillText(time(Math.round(at / step) * step), x, 10);
  }
}

function drawNames(pen, width, rows, high) {
  pen.textAlign = "right";
  const every = Math.ceil(13 / high);
  rows.forEach((row, index) => {
    const y = AXIS + index * high;
    if (index === now.row && document.activeElement === byId("lanes")) {
      pen.strokeStyle = ink("accent");
      pen.strokeRect(GUTTER - 0.5, y - 0.5, width - GUTTER, high);
    }
    if (index % every) return;
    pen.fillStyle = ink("soft");
    pen.fillText(now.sm === null ? `SM ${row.sm}` : `slot ${row.slot}`, GUTTER - 8, y + high / 2);
  });
}

// Each cell is a share of the greatest: the mean number of accesses in flight, or the cycles of those that start there.
function drawOverview(pen, width, rows, high) {
  const { bins, span, overview } = now.launch;
  const which = now.colour.all;
  const values = overview[which];
  const most = maximum(values) || 1;
  const lowest = Math.log(Math.max(1, smallest(values)));
  const range = Math.max(1e-9, Math.log(Math.max(most, 1)) - lowest);
  const first = Math.max(0, Math.floor((now.from / span) * bins));
  const last = Math.min(bins, Math.ceil((now.to / span) * bins));
  const heat = ink("heat");
  const gap = high > 6 ? 1 : 0;
  for (let row = 0; row < rows.length; row++) {
    for (let bin = first; bin < last; bin++) {
      const value = values[row * bins + bin];
      if (!(value > 0)) continue;
      // Whole pixels: cells that shared one would show a seam.
      const x = Math.max(GUTTER, Math.round(xOf((bin / bins) * span, width)));
      const end = Math.min(width, Math.round(xOf(((bin + 1) / bins) * span, width)));
      if (which === "flight") {
        pen.globalAlpha = 0.08 + 0.92 * (value / most) ** 0.8;
        pen.fillStyle = heat;
      } else pen.fillStyle = rampColour((Math.log(Math.max(value, 1)) - lowest) / range);
      pen.fillRect(x, AXIS + row * high, Math.max(end - x, 0.5), high - gap);
    }
  }
  pen.globalAlpha = 1;
}

function drawSlots(pen, width, rows, high) {
  const { life } = now.launch;
  const paint = painter();
  const background = ink("rule");
  rows.forEach((row, index) => {
    const y = AXIS + index * high;
    const first = firstWhere(row.from, row.to, (i) => life.end[i] >= now.from);
    let drawnTo = -1; // several in one pixel are drawn as one
    for (let i = first; i < row.to && life.begin[i] <= now.to; i++) {
      const x = Math.max(GUTTER, xOf(life.begin[i], width));
      const end = Math.min(width, xOf(life.end[i], width));
      pen.globalAlpha = 0.75;
      pen.fillStyle = background;
      pen.fillRect(x, y + high * 0.2, Math.max(0.7, end - x - 0.5), Math.max(2, high * 0.6));
      pen.globalAlpha = 1;
      drawnTo = drawAccesses(pen, width, i, y, high, paint, drawnTo);
      if (i === now.life) {
        pen.strokeStyle = ink("ink");
        pen.lineWidth = 1.5;
        pen.strokeRect(x, y + 0.5, Math.max(2, end - x), high - 1);
        pen.lineWidth = 1;
      }
    }
  });
}

function drawAccesses(pen, width, life, y, high, paint, drawnTo) {
  const { access, firsts, lanes } = now.launch;
  const tall = laneHeight(high);
  const stop = firsts[life + 1];
  // An access may begin before the window and reach into it: those of one warp overlap by few.
  let i = Math.max(firsts[life], firstWhere(firsts[life], stop, (at) => access.start[at] >= now.from) - 64);
  for (; i < stop && access.start[i] <= now.to; i++) {
    const until = accessEnd(i);
    if (until < now.from) continue;
    const x = Math.max(GUTTER, xOf(access.start[i], width));
    const end = Math.min(width, xOf(until, width));
    if (end > drawnTo || lanes > 1) {
      const colour = paint(i);
      const top = y + 1 + Math.min(access.lane[i], LANES - 1) * tall;
      const last = end - (end - x > 3 ? 0.6 : 0);
      const waited = waitedFrom(i, x, width);
      pen.fillStyle = colour.fill;
      pen.globalAlpha = colour.alpha * (waited > x ? PALE : 1);
      pen.fillRect(x, top, Math.max(0.8, last - x), tall - 0.3);
      pen.globalAlpha = colour.alpha;
      if (waited > x && waited < last) pen.fillRect(waited, top, last - waited, tall - 0.3);
      drawnTo = Math.max(drawnTo, Math.floor(end));
    }
    // Where accesses follow one another, only the last that begins within a pixel reaches out of it: on to that one.
    if (lanes === 1 && end - x < 1) i = Math.max(i, firstWhere(i + 1, stop, (at) => access.start[at] >= tickAt(Math.floor(x) + 1, width)) - 2);
  }
  pen.globalAlpha = 1;
  if (life === now.life && now.access >= 0) frameAccess(pen, width, y, high);
  return drawnTo;
}

// Where an access begins to be waited for; before, the warp did other things. `x` where that is not known.
function waitedFrom(index, x, width) {
  const { access, ticksACycle } = now.launch;
  if (!access.exposed || access.exposed[index] === UNKNOWN) return x;
  return Math.max(x, xOf(accessEnd(index) - access.exposed[index] * ticksACycle, width));
}

function frameAccess(pen, width, y, high) {
  const x = Math.max(GUTTER, xOf(now.launch.access.start[now.access], width));
  const end = Math.min(width, xOf(accessEnd(now.access), width));
  if (end < x) return;
  pen.strokeStyle = ink("ink");
  pen.lineWidth = 2;
  pen.strokeRect(x, y, Math.max(2, end - x), high - 1);
  pen.lineWidth = 1;
}

// The colour of an access: by its operation, or by its cycles; one operation may be in focus.
function painter() {
  const { access } = now.launch;
  const focused = (i) => (now.focus === null || access.operation[i] === now.focus ? 1 : 0.13);
  if (now.colour.one === "operation") return (i) => ({ fill: hue(access.operation[i]), alpha: focused(i) });
  const [low, high] = cycleRange();
  return (i) => ({ fill: rampColour((Math.log(access.cycles[i] + 1) - low) / (high - low)), alpha: focused(i) });
}

function cycleRange() {
  return [Math.log(now.launch.shortest + 1), Math.log(Math.max(now.launch.longest, 2) + 1) + 1e-9];
}

function drawNothing(pen, width) {
  pen.fillStyle = ink("soft");
  pen.textAlign = "center";
  pen.fillText(`This page does not contain the single accesses of SM ${now.sm}; memlane export FILE --to perfetto exports all of them.`, (GUTTER + width) / 2, AXIS + 30);
}

function drawLegend() {
  const legend = byId("legend");
  legend.replaceChildren();
  if (now.sm === null || now.colour.one === "cycles") {
    const [from, to, name] = rampOf();
    const flight = now.sm === null && now.colour.all === "flight";
    const bar = html("i", { class: "ramp" });
    bar.style.background = flight ? "linear-gradient(90deg, color-mix(in srgb, var(--heat) 8%, transparent), var(--heat))" : `linear-gradient(90deg, ${RAMP.join(",")})`;
    legend.append(html("span", {}, `${name}: ${three(from)}`, bar, three(to)));
    return;
  }
  for (const id of now.launch.operations) {
    const one = page.operations[id];
    const dot = html("i", { class: "dot" });
    dot.style.background = hue(id);
    legend.append(html("span", {}, dot, html("code", {}, one.op), ` line ${one.line}`));
  }
  if (now.launch.access.exposed) legend.append(html("span", {}, "pale: in flight; full colour: the warp waits for it"));
}

function rampOf() {
  if (now.sm !== null) return [...cycleRange().map((value) => Math.exp(value) - 1), "cycles of an access, on a logarithmic scale"];
  const values = now.launch.overview[now.colour.all];
  if (now.colour.all === "flight") return [0, maximum(values), "accesses in flight, on average"];
  return [smallest(values), maximum(values), "mean cycles of the accesses that start there, on a logarithmic scale"];
}
