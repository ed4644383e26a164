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

// The focused element, as the nearest id and its position there, so that new content can get the focus at the same place.
function focusPosition() {
  const active = document.activeElement;
  if (!page.contains(active) || active === page) return null;
  const part = active.closest("[id]");
  return [part.id, part === active ? -1 : [...part.querySelectorAll(FOCUSABLE)].indexOf(active)];
}

function restoreFocus([id, position]) {
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
  const keyOf = (details, i) => details.dataset.key ?? i;
  const open = new Set([...element.querySelectorAll("details")].map((d, i) => d.open ? keyOf(d, i) : null));
  const scrolled = [...element.querySelectorAll(".scroll")].map((d) => d.scrollLeft);
  if (element.hidden) fresh.hidden = true;
  element.replaceWith(fresh);
  prepareTables(fresh);
  [...fresh.querySelectorAll("details")].forEach((d, i) => { if (open.has(keyOf(d, i))) d.open = true; });
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
      markGraph();
    });
    source.addEventListener("alerts", (event) => {
      const count = document.getElementById("alert-count");
      count.textContent = event.data;
      count.hidden = event.data === "0";
    });
    source.addEventListener("content", (event) => {
      const focused = focusPosition();
      const filter = document.querySelector("[data-filter], #find");
      const typed = filter ? filter.value : "";
      page.innerHTML = JSON.parse(event.data);
      main.dataset.digest = "changed";
      prepare();
      const newFilter = document.querySelector("[data-filter], #find");
      if (newFilter && typed) { newFilter.value = typed; newFilter.dispatchEvent(new Event("input")); }
      if (focused) restoreFocus(focused);
    });
  };
  open();
  // A page in the background reads nothing.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { source.close(); live.className = "live"; text.textContent = "paused"; } else { open(); }
  });
}

function applyFilter(input) {
  const pattern = input.value.trim().toLowerCase();
  for (const row of document.querySelectorAll("#" + input.dataset.filter + " tbody tr[data-text]")) {
    row.hidden = pattern !== "" && !row.dataset.text.includes(pattern);
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
let marked = null; // what is emphasised: {id}: a table, its sources and its readers; {text}: names that contain it; {state}: tables in this state
let chosenState = "";

function lineage(id, links) {
  const ids = new Set([id]), lines = new Set();
  for (const [from, to] of [["from", "to"], ["to", "from"]]) {
    const waiting = [id], seen = new Set(waiting);
    while (waiting.length) {
      const node = waiting.pop();
      for (const link of links) {
        if (link.dataset[from] !== node) continue;
        lines.add(link);
        const next = link.dataset[to];
        if (!seen.has(next)) { seen.add(next); ids.add(next); waiting.push(next); }
      }
    }
  }
  return [ids, lines];
}

function markGraph() {
  const svg = document.getElementById("graph");
  if (!svg) return;
  const nodes = [...svg.querySelectorAll("g[data-name]")], links = [...svg.querySelectorAll("g[data-from]")];
  let ids = new Set(), lines = new Set();
  if (marked?.id) {
    [ids, lines] = lineage(marked.id, links);
  } else if (marked) {
    const isMarked = marked.text ? (node) => node.dataset.name.includes(marked.text) : (node) => node.querySelector(".node." + marked.state);
    ids = new Set(nodes.filter(isMarked).map((node) => node.id));
  }
  svg.classList.toggle("marked", marked !== null);
  for (const button of document.querySelectorAll("[data-state]")) button.setAttribute("aria-pressed", String(button.dataset.state === chosenState));
  for (const node of nodes) {
    node.classList.toggle("on", ids.has(node.id));
    node.classList.toggle("at", marked?.id ? node.id === marked.id : ids.has(node.id));
  }
  for (const link of links) link.classList.toggle("on", lines.has(link));
}

function prepareGraph() {
  const canvas = document.getElementById("canvas");
  const svg = document.getElementById("graph");
  if (!canvas || !svg) return;
  const width = Number(svg.dataset.width), height = Number(svg.dataset.height);
  const show = () => {
    svg.setAttribute("viewBox", [view.x, view.y, view.w, view.h].join(" "));
    const scale = canvas.clientWidth / view.w;  // hides texts that would be too small to read
    svg.classList.toggle("far", scale < 0.6);
    svg.classList.toggle("farther", scale < 0.3);
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
    const readable = box.width * 1.3;
    if (view.w > readable) { view = { w: readable, h: readable * box.height / box.width, x: 0, y: 0 }; show(); }
  } else show();
  const point = (event) => {
    const box = svg.getBoundingClientRect();
    return [view.x + (event.clientX - box.left) / box.width * view.w, view.y + (event.clientY - box.top) / box.height * view.h];
  };
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const lines = event.deltaMode === 1 ? 16 : 1;
    zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY * lines)) * 0.0025), ...point(event));
  }, { passive: false });
  const fingers = new Map();
  let drag = null, moved = false, spread = 0;
  const distance = () => { const [a, b] = [...fingers.values()]; return Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY); };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    fingers.set(event.pointerId, event);
    if (fingers.size === 2) { drag = null; moved = true; spread = distance(); return; }
    drag = { x: event.clientX, y: event.clientY, vx: view.x, vy: view.y };
    moved = false;
  });
  canvas.addEventListener("pointermove", (event) => {
    if (fingers.has(event.pointerId)) fingers.set(event.pointerId, event);
    if (fingers.size === 2) {
      const [a, b] = [...fingers.values()], now = distance();
      if (now > 0 && spread > 0) zoom(spread / now, ...point({ clientX: (a.clientX + b.clientX) / 2, clientY: (a.clientY + b.clientY) / 2 }));
      spread = now;
      return;
    }
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
  const end = (event) => { fingers.delete(event.pointerId); drag = null; };
  canvas.addEventListener("pointerup", end);
  canvas.addEventListener("pointercancel", end);
  canvas.addEventListener("pointerleave", end);
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
  const find = document.getElementById("find");
  const mark = (table) => {
    const text = find.value.trim().toLowerCase();
    marked = table ?? (text ? { text } : chosenState ? { state: chosenState } : null);
    markGraph();
  };
  const nodeOf = (event) => event.target.closest?.("g[data-name]");
  svg.addEventListener("pointerover", (event) => { if (event.pointerType !== "touch" && !drag) { const node = nodeOf(event); mark(node ? { id: node.id } : null); } });
  svg.addEventListener("pointerleave", () => mark(null));
  svg.addEventListener("focusin", (event) => {
    const node = nodeOf(event);
    if (!node) return;
    mark({ id: node.id });
    if (event.target.matches(":focus-visible")) reveal(node);
  });
  svg.addEventListener("focusout", () => mark(null));
  // Brings a node into the view, in a size that can be read.
  const reveal = (node) => {
    const box = node.getBBox();
    const isInside = box.x >= view.x && box.y >= view.y && box.x + box.width <= view.x + view.w && box.y + box.height <= view.y + view.h;
    if (isInside && canvas.clientWidth / view.w >= 0.6) return;
    const w = Math.min(view.w, canvas.clientWidth * 1.3);
    view = { w, h: view.h * w / view.w, x: box.x + box.width / 2 - w / 2, y: box.y + box.height / 2 - view.h * w / view.w / 2 };
    show();
  };
  let nth = 0;
  find.addEventListener("input", () => { nth = 0; mark(null); });
  find.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { find.value = ""; mark(null); canvas.focus(); }
    if (event.key !== "Enter") return;
    event.preventDefault();
    const matches = [...svg.querySelectorAll("g.at")];
    if (matches.length) reveal(matches[nth++ % matches.length]);
  });
  mark(null);
  document.getElementById("states").parentElement.addEventListener("click", (event) => {
    const button = event.target.closest("[data-state]");
    if (!button) return;
    chosenState = chosenState === button.dataset.state ? "" : button.dataset.state;
    mark(null);
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
    const filter = document.querySelector("[data-filter], #find");
    event.preventDefault();
    if (filter) filter.focus(); else location.href = "/tables";
  }
});

prepare();
setInterval(showAges, 1000);
connect();
