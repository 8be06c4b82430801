// The timeline reacts to pointer, wheel and keys.

const CHOICES = { all: [["flight", "accesses in flight"], ["cycles", "mean cycles"]], one: [["operation", "by operation"], ["cycles", "by cycles"]] };

let launchNow = new Map(); // by number: a launch is unpacked when it is first looked at

function startTimeline() {
  const canvas = byId("lanes");
  byId("launch").addEventListener("change", (event) => openLaunch(Number(event.target.value)));
  byId("sm").addEventListener("change", (event) => openSm(event.target.value === "" ? null : Number(event.target.value)));
  byId("colour").addEventListener("change", (event) => { now.colour[now.sm === null ? "all" : "one"] = event.target.value; refresh(); });
  byId("in").addEventListener("click", () => { zoom(0.5); refresh(); });
  byId("out").addEventListener("click", () => { zoom(2); refresh(); });
  byId("whole").addEventListener("click", () => { whole(); refresh(); });
  canvas.addEventListener("keydown", onKey);
  canvas.addEventListener("wheel", onWheel, { passive: false });
  canvas.addEventListener("pointerdown", onDown);
  canvas.addEventListener("pointermove", onMove);
  canvas.addEventListener("pointerleave", () => { byId("tip").hidden = true; });
  canvas.addEventListener("dblclick", (event) => { zoom(0.4, tickAt(event.offsetX, canvas.clientWidth)); refresh(); });
  for (const name of ["focus", "blur"]) canvas.addEventListener(name, drawLines);
  addEventListener("resize", drawLines);
  redraws.push(drawLines, () => now.launch && drawLegend());
  openLaunch(0);
}

function openLaunch(number) {
  if (!launchNow.has(number)) launchNow.set(number, launchOf(number));
  Object.assign(now, { launch: launchNow.get(number), sm: null, row: 0, life: -1, access: -1 });
  byId("launch").value = String(number);
  const { sms, sms_kept, rows } = now.launch;
  const options = sms.map((sm) => {
    const part = rows.has(sm) ? (sms_kept.includes(sm) ? "" : ", in part") : ", not drawn";
    return html("option", { value: sm }, `SM ${sm}${part}`);
  });
  byId("sm").replaceChildren(html("option", { value: "" }, "all multiprocessors"), ...options);
  byId("left-out").textContent = now.launch.left_out;
  whole();
  refresh();
  showMeans();
}

function openSm(sm, life = -1) {
  Object.assign(now, { sm, row: 0, life: -1, access: -1 });
  refresh();
  showWarps();
  if (sm === null) return;
  const rows = rowsNow();
  say(rows.length ? `Multiprocessor ${sm}: ${rows.length} warp slots` : `The single accesses of multiprocessor ${sm} are not in this page`);
  const first = rows.length ? firstWithAccess(rows) : -1;
  if (life >= 0 || first >= 0) chooseLife(life >= 0 ? life : first);
}

function firstWithAccess(rows) {
  for (const row of rows) for (let i = row.from; i < row.to; i++) if (now.launch.life.count[i]) return i;
  return -1;
}

function chooseLife(life, access = -1) {
  Object.assign(now, { life, access });
  const row = rowsNow().findIndex((one) => one.from <= life && life < one.to);
  if (row >= 0) now.row = row;
  say((access >= 0 ? toldAccess(access, life) : toldLife(life)).replaceAll("\n", "; "));
  refresh();
  showSeries();
  markWarp();
}

// From the listing: one operation in full colour, in a launch and on a multiprocessor that has it.
function focusOperation(operation) {
  now.focus = operation;
  const has = (launch) => launch.operations.includes(operation);
  for (const line of page.launches) {
    if (!launchNow.has(line.number)) launchNow.set(line.number, launchOf(line.number));
  }
  if (!has(now.launch)) {
    const other = page.launches.find((line) => has(launchNow.get(line.number)));
    if (other) openLaunch(other.number);
  }
  const { access, firsts, life } = now.launch;
  const at = access.operation.indexOf(operation);
  if (at >= 0) openSm(life.sm[firstWhere(0, life.sm.length, (i) => firsts[i + 1] > at)]);
  now.focus = operation;
  refresh();
  say(at < 0 ? `${operationName(operation)} is not among the accesses drawn` : `${operationName(operation)} in full colour; press Escape to undo`);
  byId("timeline").scrollIntoView();
  byId("lanes").focus({ preventScroll: true });
}

function refresh() {
  const kind = now.sm === null ? "all" : "one";
  const options = CHOICES[kind].map(([value, text]) => html("option", { value }, text));
  byId("colour").replaceChildren(...options);
  byId("colour").value = now.colour[kind];
  byId("sm").value = now.sm === null ? "" : String(now.sm);
  drawLegend();
  drawLines();
}

function rowAt(y) {
  const index = Math.floor((y - AXIS) / rowHeight());
  return index >= 0 && index < rowsNow().length ? index : -1;
}

function onDown(event) {
  const canvas = event.currentTarget;
  const width = canvas.clientWidth;
  const begin = { x: event.offsetX, from: now.from, to: now.to };
  let moved = false;
  canvas.setPointerCapture(event.pointerId);
  const move = (next) => {
    if (Math.abs(next.offsetX - begin.x) > 3) moved = true;
    if (!moved) return;
    if (event.shiftKey) drawRange(canvas, begin.x, next.offsetX);
    else {
      const shift = (begin.x - next.offsetX) / (width - GUTTER) * (begin.to - begin.from);
      windowTo(begin.from + shift, begin.to + shift);
      drawLines();
    }
  };
  const up = (last) => {
    canvas.removeEventListener("pointermove", move);
    canvas.removeEventListener("pointerup", up);
    if (!moved) choose(last.offsetX, last.offsetY, width);
    else if (event.shiftKey) {
      const [from, to] = [begin.x, last.offsetX].sort((a, b) => a - b).map((x) => tickAt(x, width));
      windowTo(from, to);
      refresh();
    }
  };
  canvas.addEventListener("pointermove", move);
  canvas.addEventListener("pointerup", up);
}

function drawRange(canvas, from, to) {
  drawLines();
  const pen = canvas.getContext("2d");
  pen.fillStyle = ink("accent");
  pen.globalAlpha = 0.2;
  pen.fillRect(Math.min(from, to), AXIS, Math.abs(to - from), canvas.clientHeight);
  pen.globalAlpha = 1;
}

function choose(x, y, width) {
  const row = rowAt(y);
  if (row < 0) return;
  now.row = row;
  if (now.sm === null) return openSm(now.launch.sms[row]);
  const tick = tickAt(x, width);
  const life = lifeAt(rowsNow()[row], tick);
  if (life >= 0) chooseLife(life, accessAt(life, tick, 2 / scaleOf(width), laneAt(y)));
}

function onMove(event) {
  const tip = byId("tip");
  const width = event.currentTarget.clientWidth;
  const row = event.buttons ? -1 : rowAt(event.offsetY);
  const text = row < 0 || event.offsetX < GUTTER ? "" : toldAt(row, tickAt(event.offsetX, width), 2 / scaleOf(width), laneAt(event.offsetY));
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  tip.style.left = `${Math.min(event.offsetX + 14, width - tip.offsetWidth - 4)}px`;
  tip.style.top = `${event.offsetY + 16}px`;
}

function toldAt(row, tick, slack, lane) {
  if (now.sm === null) {
    const { bins, span, overview, sms } = now.launch;
    const cell = row * bins + Math.max(0, Math.min(bins - 1, Math.floor((tick / span) * bins)));
    return `SM ${sms[row]} at ${time(tick * now.launch.tick_ns)}\n${three(overview.flight[cell])} accesses in flight; those that start here take ${three(overview.cycles[cell])} cycles in the mean`;
  }
  const life = lifeAt(rowsNow()[row], tick);
  if (life < 0) return "";
  const access = accessAt(life, tick, slack, lane);
  return access < 0 ? toldLife(life) : toldAccess(access, life);
}

function onWheel(event) {
  if (event.ctrlKey || event.metaKey || event.shiftKey) zoom(Math.exp((event.deltaY || event.deltaX) / 400), tickAt(event.offsetX, event.currentTarget.clientWidth));
  else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(event.deltaX / 900);
  else return; // the page scrolls
  event.preventDefault();
  drawLines();
}

const KEYS = {
  ArrowLeft: () => pan(-0.15),
  ArrowRight: () => pan(0.15),
  ArrowUp: () => moveRow(-1),
  ArrowDown: () => moveRow(1),
  "+": () => zoom(0.6),
  "=": () => zoom(0.6),
  "-": () => zoom(1 / 0.6),
  Home: whole,
  Enter: openRow,
  ",": () => stepAccess(-1),
  ".": () => stepAccess(1),
  Escape: goBack,
};

function onKey(event) {
  const act = KEYS[event.key];
  if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  act();
  refresh();
}

function moveRow(by) {
  now.row = Math.max(0, Math.min(rowsNow().length - 1, now.row + by));
  const row = rowsNow()[now.row];
  if (!row) return;
  if (now.sm === null) {
    const { sms, means } = now.launch;
    say(`SM ${sms[now.row]}: ${grouped(means.warps[now.row])} warps, ${three(means.mean[now.row])} cycles on average (mean of the warps' means)`);
  } else say(`slot ${row.slot}: ${row.to - row.from} warps, one after another`);
}

function openRow() {
  if (now.sm === null) return openSm(now.launch.sms[now.row]);
  const row = rowsNow()[now.row];
  const { life } = now.launch;
  const first = row ? firstWhere(row.from, row.to, (i) => life.end[i] >= now.from) : -1;
  if (row && first < row.to) chooseLife(first);
}

// To the next access of the chosen warp; the window follows it.
function stepAccess(by) {
  if (now.life < 0) return;
  const { firsts, access } = now.launch;
  const [first, end] = [firsts[now.life], firsts[now.life + 1]];
  if (first === end) return;
  const next = now.access < 0 ? (by > 0 ? first : end - 1) : Math.max(first, Math.min(end - 1, now.access + by));
  const size = now.to - now.from;
  if (access.start[next] < now.from || accessEnd(next) > now.to) windowTo(access.start[next] - size / 3, access.start[next] + (2 * size) / 3);
  chooseLife(now.life, next);
}

function goBack() {
  if (now.focus !== null) now.focus = null;
  else if (now.access >= 0) now.access = -1;
  else if (now.sm !== null) {
    const row = now.launch.sms.indexOf(now.sm);
    openSm(null);
    now.row = row;
  }
}
