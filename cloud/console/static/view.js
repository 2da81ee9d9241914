// The picture with its boxes on a canvas: zoom, drawing, and what the mouse does to a sheet.

import { SMALLEST_PX } from "./sheet.js";

const HANDLE_PX = 7;
const EDGE_PX = 6;
const MOST_TAGS = 14; // beyond, names are shown of the box under the pointer only: they would hide the picture
const CURSORS = { n: "ns-resize", s: "ns-resize", w: "ew-resize", e: "ew-resize", nw: "nwse-resize", se: "nwse-resize", ne: "nesw-resize", sw: "nesw-resize" };

export class View {
  constructor(canvas, { colourOf, label, changed }) {
    Object.assign(this, { canvas, colourOf, label, changed });
    canvas.view = this;
    this.context = canvas.getContext("2d");
    this.sheet = null;
    this.picture = null;
    this.isHidden = false;
    this.isPanning = false;
    this.drag = null;
    this.pointer = null;
    new ResizeObserver(() => this.fit()).observe(canvas);
    canvas.addEventListener("pointerdown", (event) => this.press(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerup", () => this.release());
    canvas.addEventListener("pointercancel", () => this.release());
    canvas.addEventListener("pointerleave", () => { this.pointer = null; this.draw(); });
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
  }

  show(sheet, picture) {
    const isSame = this.sheet && sheet && this.sheet.frame.id === sheet.frame.id;
    Object.assign(this, { sheet, picture, drag: null });
    if (!isSame) this.fit();
    this.draw();
  }

  fit() {
    const ratio = window.devicePixelRatio || 1;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    if (this.sheet) {
      const { width: w, height: h } = this.sheet.frame;
      this.scale = Math.min((width - 48) / w, (height - 72) / h);
      this.left = (width - w * this.scale) / 2;
      this.top = (height - h * this.scale) / 2 - 6;
    }
    this.draw();
  }

  toFrame(x, y) {
    return [(x - this.left) / this.scale, (y - this.top) / this.scale];
  }

  toCanvas([x1, y1, x2, y2]) {
    return [x1 * this.scale + this.left, y1 * this.scale + this.top, x2 * this.scale + this.left, y2 * this.scale + this.top];
  }

  wheel(event) {
    event.preventDefault();
    if (!this.sheet) return;
    const [x, y] = this.toFrame(event.offsetX, event.offsetY);
    this.scale = Math.min(Math.max(this.scale * Math.exp(-event.deltaY / 500), 0.05), 40);
    this.left = event.offsetX - x * this.scale;
    this.top = event.offsetY - y * this.scale;
    this.draw();
  }

  press(event) {
    if (!this.sheet || this.drag) return;
    this.canvas.focus();
    event.preventDefault();
    this.canvas.setPointerCapture(event.pointerId);
    const { offsetX: x, offsetY: y } = event;
    if (event.button === 1 || this.isPanning) {
      this.drag = { kind: "pan", x: x - this.left, y: y - this.top };
      return;
    }
    if (event.button !== 0) return;
    const part = event.shiftKey ? null : this.handleAt(x, y);
    const suggestion = event.shiftKey || part ? -1 : this.suggestionAt(x, y);
    const box = event.shiftKey || part ? null : this.boxAt(x, y);
    if (part) {
      this.begin("resize", x, y, { part });
    } else if (suggestion >= 0) {
      this.sheet.accept(suggestion);
    } else if (box !== null) {
      this.sheet.selected = box;
      this.begin("move", x, y);
    } else {
      this.sheet.selected = null;
      this.drag = { kind: "new", from: this.toFrame(x, y), to: this.toFrame(x, y) };
    }
    this.changed();
  }

  begin(kind, x, y, more = {}) {
    this.sheet.mark();
    this.drag = { kind, from: this.toFrame(x, y), box: [...this.sheet.chosen.box_xyxy], moved: false, ...more };
  }

  move(event) {
    const { offsetX: x, offsetY: y } = event;
    this.pointer = [x, y];
    if (!this.drag) {
      this.aim(event);
      this.draw();
      return;
    }
    const at = this.toFrame(x, y);
    const [dx, dy] = this.drag.from ? [at[0] - this.drag.from[0], at[1] - this.drag.from[1]] : [0, 0];
    if (this.drag.kind === "pan") {
      this.left = x - this.drag.x;
      this.top = y - this.drag.y;
    } else if (this.drag.kind === "new") {
      this.drag.to = at;
    } else if (this.drag.moved || Math.hypot(dx, dy) * this.scale >= 3) {
      this.drag.moved = true;
      if (this.drag.kind === "move") this.sheet.setBox(this.sheet.shifted(this.drag.box, dx, dy));
      else this.sheet.setBox(stretched(this.drag.box, this.drag.part, dx, dy));
    }
    this.draw();
  }

  release() {
    const drag = this.drag;
    this.drag = null;
    if (!drag || drag.kind === "pan") return;
    if (drag.kind === "new") {
      const [w, h] = [Math.abs(drag.to[0] - drag.from[0]), Math.abs(drag.to[1] - drag.from[1])];
      if (Math.min(w, h) >= SMALLEST_PX && Math.min(w, h) * this.scale >= 4) {
        this.sheet.add([...drag.from, ...drag.to], this.label());
      }
    } else if (!drag.moved) {
      this.sheet.unmark();
    }
    this.changed();
  }

  aim(event) {
    const { offsetX: x, offsetY: y } = event;
    const part = this.sheet && !event.shiftKey ? this.handleAt(x, y) : null;
    let cursor = "crosshair";
    if (this.isPanning) cursor = "grab";
    else if (part) cursor = CURSORS[part];
    else if (this.sheet && !event.shiftKey && this.suggestionAt(x, y) >= 0) cursor = "copy";
    else if (this.sheet && !event.shiftKey && this.boxAt(x, y) !== null) cursor = "move";
    this.canvas.style.cursor = cursor;
  }

  // Which corner or edge of the chosen box is under the pointer.
  handleAt(x, y) {
    if (!this.sheet.chosen || this.isHidden) return null;
    const [x1, y1, x2, y2] = this.toCanvas(this.sheet.chosen.box_xyxy);
    if (x < x1 - HANDLE_PX || x > x2 + HANDLE_PX || y < y1 - HANDLE_PX || y > y2 + HANDLE_PX) return null;
    const near = (a, b, span) => Math.abs(a - b) <= Math.min(HANDLE_PX, Math.max(span / 3, 3));
    const v = near(y, y1, y2 - y1) ? "n" : near(y, y2, y2 - y1) ? "s" : "";
    const h = near(x, x1, x2 - x1) ? "w" : near(x, x2, x2 - x1) ? "e" : "";
    return v + h || null;
  }

  // The smallest box under the pointer, so that one inside another can be chosen.
  boxAt(x, y) {
    if (this.isHidden) return null;
    const [fx, fy] = this.toFrame(x, y);
    let best = null;
    this.sheet.boxes.forEach(({ box_xyxy: [x1, y1, x2, y2] }, index) => {
      if (fx < x1 || fx > x2 || fy < y1 || fy > y2) return;
      const area = (x2 - x1) * (y2 - y1);
      if (best === null || area < best.area) best = { index, area };
    });
    return best && best.index;
  }

  suggestionAt(x, y) {
    if (this.isHidden) return -1;
    return this.sheet.suggestions.findIndex(({ box_xyxy }) => {
      const [x1, y1, x2, y2] = this.toCanvas(box_xyxy);
      const isNear = x >= x1 - EDGE_PX && x <= x2 + EDGE_PX && y >= y1 - EDGE_PX && y <= y2 + EDGE_PX;
      return isNear && Math.min(Math.abs(x - x1), Math.abs(x - x2), Math.abs(y - y1), Math.abs(y - y2)) <= EDGE_PX;
    });
  }

  draw() {
    const { context: c, sheet } = this;
    const ratio = window.devicePixelRatio || 1;
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, this.canvas.clientWidth, this.canvas.clientHeight);
    if (!sheet || !this.picture) return;
    const { width, height } = sheet.frame;
    c.imageSmoothingEnabled = this.scale < 3;
    c.drawImage(this.picture, this.left, this.top, width * this.scale, height * this.scale);
    if (this.isHidden) return;
    this.crosshair();
    const [hovered, offered] = this.pointer && !this.drag ? [this.boxAt(...this.pointer), this.suggestionAt(...this.pointer)] : [null, -1];
    const isRoomy = sheet.boxes.length <= MOST_TAGS;
    sheet.suggestions.forEach((each, index) => this.box(each, { isDashed: true, isTagged: index === offered }));
    sheet.boxes.forEach((each, index) => index === sheet.selected || this.box(each, { isTagged: isRoomy || index === hovered }));
    if (sheet.chosen) this.box(sheet.chosen, { isChosen: true });
    if (this.drag?.kind === "new") {
      const { from, to } = this.drag;
      const box_xyxy = [Math.min(from[0], to[0]), Math.min(from[1], to[1]), Math.max(from[0], to[0]), Math.max(from[1], to[1])];
      this.box({ box_xyxy, label: this.label(), ignore: false }, { isChosen: true });
    }
  }

  crosshair() {
    if (!this.pointer || this.drag?.kind === "pan" || this.canvas.style.cursor !== "crosshair") return;
    const { context: c } = this;
    const [x, y] = this.pointer.map((edge) => Math.round(edge) + 0.5);
    c.strokeStyle = "rgb(255 255 255 / .28)";
    c.lineWidth = 1;
    c.beginPath();
    c.moveTo(x, 0);
    c.lineTo(x, this.canvas.clientHeight);
    c.moveTo(0, y);
    c.lineTo(this.canvas.clientWidth, y);
    c.stroke();
  }

  box({ box_xyxy, label, ignore, score, by }, { isChosen = false, isDashed = false, isTagged = isChosen }) {
    const { context: c } = this;
    const [x1, y1, x2, y2] = this.toCanvas(box_xyxy);
    const colour = this.colourOf(label);
    c.save();
    c.setLineDash(isDashed ? [5, 4] : ignore ? [2, 3] : []);
    c.lineWidth = isChosen ? 4.5 : 3.2;
    c.strokeStyle = "rgb(0 0 0 / .5)";
    if (!isDashed) c.strokeRect(x1, y1, x2 - x1, y2 - y1);
    c.lineWidth = isChosen ? 2.5 : 1.6;
    c.strokeStyle = colour;
    c.strokeRect(x1, y1, x2 - x1, y2 - y1);
    if (isChosen || ignore) {
      c.fillStyle = colour;
      c.globalAlpha = ignore ? 0.22 : 0.1;
      c.fillRect(x1, y1, x2 - x1, y2 - y1);
    }
    c.restore();
    const told = score === null || score === undefined ? "" : ` ${Math.round(100 * score)}`;
    if (isTagged) this.tag(`${label}${told}${ignore ? " · aside" : ""}${isDashed ? ` · ${by}?` : ""}`, x1, y1, y2, colour, isDashed);
    if (isChosen) this.handles(x1, y1, x2, y2, colour);
  }

  tag(text, x, y, bottom, colour, isDashed) {
    const { context: c } = this;
    c.font = "600 11px system-ui, 'DejaVu Sans', sans-serif";
    const width = c.measureText(text).width + 8;
    const top = y - 17 >= 0 ? y - 17 : bottom + 2;
    c.fillStyle = isDashed ? "rgb(14 19 23 / .72)" : colour;
    c.fillRect(x - 1, top, width, 16);
    c.fillStyle = isDashed ? colour : "#0b1013";
    c.textBaseline = "middle";
    c.fillText(text, x + 3, top + 8.5);
  }

  handles(x1, y1, x2, y2, colour) {
    const { context: c } = this;
    for (const [x, y] of [[x1, y1], [x2, y1], [x1, y2], [x2, y2]]) {
      c.fillStyle = "#fff";
      c.strokeStyle = colour;
      c.lineWidth = 2;
      c.beginPath();
      c.arc(x, y, 4.5, 0, 2 * Math.PI);
      c.fill();
      c.stroke();
    }
  }
}

function stretched([x1, y1, x2, y2], part, dx, dy) {
  return [
    part.includes("w") ? x1 + dx : x1,
    part.includes("n") ? y1 + dy : y1,
    part.includes("e") ? x2 + dx : x2,
    part.includes("s") ? y2 + dy : y2,
  ];
}
