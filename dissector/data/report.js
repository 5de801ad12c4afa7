// Adds to a page that is complete without it: tables sort by a click on a column, captures are
// found by text and verdict, plots say what lies under the pointer, and numbers lead to the command
// and the filter that show their frames, which a button copies.
"use strict";

function valueOf(cell) {
  const raw = cell.dataset.v;
  if (raw === undefined) return cell.textContent.trim();
  return raw === "" ? null : Number(raw);
}

function compare(left, right, direction) {
  if (left === null || right === null) return (left === null) - (right === null);
  if (typeof left === "number" && typeof right === "number") return (left - right) * direction;
  return String(left).localeCompare(String(right)) * direction;
}

function sortBy(header, place) {
  const table = header.closest("table");
  const isNumber = !header.classList.contains("text");
  const before = header.getAttribute("aria-sort");
  const first = isNumber ? "descending" : "ascending";
  const second = isNumber ? "ascending" : "descending";
  const next = before === first ? second : first;
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", next);
  const direction = next === "ascending" ? 1 : -1;
  const key = (each) => valueOf((each.rows ? each.rows[0] : each).cells[place]);
  const byKey = (a, b) => compare(key(a), key(b), direction);
  // Where rows are folded, each has a body of its own, and what is folded stays with it.
  const bodies = Array.from(table.tBodies);
  if (bodies.length > 1) table.append(...bodies.sort(byKey));
  else if (bodies.length) bodies[0].append(...Array.from(bodies[0].rows).sort(byKey));
}

for (const table of document.querySelectorAll("table.sorts")) {
  Array.from(table.tHead.rows[0].cells).forEach((header, place) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    header.append(button);
    button.addEventListener("click", () => sortBy(header, place));
  });
}

const filter = document.querySelector(".filter");
if (filter) {
  const rows = Array.from(document.querySelectorAll("#verdicts [data-verdict]"));
  const texts = rows.map((row) => row.textContent.toLowerCase());
  const wanted = filter.querySelector("[type=search]");
  const picks = Array.from(filter.querySelectorAll("[type=checkbox]"));
  const show = () => {
    const words = wanted.value.toLowerCase().split(/\s+/);
    const picked = new Set(picks.filter((each) => each.checked).map((each) => each.value));
    rows.forEach((row, place) => {
      const isPicked = picked.has(row.dataset.verdict);
      row.hidden = !isPicked || !words.every((word) => texts[place].includes(word));
    });
    const count = rows.filter((row) => !row.hidden).length;
    filter.querySelector(".found").textContent = `${count} of ${rows.length} captures shown`;
  };
  filter.addEventListener("input", show);
  filter.hidden = false;
  show();
}

function nearest(hints, x, y, isTall) {
  let best = null;
  let least = Infinity;
  for (const hint of hints) {
    const distance = isTall ? Math.abs(hint[1] - y) : Math.abs(hint[0] - x);
    if (distance < least) {
      least = distance;
      best = hint;
    }
  }
  return best;
}

for (const drawing of document.querySelectorAll(".drawing")) {
  const hints = JSON.parse(drawing.dataset.hints);
  const svg = drawing.querySelector("svg");
  if (!hints.length || !svg) continue;
  const box = svg.viewBox.baseVal;
  const isTall = drawing.closest(".bars") !== null;
  const label = document.createElement("div");
  const spot = document.createElement("div");
  label.className = "hint";
  spot.className = "spot";
  const hide = () => {
    label.remove();
    spot.remove();
  };
  drawing.addEventListener("pointerleave", hide);
  drawing.addEventListener("pointermove", (event) => {
    const place = svg.getBoundingClientRect();
    const scale = place.width / box.width;
    const hint = nearest(
      hints,
      (event.clientX - place.left) / scale,
      (event.clientY - place.top) / scale,
      isTall,
    );
    label.textContent = hint[2];
    drawing.append(spot, label);
    const x = hint[0] * scale;
    const y = hint[1] * scale;
    spot.style.left = `${x}px`;
    spot.style.top = `${y}px`;
    const left = Math.max(0, Math.min(x + 10, place.width - label.offsetWidth));
    label.style.left = `${left}px`;
    label.style.top = `${Math.max(0, y - label.offsetHeight - 10)}px`;
  });
}

// -- commands, and numbers that lead to them

function select(code) {
  const range = document.createRange();
  range.selectNodeContents(code);
  const selection = getSelection();
  selection.removeAllRanges();
  selection.addRange(range);
}

// What was copied; where the page may not write to the clipboard the text is selected instead.
async function copy(code, button) {
  let said = "copied";
  try {
    await navigator.clipboard.writeText(code.textContent);
  } catch {
    select(code);
    said = document.execCommand("copy") ? "copied" : "selected";
  }
  button.textContent = said;
  setTimeout(() => (button.textContent = "copy"), 2000);
}

function withButton(code) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "copy";
  button.addEventListener("click", () => copy(code, button));
  code.after(" ", button);
}

document.querySelectorAll("code.copied").forEach(withButton);

const card = document.createElement("div");
card.className = "card";
card.setAttribute("role", "dialog");
let opener = null;

function close() {
  card.remove();
  if (opener) opener.focus({ preventScroll: true });
  opener = null;
}

// Shows commands beside a place. lines: label and text of each.
function open(by, text, lines, box) {
  close();
  opener = by;
  const list = document.createElement("dl");
  list.className = "shown";
  for (const [label, line] of lines) {
    if (!line) continue;
    const term = document.createElement("dt");
    const cell = document.createElement("dd");
    const code = document.createElement("code");
    term.textContent = label;
    code.textContent = line;
    cell.append(code);
    withButton(code);
    list.append(term, cell);
  }
  const away = document.createElement("button");
  away.type = "button";
  away.className = "away";
  away.textContent = "close";
  away.addEventListener("click", close);
  const said = document.createElement("p");
  said.textContent = text;
  card.replaceChildren(said, away, list);
  card.setAttribute("aria-label", text);
  document.body.append(card);
  const room = document.documentElement.clientWidth - card.offsetWidth - 8;
  card.style.left = `${Math.max(8, Math.min(box.left, room))}px`;
  card.style.top = `${box.bottom + scrollY + 6}px`;
  card.querySelector("button.copy")?.focus({ preventScroll: true });
}

addEventListener("keydown", (event) => event.key === "Escape" && close());
document.addEventListener("pointerdown", (event) => {
  if (opener && !card.contains(event.target)) close();
});

for (const place of document.querySelectorAll(".place")) {
  place.setAttribute("role", "button");
  place.tabIndex = 0;
  const show = () =>
    open(
      place,
      place.title || place.textContent,
      [["Command", place.dataset.command], ["Wireshark", place.dataset.filter]],
      place.getBoundingClientRect(),
    );
  place.addEventListener("click", show);
  place.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    show();
  });
}

// -- timelines

const HEAD = 20;
const LANE = 36;

// A time that many µs behind a begin, as Wireshark writes it: s.ns of 1970.
function epoch(begin, behind) {
  const ns = BigInt(begin) + BigInt(behind) * 1000n;
  return `${ns / 1000000000n}.${String(ns % 1000000000n).padStart(9, "0")}`;
}

for (const figure of document.querySelectorAll(".around")) {
  const { begin, command, marks } = figure.dataset;
  const spanUs = Number(figure.dataset.span) / 1000;
  const series = JSON.parse(document.body.dataset.series);
  const all = JSON.parse(marks);
  const svg = figure.querySelector("svg.timeline");
  const near = (event) => {
    const box = svg.getBoundingClientRect();
    const lane = Math.floor((event.clientY - box.top - HEAD) / LANE);
    const at = ((event.clientX - box.left) / box.width) * spanUs;
    const distance = (mark) => Math.max(mark[1] - at, at - mark[2], 0);
    const mine = all.filter((mark) => mark[0] === lane);
    return mine.sort((one, other) => distance(one) - distance(other))[0];
  };
  svg.addEventListener("pointermove", (event) => {
    svg.classList.toggle("touchable", near(event) !== undefined);
  });
  svg.addEventListener("click", (event) => {
    const mark = near(event);
    if (!mark) return;
    const [, first, last, count, kind, firstFrame, lastFrame] = mark;
    const what = `${count.toLocaleString("en")} ${series[kind][count === 1 ? 0 : 1]}`;
    const when = `${(first / 1000).toFixed(3)} ms behind the begin`;
    const filter =
      `frame.time_epoch >= ${epoch(begin, first)} && frame.time_epoch <= ${epoch(begin, last)}`;
    const shown = firstFrame === null ? "" : command
      .replace("frame_no >= 0", `frame_no >= ${firstFrame}`)
      .replace("frame_no <= 1", `frame_no <= ${lastFrame}`);
    const box = { left: event.clientX - 20, bottom: event.clientY };
    open(svg, `${what}, ${when}`, [["Command", shown], [`Wireshark ${figure.dataset.file}`, filter]], box);
  });
}
