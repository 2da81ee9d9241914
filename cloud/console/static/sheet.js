// The boxes of one frame while they are being edited: plain state, no page, no canvas.

const MOST_STEPS = 200;
export const SMALLEST_PX = 2;

export class Sheet {
  constructor(frame) {
    this.frame = frame;
    this.boxes = frame.boxes.map((box) => ({ ...box, box_xyxy: [...box.box_xyxy] }));
    this.suggestions = [...frame.suggestions];
    this.selected = null;
    this.isEdited = false;
    this.steps = [];
  }

  get chosen() {
    return this.selected === null ? null : this.boxes[this.selected];
  }

  // Before a change, so that `undo` can take it back.
  mark() {
    const boxes = this.boxes.map((box) => ({ ...box, box_xyxy: [...box.box_xyxy] }));
    this.steps.push({ boxes, suggestions: [...this.suggestions], selected: this.selected });
    if (this.steps.length > MOST_STEPS) this.steps.shift();
    this.isEdited = true;
  }

  unmark() {
    this.steps.pop();
    this.isEdited = this.steps.length > 0;
  }

  undo() {
    const step = this.steps.pop();
    if (step) Object.assign(this, step);
    this.isEdited = this.steps.length > 0;
    return Boolean(step);
  }

  add(box_xyxy, label) {
    this.mark();
    this.boxes.push({ box_xyxy: this.inside(box_xyxy), label, ignore: false, score: null });
    this.selected = this.boxes.length - 1;
  }

  removeChosen() {
    if (this.chosen === null) return;
    this.mark();
    this.boxes.splice(this.selected, 1);
    this.selected = this.boxes.length ? Math.min(this.selected, this.boxes.length - 1) : null;
  }

  setLabel(label) {
    if (this.chosen === null || this.chosen.label === label) return;
    this.mark();
    Object.assign(this.chosen, { label, score: null });
  }

  toggleIgnore() {
    if (this.chosen === null) return;
    this.mark();
    this.chosen.ignore = !this.chosen.ignore;
  }

  // Without `mark`: a drag is one step, however many moves it is made of.
  setBox(box_xyxy) {
    Object.assign(this.chosen, { box_xyxy: this.inside(box_xyxy), score: null });
  }

  moveChosen(dx, dy, { corner = false } = {}) {
    if (this.chosen === null) return;
    this.mark();
    const [x1, y1, x2, y2] = this.chosen.box_xyxy;
    this.setBox(corner ? [x1, y1, x2 + dx, y2 + dy] : this.shifted([x1, y1, x2, y2], dx, dy));
  }

  shifted([x1, y1, x2, y2], dx, dy) {
    const { width, height } = this.frame;
    const x = Math.min(Math.max(dx, -x1), width - x2);
    const y = Math.min(Math.max(dy, -y1), height - y2);
    return [x1 + x, y1 + y, x2 + x, y2 + y];
  }

  accept(index) {
    this.mark();
    const [taken] = this.suggestions.splice(index, 1);
    this.boxes.push({ box_xyxy: [...taken.box_xyxy], label: taken.label, ignore: false, score: taken.score });
    this.selected = this.boxes.length - 1;
  }

  acceptAll() {
    if (!this.suggestions.length) return;
    this.mark();
    for (const { box_xyxy, label, score } of this.suggestions) {
      this.boxes.push({ box_xyxy: [...box_xyxy], label, ignore: false, score });
    }
    this.suggestions = [];
  }

  choose(step) {
    const count = this.boxes.length;
    if (!count) return;
    const from = this.selected === null ? (step > 0 ? -1 : 0) : this.selected;
    this.selected = (from + step + count) % count;
  }

  inside([ax, ay, bx, by]) {
    const { width, height } = this.frame;
    let [x1, x2] = [Math.min(ax, bx), Math.max(ax, bx)].map((x) => Math.min(Math.max(x, 0), width));
    let [y1, y2] = [Math.min(ay, by), Math.max(ay, by)].map((y) => Math.min(Math.max(y, 0), height));
    if (x2 - x1 < SMALLEST_PX) [x1, x2] = x1 + SMALLEST_PX <= width ? [x1, x1 + SMALLEST_PX] : [x2 - SMALLEST_PX, x2];
    if (y2 - y1 < SMALLEST_PX) [y1, y2] = y1 + SMALLEST_PX <= height ? [y1, y1 + SMALLEST_PX] : [y2 - SMALLEST_PX, y2];
    return [x1, y1, x2, y2];
  }

  said() {
    return this.boxes.map(({ box_xyxy, label, ignore }) => ({ box_xyxy, label, ignore }));
  }
}
