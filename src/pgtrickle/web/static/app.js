"use strict";
// Live updates, ages, sorting, filtering, and the view of the graph. Pages work without it.

const page = document.getElementById("page");
const main = document.getElementById("content");

function age(seconds) {
  if (seconds < 1) return "now";
  if (seconds < 60) return Math.floor(seconds) + " s ago";
  if (seconds < 3600) return Math.floor(seconds / 60) + " min ago";
  if (seconds < 86400) return Math.floor(seconds / 3600) + " h ago";
  return Math.floor(seconds / 86400) + " d ago";
}

function showAges() {
  const now = Date.now();
  for (const element of document.querySelectorAll("time[data-age]")) {
    const text = age((now - Date.parse(element.dateTime)) / 1000);
    if (element.textContent !== text) element.textContent = text;
  }
}

const FOCUSABLE = "a,button,input,select,summary,[tabindex]";

// What has the focus, as the nearest id and a position in it, so that it is found again in new content.
function focusPlace() {
  const active = document.activeElement;
  if (!page.contains(active) || active === page) return null;
  const part = active.closest("[id]");
  return [part.id, part === active ? -1 : [...part.querySelectorAll(FOCUSABLE)].indexOf(active)];
}

function focusAgain([id, position]) {
  const part = document.getElementById(id);
  const target = position < 0 ? part : part?.querySelectorAll(FOCUSABLE)[position];
  (target || main).focus({ preventScroll: true });
}

// Keeps the focus, open details and scroll positions when a part is replaced.
function replace(element, html) {
  const template = document.createElement("template");
  const inSvg = element instanceof SVGElement;
  template.innerHTML = inSvg ? "<svg>" + html + "</svg>" : html;
  const fresh = inSvg ? template.content.firstElementChild.firstElementChild : template.content.firstElementChild;
  const active = document.activeElement;
  const focused = element.contains(active) ? [...element.querySelectorAll(FOCUSABLE)].indexOf(active) : -1;
  const open = [...element.querySelectorAll("details")].map((d) => d.open);
  const scrolled = [...element.querySelectorAll(".scroll")].map((d) => d.scrollLeft);
  if (element.hidden) fresh.hidden = true;
  element.replaceWith(fresh);
  prepareTables(fresh);
  [...fresh.querySelectorAll("details")].forEach((d, i) => { if (open[i]) d.open = true; });
  [...fresh.querySelectorAll(".scroll")].forEach((d, i) => { if (scrolled[i]) d.scrollLeft = scrolled[i]; });
  if (focused >= 0) fresh.querySelectorAll(FOCUSABLE)[focused]?.focus({ preventScroll: true });
}

function connect() {
  const live = document.getElementById("live");
  const text = document.getElementById("live-text");
  if (!live || !main.dataset.digest || !window.EventSource) return;
  const here = location.pathname + location.search;
  let source = null;
  const open = () => {
    source = new EventSource("/events?for=" + encodeURIComponent(here) + "&digest=" + main.dataset.digest);
    source.onopen = () => { live.className = "live on"; text.textContent = "live"; };
    source.onerror = () => { live.className = "live off"; text.textContent = "reconnecting"; };
    source.addEventListener("patch", (event) => {
      for (const [id, html] of Object.entries(JSON.parse(event.data))) {
        const element = document.getElementById(id);
        if (element) replace(element, html);
      }
      main.dataset.digest = "changed";
      showAges();
    });
    source.addEventListener("alerts", (event) => {
      const count = document.getElementById("alert-count");
      count.textContent = event.data;
      count.hidden = event.data === "0";
    });
    source.addEventListener("content", (event) => {
      const place = focusPlace();
      const filter = document.querySelector("[data-filter]");
      const typed = filter ? filter.value : "";
      page.innerHTML = JSON.parse(event.data);
      main.dataset.digest = "changed";
      prepare();
      const again = document.querySelector("[data-filter]");
      if (again && typed) { again.value = typed; applyFilter(again); }
      if (place) focusAgain(place);
    });
  };
  open();
  // A page in the background reads nothing.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { source.close(); live.className = "live"; text.textContent = "paused"; } else { open(); }
  });
}

function applyFilter(input) {
  const wanted = input.value.trim().toLowerCase();
  for (const row of document.querySelectorAll("#" + input.dataset.filter + " tbody tr[data-text]")) {
    row.hidden = wanted !== "" && !row.dataset.text.includes(wanted);
  }
}

const sorting = new Map(); // by the id of a table or of the part around it: column and direction, kept when it is replaced

function sortingKey(table) {
  return table.id || table.closest("[id]").id;
}

function sortBy(table, column, down) {
  const header = table.tHead.rows[0].cells[column];
  sorting.set(sortingKey(table), [column, down]);
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", down ? "descending" : "ascending");
  const value = (row) => {
    const cell = row.cells[column];
    return cell.dataset.value !== undefined ? Number(cell.dataset.value) : cell.textContent.trim().toLowerCase();
  };
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => [value(row), row]);
  rows.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0) * (down ? -1 : 1));
  body.append(...rows.map(([, row]) => row));
}

function prepareTables(root) {
  for (const table of root.querySelectorAll("table[data-sortable]")) {
    [...table.tHead.rows[0].cells].forEach((header, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.append(...header.childNodes);
      header.append(button);
      button.addEventListener("click", () => sortBy(table, column, header.getAttribute("aria-sort") !== "descending"));
    });
    if (sorting.has(sortingKey(table))) sortBy(table, ...sorting.get(sortingKey(table)));
  }
}

let view = null; // of the graph; kept when its content is replaced

function prepareGraph() {
  const canvas = document.getElementById("canvas");
  const svg = document.getElementById("graph");
  if (!canvas || !svg) return;
  const width = Number(svg.dataset.width), height = Number(svg.dataset.height);
  const show = () => {
    svg.setAttribute("viewBox", [view.x, view.y, view.w, view.h].join(" "));
  };
  const fit = () => {
    const box = canvas.getBoundingClientRect();
    const ratio = box.height / box.width;
    let w = Math.max(width, height / ratio);
    // A large graph begins readable, at its upper left; a small one is not enlarged.
    w = Math.max(w, box.width * 0.8);
    view = { w, h: w * ratio, x: Math.min(0, (width - w) / 2), y: Math.min(0, (height - w * ratio) / 2) };
    show();
  };
  const zoom = (factor, cx = view.x + view.w / 2, cy = view.y + view.h / 2) => {
    const w = Math.min(Math.max(view.w * factor, 200), Math.max(width, height) * 8);
    const f = w / view.w;
    view = { w, h: view.h * f, x: cx - (cx - view.x) * f, y: cy - (cy - view.y) * f };
    show();
  };
  if (!view) {
    fit();
    const box = canvas.getBoundingClientRect();
    const readable = box.width * 1.8;
    if (view.w > readable) { view = { w: readable, h: readable * box.height / box.width, x: 0, y: 0 }; show(); }
  } else show();
  const point = (event) => {
    const box = svg.getBoundingClientRect();
    return [view.x + (event.clientX - box.left) / box.width * view.w, view.y + (event.clientY - box.top) / box.height * view.h];
  };
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.15 : 1 / 1.15, ...point(event));
  }, { passive: false });
  let drag = null, moved = false;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    drag = { x: event.clientX, y: event.clientY, vx: view.x, vy: view.y };
    moved = false;
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!drag) return;
    const box = svg.getBoundingClientRect();
    if (Math.abs(event.clientX - drag.x) + Math.abs(event.clientY - drag.y) > 4 && !moved) {
      moved = true;
      canvas.setPointerCapture(event.pointerId);
    }
    if (!moved) return;
    view.x = drag.vx - (event.clientX - drag.x) / box.width * view.w;
    view.y = drag.vy - (event.clientY - drag.y) / box.height * view.h;
    show();
  });
  const end = () => { drag = null; };
  canvas.addEventListener("pointerup", end);
  canvas.addEventListener("pointercancel", end);
  canvas.addEventListener("click", (event) => { if (moved) { event.preventDefault(); moved = false; } }, true);
  canvas.addEventListener("dragstart", (event) => event.preventDefault());
  canvas.addEventListener("keydown", (event) => {
    const step = view.w / 10;
    const keys = {
      ArrowLeft: () => { view.x -= step; show(); }, ArrowRight: () => { view.x += step; show(); },
      ArrowUp: () => { view.y -= step; show(); }, ArrowDown: () => { view.y += step; show(); },
      "+": () => zoom(1 / 1.25), "=": () => zoom(1 / 1.25), "-": () => zoom(1.25), "0": fit,
    };
    if (keys[event.key] && !event.ctrlKey && !event.metaKey) { event.preventDefault(); keys[event.key](); }
  });
  for (const button of document.querySelectorAll("[data-zoom]")) {
    button.addEventListener("click", () => ({ in: () => zoom(1 / 1.25), out: () => zoom(1.25), fit })[button.dataset.zoom]());
  }
}

function prepare() {
  showAges();
  prepareTables(document);
  prepareGraph();
  for (const input of document.querySelectorAll("[data-filter]")) {
    input.addEventListener("input", () => applyFilter(input));
  }
}

document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !event.ctrlKey && !event.metaKey && !/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName)) {
    const filter = document.querySelector("[data-filter]");
    event.preventDefault();
    if (filter) filter.focus(); else location.href = "/tables";
  }
});

prepare();
setInterval(showAges, 1000);
connect();
