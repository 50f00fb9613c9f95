"use strict";
// Tables sort by the column that is clicked; numbers by value, the part before ± alone.
function value(cell) {
  const text = cell.textContent.trim();
  const found = text.replace("−", "-").match(/^[+]?(-?[\d.]+(?:e[+-]?\d+)?)/i);
  return found ? parseFloat(found[1]) : text.toLowerCase();
}
function sort(head) {
  const table = head.closest("table"), body = table.tBodies[0], place = head.cellIndex;
  const down = head.getAttribute("aria-sort") === "descending";
  for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "ascending" : "descending");
  const lines = Array.from(body.rows);
  lines.sort((a, b) => {
    const x = value(a.cells[place]), y = value(b.cells[place]);
    const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
    return down ? order : -order;
  });
  for (const line of lines) body.appendChild(line);
}
for (const head of document.querySelectorAll("table.sorts th")) {
  head.tabIndex = 0;
  head.addEventListener("click", () => sort(head));
  head.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); sort(head); }
  });
}
// Points tell their numbers at once, also to a finger.
const tip = document.getElementById("tip");
function point(event) {
  const mark = event.target.closest ? event.target.closest("use, path") : null;
  const title = mark ? mark.querySelector("title") : null;
  const text = title ? title.textContent : mark ? mark.dataset.said : undefined;
  if (!text) { tip.hidden = true; return; }
  if (title) { mark.dataset.said = text; title.remove(); }
  tip.textContent = text;
  tip.hidden = false;
  const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
  tip.style.left = Math.max(4, Math.min(event.clientX + 12, room)) + "px";
  tip.style.top = Math.max(4, event.clientY - tip.offsetHeight - 12) + "px";
}
for (const figure of document.querySelectorAll("figure")) {
  figure.addEventListener("pointermove", point);
  figure.addEventListener("pointerdown", point);
  figure.addEventListener("pointerleave", () => { tip.hidden = true; });
}
// What is folded is printed nevertheless.
addEventListener("beforeprint", () => { for (const one of document.querySelectorAll("details")) one.open = true; });
