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

/** A table with a caption for screen readers. A cell is a text, an element, or {number: text}; the first of a row is its header. */
export function grid(caption, heads, rows) {
  const cell = (content, first) => {
    const numeric = content !== null && typeof content === "object" && "number" in content;
    return element(first ? "th" : "td", { scope: first ? "row" : null, class: numeric ? "number" : null }, numeric ? content.number : content ?? "");
  };
  return element("table", {}, element("caption", {}, caption),
    element("thead", {}, element("tr", {}, ...heads.map((head) => element("th", { scope: "col" }, head)))),
    element("tbody", {}, ...rows.map((row) => element("tr", { class: row.tone ?? null }, ...row.cells.map((content, i) => cell(content, i === 0))))));
}

export function bytes(count) {
  if (typeof count !== "number") return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; count >= 1024 && unit + 1 < units.length; ++unit) count /= 1024;
  return `${unit === 0 ? count.toFixed(0) : count.toFixed(1)} ${units[unit]}`;
}

export const seconds = (count) => (typeof count !== "number" ? "–" : count < 120 ? `${count.toFixed(1)} s` : `${Math.floor(count / 60)} min`);
export const short = (number) => (typeof number === "number" ? String(Number(number.toPrecision(4))) : "–");
