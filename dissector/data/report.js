// Adds to a page that is complete without it: tables sort by a click on a column, captures are
// found by text and verdict, and plots say what lies under the pointer.
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
