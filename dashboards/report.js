// Adds to a page that is complete without it: tables sort by a click on a column, and plots say
// what lies under the pointer.
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
  const body = table.tBodies[0];
  const isNumber = !header.classList.contains("text");
  const before = header.getAttribute("aria-sort");
  const first = isNumber ? "descending" : "ascending";
  const second = isNumber ? "ascending" : "descending";
  const next = before === first ? second : first;
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", next);
  const direction = next === "ascending" ? 1 : -1;
  const rows = Array.from(body.rows);
  rows.sort((a, b) => compare(valueOf(a.cells[place]), valueOf(b.cells[place]), direction));
  body.append(...rows);
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
