// The data of the page: numbers and names as JSON, everything that is long as packed columns.

const page = JSON.parse(document.getElementById("data").textContent);
const arrays = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, f4: Float32Array };
const byId = (id) => document.getElementById(id);
const UNKNOWN = 0xffffffff; // in columns of 32 bits
let packed = null;
let unpacked = null; // a promise: `packed` is there

async function unpack() {
  const text = atob(byId("columns").textContent.trim());
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  packed = await new Response(stream).arrayBuffer();
}

// A column by its name, looked at where it lies; numbers that were scaled are given as they were.
function column(name) {
  const entry = page.columns[name];
  const values = new arrays[entry.type](packed, entry.offset, entry.length);
  return entry.scale ? Float32Array.from(values, (value) => value * entry.scale) : values;
}

function columnsOf(prefix) {
  const found = {};
  for (const name of Object.keys(page.columns)) {
    if (name.startsWith(prefix)) found[name.slice(prefix.length)] = column(name);
  }
  return found;
}

// One launch with its columns: warps in the order of multiprocessor, slot and time, the accesses of each side by side.
function launchOf(number) {
  const line = page.launches[number];
  const life = columnsOf(`${number}/life.`);
  const access = columnsOf(`${number}/access.`);
  const firsts = new Uint32Array(life.count.length + 1);
  life.count.forEach((count, index) => { firsts[index + 1] = firsts[index] + count; });
  const rows = new Map(); // by multiprocessor: its slots, each with its range of warps
  for (let i = 0; i < life.sm.length; i++) {
    if (!rows.has(life.sm[i])) rows.set(life.sm[i], []);
    const own = rows.get(life.sm[i]);
    const last = own[own.length - 1];
    if (last && last.slot === life.slot[i]) last.to = i + 1;
    else own.push({ slot: life.slot[i], from: i, to: i + 1 });
  }
  return {
    ...line, life, access, firsts, rows,
    operations: [...new Set(access.operation)],
    longest: maximum(access.cycles),
    shortest: smallest(access.cycles),
    span: line.span_ns / line.tick_ns, // in ticks, as all times of the columns
    ticksACycle: 1 / (line.ghz * line.tick_ns),
    overview: columnsOf(`${number}/overview.`),
    means: columnsOf(`${number}/sm.`),
  };
}

// The first index in [from, to) at which `holds` is true, where it stays true from there on.
function firstWhere(from, to, holds) {
  while (from < to) {
    const middle = (from + to) >> 1;
    if (holds(middle)) to = middle;
    else from = middle + 1;
  }
  return from;
}

// Of long arrays: Math.max(...values) would have each as an argument.
function maximum(values) {
  let most = 0;
  for (const value of values) if (value > most) most = value;
  return most;
}

// The least above 0; 1 where there is none, so that it has a logarithm.
function smallest(values) {
  let least = Infinity;
  for (const value of values) if (value > 0 && value < least) least = value;
  return least === Infinity ? 1 : least;
}

const grouped = (value) => Math.round(value).toLocaleString("en-US");

const plural = (count, noun) => `${grouped(count)} ${noun}${count === 1 ? "" : "s"}`;

function three(value) {
  if (Math.abs(value) >= 999.5 || Math.abs(value - Math.round(value)) < 0.0005) return grouped(value);
  return String(Number(value.toPrecision(3)));
}

function time(ns) {
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["us", 1e3]]) {
    if (Math.abs(ns) >= size) return `${Number((ns / size).toPrecision(5))} ${unit}`;
  }
  return `${Number(ns.toPrecision(4))} ns`;
}

function operationName(id) {
  const one = page.operations[id];
  return one ? `${one.op}, line ${one.line}` : "an operation";
}
