// Elements with text. Texts come from other processes, so nothing here parses HTML.

/** element("td", {class: "number"}, "12", child...) */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const SVG = "http://www.w3.org/2000/svg";
export function shape(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

export const at = (id) => document.getElementById(id);

/** Sets a text only if it changed: screen readers announce each change of a live region. */
export function say(id, text) {
  if (at(id).textContent !== text) at(id).textContent = text;
}

/** Changes `old` into `made`, keeping the elements: so a scroll position, the focus and a selection survive an update. */
function change(old, made) {
  if (old.nodeName !== made.nodeName) return old.replaceWith(made);
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== made.data) old.data = made.data;
    return;
  }
  for (const { name, value } of made.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const { name } of [...old.attributes]) if (!made.hasAttribute(name)) old.removeAttribute(name);
  changeChildren(old, [...made.childNodes]);
}

function changeChildren(parent, made) {
  const old = [...parent.childNodes];
  made.forEach((child, i) => (i < old.length ? change(old[i], child) : parent.append(child)));
  for (const child of old.slice(made.length)) child.remove();
}

/** Shows these elements, and no others, in the element with this id. */
export const show = (id, ...children) => changeChildren(at(id), children);

const isNumber = (content) => content !== null && typeof content === "object" && "number" in content;

/** A table with a caption for screen readers. A cell is a text, an element, or {number: text}; the first of a row is its header. */
export function grid(caption, heads, rows) {
  const cell = (content, first) => element(first ? "th" : "td", { scope: first ? "row" : null, class: isNumber(content) ? "number" : null },
    isNumber(content) ? content.number : content ?? "");
  const head = (text, i) => element("th", { scope: "col", class: rows.length > 0 && isNumber(rows[0].cells[i]) ? "number" : null }, text);
  return element("table", {}, element("caption", {}, caption), element("thead", {}, element("tr", {}, ...heads.map(head))),
    element("tbody", {}, ...rows.map((row) => element("tr", { class: row.tone || null }, ...row.cells.map((content, i) => cell(content, i === 0))))));
}

/** A name in a coloured frame: "bad", "warn", "quiet" or "". */
export const chip = (text, tone = "", title = null) => element("span", { class: `chip ${tone}`, title }, text);

export const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];
/** The index of the unit in which a number of bytes is below 1024. */
export const unitOf = (count) => Math.max(0, Math.min(UNITS.length - 1, Math.floor(Math.log2(Math.max(1, count)) / 10)));

export function bytes(count) {
  if (typeof count !== "number") return "–";
  const unit = unitOf(count);
  return `${(count / 1024 ** unit).toFixed(unit === 0 ? 0 : 1)} ${UNITS[unit]}`;
}

export const seconds = (count) => (typeof count !== "number" ? "–" : count < 120 ? `${count.toFixed(1)} s` : `${Math.floor(count / 60)} min`);
export const short = (number) => (typeof number === "number" ? String(Number(number.toPrecision(4))) : "–");
export const plural = (number, what) => `${number} ${what}${number === 1 ? "" : "s"}`;
export const list = (value) => (Array.isArray(value) ? value : []);
export const some = (names) => (names.length <= 6 ? names.join(", ") : `${names.slice(0, 5).join(", ")} and ${names.length - 5} more`);
