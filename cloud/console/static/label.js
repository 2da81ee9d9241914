// The labelling page: the list, the panels and the keys around one open frame.

import { Sheet } from "./sheet.js";
import { View } from "./view.js";

const PAGE = document.querySelector('meta[name="fovea-page"]').content;
const COLOURS = ["#ffc857", "#4fb3ff", "#5ee08a", "#e58bff", "#ff8a65", "#7ee8e2", "#f2f27a", "#ff7fa8", "#a8b5ff", "#c0e36b"];
const find = (selector) => document.querySelector(selector);
const classButtons = [...document.querySelectorAll("#classes button")];
const names = classButtons.map((button) => button.dataset.label);

const sheets = new Map(); // frames that were opened, so that what is not saved yet stays
let frames = [];
let shown = "wanted";
let open = null;
let label = names[0] ?? "object";
let isSaving = false;

const view = new View(find("#canvas"), { colourOf, label: () => label, changed: render });

function colourOf(name) {
  const place = names.indexOf(name);
  return COLOURS[(place < 0 ? name.length : place) % COLOURS.length];
}

async function ask(path, method = "GET", body = undefined) {
  const headers = { "X-Fovea-Page": PAGE };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const response = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(answer.told ?? `the server answered ${response.status}`);
  return answer;
}

let tellUntil = 0;
function tell(text) {
  find("#told").textContent = text;
  find("#told").hidden = false;
  clearTimeout(tellUntil);
  tellUntil = setTimeout(() => { find("#told").hidden = true; }, 6000);
}

function guarded(action) {
  return async (...given) => {
    try {
      await action(...given);
    } catch (error) {
      tell(error.message);
    }
  };
}

function listed() {
  return frames.filter((frame) => shown === "all" || (frame.state === "wanted") === (shown === "wanted"));
}

async function loadFrames() {
  frames = await ask("/api/frames");
  await openFrame((listed()[0] ?? null)?.id ?? null);
}

const openFrame = guarded(async (id) => {
  if (id === null) {
    open = null;
    view.show(null, null);
    render();
    return;
  }
  if (!sheets.has(id)) {
    const [frame, picture] = await Promise.all([ask(`/api/frames/${id}`), loadPicture(id)]);
    sheets.set(id, { sheet: new Sheet(frame), picture });
  }
  open = sheets.get(id);
  view.show(open.sheet, open.picture);
  render();
  document.querySelector('#frames [aria-current="true"]')?.scrollIntoView({ block: "nearest" });
});

async function loadPicture(id) {
  const response = await fetch(`/api/frames/${id}/picture`);
  if (!response.ok) throw new Error((await response.json().catch(() => ({}))).told ?? "the picture cannot be read");
  return createImageBitmap(await response.blob());
}

function neighbour(step) {
  const rows = listed();
  const at = rows.findIndex((frame) => frame.id === open?.sheet.frame.id);
  if (!rows.length) return null;
  return rows[at < 0 ? 0 : (at + step + rows.length) % rows.length].id;
}

const putAway = guarded(async (path, method, body) => {
  if (!open || isSaving) return;
  const { id } = open.sheet.frame;
  const next = neighbour(1);
  isSaving = true;
  render();
  try {
    const { state } = await ask(path(id), method, { ...body(), by: find("#by").value.trim() });
    frames.find((frame) => frame.id === id).state = state;
    sheets.delete(id);
  } finally {
    isSaving = false;
    render();
  }
  await openFrame(next === id ? listed()[0]?.id ?? null : next);
});

const save = () => putAway((id) => `/api/frames/${id}`, "PUT", () => ({ boxes: open.sheet.said() }));
const refuse = () => putAway((id) => `/api/frames/${id}/refuse`, "POST", () => ({}));

function choose(name) {
  label = name;
  open?.sheet.setLabel(name);
  render();
}

// Everything around the picture follows from the state; the lists are short enough to be made anew.
function render() {
  const done = frames.filter((frame) => frame.state !== "wanted").length;
  find("#bar").style.width = `${frames.length ? (100 * done) / frames.length : 0}%`;
  find("#count").textContent = `${done} of ${frames.length}`;
  const counts = { wanted: frames.length - done, done, all: frames.length };
  for (const tab of document.querySelectorAll(".tabs button")) {
    tab.querySelector("b").textContent = counts[tab.dataset.shown];
    tab.setAttribute("aria-selected", String(tab.dataset.shown === shown));
  }
  renderFrames();
  renderClasses();
  renderBoxes();
  find("#empty").hidden = open !== null;
  find("#empty strong").textContent = frames.length && !counts.wanted ? "All done." : "Nothing here.";
  find("#caption").hidden = open === null;
  if (open) renderCaption(open.sheet.frame);
  for (const button of [find("#save"), find("#refuse")]) button.disabled = !open || isSaving;
  view.draw();
}

function renderCaption({ camera, captured_at, width, height, note, said_by, prefilled_by, reasons }) {
  const by = said_by ? `labelled by ${said_by}` : prefilled_by ? `filled in by ${prefilled_by.split("#")[0]}` : "nothing filled in";
  const strong = document.createElement("b");
  strong.textContent = camera;
  find("#caption").replaceChildren(strong, ` · ${when(captured_at)} · ${width}×${height} · ${[note, reasons.join(", "), by].filter(Boolean).join(" · ")}`);
}

function when(iso) {
  return iso.slice(0, 19).replace("T", " ");
}

function renderFrames() {
  const rows = listed().map((frame) => {
    const row = document.createElement("li");
    const button = document.createElement("button");
    const isEdited = sheets.get(frame.id)?.sheet.isEdited;
    button.type = "button";
    button.className = isEdited ? "edited" : frame.state;
    button.setAttribute("aria-current", String(frame.id === open?.sheet.frame.id));
    button.append(element("i"), element("span", frame.camera), element("time", when(frame.captured_at).slice(5, 16)), element("small", frame.note));
    button.addEventListener("click", () => openFrame(frame.id));
    row.append(button);
    return row;
  });
  find("#frames").replaceChildren(...rows);
}

function element(kind, text = "") {
  const made = document.createElement(kind);
  made.textContent = text;
  return made;
}

function renderClasses() {
  const wanted = find("#find-class").value.trim().toLowerCase();
  for (const button of classButtons) {
    const { label: name } = button.dataset;
    button.style.setProperty("--of-class", colourOf(name));
    button.setAttribute("aria-pressed", String(name === (open?.sheet.chosen?.label ?? label)));
    button.parentElement.hidden = !name.toLowerCase().includes(wanted);
  }
}

function renderBoxes() {
  const boxes = open?.sheet.boxes ?? [];
  const suggestions = open?.sheet.suggestions ?? [];
  find("#box-count").textContent = open ? boxes.length : "";
  find("#suggestion-count").textContent = suggestions.length;
  find("#suggested").hidden = !suggestions.length;
  find("#boxes").replaceChildren(...boxes.map((box, index) => boxRow(box, index === open.sheet.selected, () => { open.sheet.selected = index; render(); })));
  find("#suggestions").replaceChildren(...suggestions.map((box, index) => boxRow(box, false, () => { open.sheet.accept(index); render(); })));
}

function boxRow({ box_xyxy: [x1, y1, x2, y2], label: name, ignore, score, by }, isChosen, clicked) {
  const row = document.createElement("li");
  const button = document.createElement("button");
  const size = `${Math.round(x2 - x1)}×${Math.round(y2 - y1)}`;
  button.type = "button";
  button.style.setProperty("--of-class", colourOf(name));
  button.className = ignore ? "ignored" : "";
  button.setAttribute("aria-pressed", String(isChosen));
  button.append(element("i"), element("span", name), element("small", [by, score == null ? "" : `${Math.round(100 * score)} %`, size].filter(Boolean).join(" · ")));
  button.addEventListener("click", clicked);
  row.append(button);
  return row;
}

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

function pressed(event) {
  if (event.target.matches("input")) {
    if (event.key === "Escape" || event.key === "Enter") {
      if (event.target.id === "find-class" && event.key === "Enter") chooseFound();
      event.target.blur();
    }
    return;
  }
  if (find("#help").open || (event.ctrlKey && !(event.key in ARROWS) && event.key !== "z") || event.metaKey || event.altKey) return;
  const act = actionOf(event);
  if (!act) return;
  event.preventDefault();
  act();
}

function chooseFound() {
  const button = classButtons.find((each) => !each.parentElement.hidden);
  find("#find-class").value = "";
  if (button) choose(button.dataset.label);
}

function actionOf(event) {
  const sheet = open?.sheet;
  const edit = (change) => () => { if (sheet) { change(sheet); render(); } };
  if (event.key in ARROWS) {
    const [dx, dy] = ARROWS[event.key].map((way) => way * (event.shiftKey ? 10 : 1));
    return edit((each) => each.moveChosen(dx, dy, { corner: event.ctrlKey }));
  }
  if (/^[1-9]$/.test(event.key)) return names[event.key - 1] && (() => choose(names[event.key - 1]));
  // A key that is held saves one frame, not all of them.
  if (event.repeat && ["Enter", "x", "X"].includes(event.key)) return () => {};
  return {
    Enter: save,
    Tab: edit((each) => each.choose(event.shiftKey ? -1 : 1)),
    Delete: edit((each) => each.removeChosen()),
    Backspace: edit((each) => each.removeChosen()),
    Escape: edit((each) => { each.selected = null; }),
    " ": () => { view.isPanning = true; view.canvas.style.cursor = "grab"; },
    "/": () => { if (!find("#find-class").hidden) find("#find-class").focus(); },
    "?": () => find("#help").showModal(),
    a: edit((each) => each.acceptAll()),
    f: () => view.fit(),
    h: () => { view.isHidden = true; view.draw(); },
    i: edit((each) => each.toggleIgnore()),
    j: () => openFrame(neighbour(1)),
    k: () => openFrame(neighbour(-1)),
    x: refuse,
    z: edit((each) => each.undo()),
  }[event.key.length === 1 ? event.key.toLowerCase() : event.key];
}

document.addEventListener("keydown", pressed);
document.addEventListener("keyup", (event) => {
  if (event.key === " ") view.isPanning = false;
  if (event.key.toLowerCase() === "h") { view.isHidden = false; view.draw(); }
});
window.addEventListener("beforeunload", (event) => {
  if ([...sheets.values()].some(({ sheet }) => sheet.isEdited)) event.preventDefault();
});
for (const tab of document.querySelectorAll(".tabs button")) {
  tab.addEventListener("click", () => { shown = tab.dataset.shown; openFrame(listed()[0]?.id ?? null); });
}
classButtons.forEach((button, place) => {
  const key = button.querySelector("kbd");
  if (place < 9) key.textContent = place + 1;
  else key.remove();
  // The keyboard stays with the page, or Enter would press the button again.
  button.addEventListener("click", () => { choose(button.dataset.label); button.blur(); });
});
find("#find-class").hidden = names.length <= 9;
find("#find-class").addEventListener("input", renderClasses);
find("#save").addEventListener("click", (event) => { event.currentTarget.blur(); save(); });
find("#refuse").addEventListener("click", (event) => { event.currentTarget.blur(); refuse(); });
find("#accept").addEventListener("click", (event) => { event.currentTarget.blur(); open?.sheet.acceptAll(); render(); });
find("#help-button").addEventListener("click", () => find("#help").showModal());

guarded(loadFrames)();
