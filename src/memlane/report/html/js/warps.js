// Means by multiprocessor and by warp, and the series of one warp.

const charts = {};

function startWarps() {
  charts.sms = new Chart(byId("by-sm"), { told: toldSm, picked: (index) => openSm(now.launch.sms[index]) });
  charts.warps = new Chart(byId("by-warp"), { told: (index) => toldLife(charts.lives[index]), picked: (index) => chooseLife(charts.lives[index]) });
  charts.series = new Chart(byId("series"), {
    height: 240,
    told: (index) => toldAccess(now.launch.firsts[now.life] + index, now.life),
    picked: (index) => chooseLife(now.life, now.launch.firsts[now.life] + index),
  });
  addEventListener("resize", () => [charts.sms, charts.warps, charts.series].forEach((chart) => chart.draw()));
  byId("rows").addEventListener("toggle", fillRows);
}

function toldSm(index) {
  const { sms, means } = now.launch;
  return `SM ${sms[index]}: ${grouped(means.warps[index])} warps\nmedian ${three(means.p50[index])}, 5 to 95 %: ${three(means.p5[index])} to ${three(means.p95[index])} cycles`;
}

function showMeans() {
  const { means, sms } = now.launch;
  charts.sms.show({ values: means.p50, lows: means.p5, highs: means.p95, unit: "multiprocessor", names: (index) => `SM ${sms[index]}`, chosen: -1 });
  const first = sms.find((sm) => now.launch.rows.has(sm));
  if (first !== undefined) showWarps(first);
  const life = first === undefined ? -1 : firstWithAccess(now.launch.rows.get(first));
  now.life = life;
  showSeries();
}

// The warps of a multiprocessor in the order in which they began.
function showWarps(sm = now.sm) {
  const { life, rows, sms, sms_kept } = now.launch;
  if (sm === null) return;
  const drawn = rows.get(sm) ?? [];
  charts.lives = drawn.flatMap((row) => Array.from({ length: row.to - row.from }, (_, index) => row.from + index)).filter((index) => life.count[index]);
  charts.lives.sort((a, b) => life.begin[a] - life.begin[b]);
  const part = sms_kept.includes(sm) ? "" : drawn.length ? ", in part" : ", not in this page";
  byId("of-sm").textContent = `SM ${sm}${part}`;
  charts.warps.show({ values: charts.lives.map((index) => life.mean[index]), unit: "warps, in the order of their start", chosen: charts.lives.indexOf(now.life) });
  charts.sms.show({ ...charts.sms.points, chosen: sms.indexOf(sm) });
}

function markWarp() {
  if (!charts.lives) return;
  charts.warps.show({ ...charts.warps.points, chosen: charts.lives.indexOf(now.life) });
}

function showSeries() {
  const { access, firsts, life, sms } = now.launch;
  if (now.life < 0) {
    byId("of-warp").textContent = "a warp (no warp of this launch made an access)";
    charts.series.show({ values: [], unit: "accesses of the warp, in order" });
    return;
  }
  const [first, end] = [firsts[now.life], firsts[now.life + 1]];
  const cut = end - first < life.recorded[now.life] ? `, the first ${grouped(end - first)} of ${grouped(life.recorded[now.life])}` : "";
  byId("of-warp").textContent = `${place(now.life)} on SM ${life.sm[now.life]}${cut}`;
  const own = new Set(access.operation.subarray(first, end));
  const levels = new Map();
  for (const id of own) for (const level of page.operations[id].levels) levels.set(level.name, level);
  charts.series.show({
    values: access.cycles.subarray(first, end),
    colours: (index) => hue(access.operation[first + index]),
    levels: [...levels.values()],
    unit: "accesses of the warp, in order",
    chosen: now.access < 0 ? -1 : now.access - first,
  });
  fillRows();
}

const MOST_ROWS = 500;

function fillRows() {
  if (!byId("rows").open || now.life < 0) return;
  const { access, firsts, tick_ns } = now.launch;
  const first = firsts[now.life];
  const end = Math.min(firsts[now.life + 1], first + MOST_ROWS);
  const unknown = (value) => (value === 0xffff ? "-" : String(value));
  const head = html("tr", {}, ...["access", "operation", "start (ns)", "cycles", "sectors", "wavefronts", ...(access.exposed ? ["exposed cycles"] : [])].map((text, index) => html("th", index === 1 ? { class: "text", scope: "col" } : { scope: "col" }, text)));
  const rows = [];
  for (let i = first; i < end; i++) {
    const cells = [grouped(i - first + 1), operationName(access.operation[i]), three(access.start[i] * tick_ns), grouped(access.cycles[i]), unknown(access.sectors[i]), unknown(access.wavefronts[i])];
    if (access.exposed) cells.push(access.exposed[i] === UNKNOWN ? "-" : grouped(access.exposed[i]));
    rows.push(html("tr", {}, ...cells.map((text, index) => html("td", index === 1 ? { class: "text" } : {}, text))));
  }
  const left = firsts[now.life + 1] - end;
  if (left > 0) rows.push(html("tr", {}, html("td", { colspan: 7, class: "text" }, `and ${grouped(left)} more`)));
  byId("rows").querySelector("table").replaceChildren(html("thead", {}, head), html("tbody", {}, ...rows));
}
