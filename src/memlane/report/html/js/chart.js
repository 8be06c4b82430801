// Points over a row of things on a canvas: means by multiprocessor, means by warp, the series of a warp.

class Chart {
  // `told(index)`: a point in words; `picked(index)`: what choosing it does.
  constructor(canvas, { height = 200, told, picked }) {
    Object.assign(this, { canvas, height, told, picked, points: null, cursor: -1 });
    this.tip = html("div", { class: "tip" });
    this.tip.hidden = true;
    const stage = html("div", { class: "stage" });
    canvas.replaceWith(stage);
    stage.append(canvas, this.tip);
    canvas.addEventListener("pointermove", (event) => this.point(this.at(event.offsetX)));
    canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    canvas.addEventListener("blur", () => { this.tip.hidden = true; });
    canvas.addEventListener("click", (event) => this.pick(this.at(event.offsetX)));
    canvas.addEventListener("keydown", (event) => this.key(event));
    redraws.push(() => this.draw());
  }

  // `values` and, where known, `lows` and `highs`; `colours` by point; `levels` to mark; `logarithmic`; `unit` of the points.
  show(points) {
    this.points = points;
    this.cursor = points.chosen ?? -1;
    this.draw();
  }

  at(x) {
    const { left, step } = this.frame ?? {};
    if (!this.points || !this.points.values.length) return -1;
    return Math.max(0, Math.min(this.points.values.length - 1, Math.floor((x - left) / step)));
  }

  point(index) {
    if (index < 0) return;
    this.cursor = index;
    this.draw();
    const { left, step, width } = this.frame;
    this.tip.textContent = this.told(index);
    this.tip.hidden = false;
    const x = left + (index + 0.5) * step;
    this.tip.style.left = `${Math.min(x + 10, width - this.tip.offsetWidth - 4)}px`;
    this.tip.style.top = "6px";
  }

  pick(index) {
    if (index >= 0 && this.picked) this.picked(index);
  }

  key(event) {
    const moves = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 };
    if (event.key in moves) this.point(this.at((this.frame?.left ?? 0) + (Math.max(0, this.cursor + (this.cursor < 0 ? 0 : moves[event.key])) + 0.5) * (this.frame?.step ?? 1)));
    else if (event.key === "Enter") this.pick(this.cursor);
    else return;
    event.preventDefault();
    say(this.told(this.cursor).replaceAll("\n", "; "));
  }

  draw() {
    if (!this.points) return;
    const { values, lows, highs, colours, levels = [], unit, names } = this.points;
    const { pen, width, height } = surface(this.canvas, this.height);
    const left = 50, right = 12, top = 12, base = height - 24;
    const step = (width - left - right) / Math.max(1, values.length);
    this.frame = { left, step, width };
    const shown = lows ? [...lows, ...highs] : values;
    const marked = levels.map((level) => level.cycles);
    const high = Math.max(1, maximum(shown), ...(marked.length ? [Math.min(Math.max(...marked), maximum(shown) * 4)] : [])) * 1.15;
    const low = Math.max(0.5, Math.min(smallest(shown), ...marked) * 0.8);
    const place = (value) => base - (Math.log(Math.max(value, low) / low) / Math.log(high / low)) * (base - top);
    this.grid(pen, { left, right, width, base, place, low, high, levels });
    const chosen = this.points.chosen ?? -1;
    for (const [index, strength] of [[this.cursor, 0.1], [chosen, 0.22]]) {
      if (index < 0) continue;
      pen.globalAlpha = strength;
      pen.fillStyle = ink("accent");
      const wide = Math.max(4, Math.min(step, 18));
      pen.fillRect(left + (index + 0.5) * step - wide / 2, top, wide, base - top);
      pen.globalAlpha = 1;
    }
    const size = Math.max(2, Math.min(6, step * 0.8));
    const painted = step < 0.5 ? new Uint8Array(Math.ceil(width) * height) : null; // of very many points most share a pixel
    for (let i = 0; i < values.length; i++) {
      const x = left + (i + 0.5) * step;
      if (lows && values[i] > 0) {
        pen.fillStyle = ink("rule");
        pen.fillRect(x - Math.max(1, size / 3), place(highs[i]), Math.max(2, size / 1.5), Math.max(1, place(lows[i]) - place(highs[i])));
      }
      if (values[i] <= 0 && lows) continue;
      const pixel = painted ? Math.floor(x) * height + Math.floor(place(values[i])) : 0;
      if (painted && painted[pixel]) continue;
      if (painted) painted[pixel] = 1;
      pen.fillStyle = colours ? colours(i) : ink("accent");
      pen.fillRect(x - size / 2, place(values[i]) - size / 2, size, size);
    }
    pen.fillStyle = ink("soft");
    pen.textAlign = "left";
    pen.fillText(names ? names(0) : "0", left, height - 10);
    pen.textAlign = "center";
    pen.fillText(unit, (left + width - right) / 2, height - 10);
    if (!values.length) return;
    pen.textAlign = "right";
    pen.fillText(names ? names(values.length - 1) : grouped(values.length - 1), width - right, height - 10);
  }

  grid(pen, { left, right, width, base, place, low, high, levels }) {
    pen.textAlign = "right";
    for (const tick of niceCycles(low * 0.9, high)) {
      if (place(tick) > base - 4) continue;
      pen.fillStyle = ink("rule");
      pen.fillRect(left, Math.round(place(tick)), width - left - right, 0.5);
      pen.fillStyle = ink("soft");
      pen.fillText(grouped(tick), left - 6, place(tick));
    }
    let last = Infinity;
    for (const level of [...levels].sort((a, b) => a.cycles - b.cycles)) {
      const y = place(level.cycles);
      if (level.cycles > high) continue;
      pen.strokeStyle = ink("alarm");
      pen.setLineDash([4, 4]);
      pen.beginPath();
      pen.moveTo(left, y);
      pen.lineTo(width - right, y);
      pen.stroke();
      pen.setLineDash([]);
      if (last - y > 11) {
        pen.fillStyle = ink("alarm");
        pen.fillText(level.name, width - right - 2, y - 7);
        last = y;
      }
    }
  }
}
