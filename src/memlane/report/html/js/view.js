// What is looked at now, and the window of time. All else draws from this and never keeps its own copy.

const GUTTER = 74; // for the names of rows
const AXIS = 22;
const LANES = 4; // so many overlapping accesses of a warp are drawn below one another

const now = { launch: null, sm: null, from: 0, to: 1, row: 0, life: -1, access: -1, focus: null, colour: { all: "flight", one: "operation" } };

const scaleOf = (width) => (width - GUTTER) / (now.to - now.from);
const xOf = (tick, width) => GUTTER + (tick - now.from) * scaleOf(width);
const tickAt = (x, width) => now.from + (x - GUTTER) / scaleOf(width);

function windowTo(from, to) {
  const span = now.launch.span;
  const size = Math.min(span, Math.max(to - from, 16 / now.launch.tick_ns / 16));
  now.from = Math.max(0, Math.min(from, span - size));
  now.to = now.from + size;
}

function zoom(factor, around = (now.from + now.to) / 2) {
  windowTo(around - (around - now.from) * factor, around + (now.to - around) * factor);
}

const pan = (share) => windowTo(now.from + share * (now.to - now.from), now.to + share * (now.to - now.from));

function whole() {
  now.from = 0;
  now.to = now.launch.span;
}

// The rows of the drawing: all multiprocessors, or the slots of one.
function rowsNow() {
  return now.sm === null ? now.launch.sms.map((sm) => ({ sm })) : now.launch.rows.get(now.sm) ?? [];
}

function rowHeight() {
  const rows = rowsNow().length || 1;
  return now.sm === null ? Math.max(4, Math.min(22, Math.floor(560 / rows))) : Math.max(7, Math.min(26, Math.floor(600 / rows)));
}

// The height of a lane in a row, and the lane at a height.
const laneHeight = (high) => Math.max(1.5, (high - 2) / Math.min(now.launch.lanes, LANES));
const laneAt = (y) => Math.min(LANES - 1, Math.floor(Math.max(0, ((y - AXIS) % rowHeight()) - 1) / laneHeight(rowHeight())));

// The warp at a moment in a slot, -1 if the slot is free then.
function lifeAt(row, tick) {
  const { life } = now.launch;
  const index = firstWhere(row.from, row.to, (i) => life.end[i] >= tick);
  return index < row.to && life.begin[index] <= tick ? index : -1;
}

const accessEnd = (index) => now.launch.access.start[index] + now.launch.access.cycles[index] * now.launch.ticksACycle;

// The access of a warp at a moment, with `slack` ticks of forgiveness; of those that overlap, the one in the `lane` pointed at.
function accessAt(life, tick, slack, lane) {
  const { access, firsts } = now.launch;
  const after = firstWhere(firsts[life], firsts[life + 1], (i) => access.start[i] > tick + slack);
  let found = -1;
  for (let i = after - 1; i >= Math.max(firsts[life], after - 64); i--) {
    if (accessEnd(i) + slack < tick) continue;
    if (Math.min(access.lane[i], LANES - 1) === lane) return i;
    if (found < 0) found = i;
  }
  return found;
}

const place = (life) => `block ${now.launch.life.block[life]}, warp ${now.launch.life.warp[life]}`;

function toldAccess(index, life) {
  const { access, tick_ns, firsts } = now.launch;
  const costs = [];
  if (access.exposed && access.exposed[index] !== UNKNOWN) costs.push(`${grouped(access.exposed[index])} of them exposed`);
  if (access.sectors[index] !== 0xffff) costs.push(plural(access.sectors[index], "sector"));
  if (access.wavefronts[index] !== 0xffff) costs.push(plural(access.wavefronts[index], "wavefront"));
  return [
    operationName(access.operation[index]),
    `${grouped(access.cycles[index])} cycles${costs.length ? `, ${costs.join(", ")}` : ""}`,
    `${place(life)}; access ${grouped(index - firsts[life] + 1)} of ${grouped(now.launch.life.recorded[life])}`,
    `starts at ${time(access.start[index] * tick_ns)}`,
  ].join("\n");
}

function toldLife(index) {
  const { life, tick_ns } = now.launch;
  const count = life.recorded[index];
  return `${place(index)}: ${grouped(count)} accesses${count ? `, ${three(life.mean[index])} cycles on average` : ""}\n${time(life.begin[index] * tick_ns)} to ${time(life.end[index] * tick_ns)}`;
}

function say(text) {
  const told = byId("told");
  if (told) told.textContent = text;
}
