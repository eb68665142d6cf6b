// The charts of the last hour, one for each kind and name, with a line for each member, table or node.
import { at, bytes, element } from "./dom.js";

const COLOURS = ["#2f6fdf", "#d9480f", "#2b8a3e", "#9c36b5", "#0b7285", "#c92a2a", "#a36a00", "#5c677d"];
const TITLES = { sent: "Sent, bytes per second", received: "Received, bytes per second", adds: "Adds per second", gets: "Gets per second" };
const MOST_CHARTS = 24, LEGEND_LINES = 12;
const charts = new Map();  // "kind\nchart" -> Chart
const lines = new Map();   // "kind\nchart\nline" -> values by slot
let next = 0, slots = 720;

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function made(key, kind, name) {
  const canvas = element("canvas", { role: "img" });
  const title = kind === "gossip" ? `Gossip: ${name}` : kind === "report" ? name : TITLES[name] ?? name;
  canvas.setAttribute("aria-label", `Chart: ${title}, the last hour`);
  at(kind === "report" ? "reports" : "history").append(element("figure", {}, element("figcaption", {}, title), element("div", { class: "plot" }, canvas)));
  const axis = (more) => ({ grid: { color: colour("--line") }, ticks: { color: colour("--quiet"), maxTicksLimit: 6, ...more } });
  const chart = new globalThis.Chart(canvas, {
    type: "line", data: { labels: [], datasets: [] },
    options: {
      animation: false, responsive: true, maintainAspectRatio: false, spanGaps: false, normalized: true,
      interaction: { mode: "nearest", axis: "x", intersect: false },
      elements: { point: { radius: 0, hitRadius: 6 }, line: { borderWidth: 1.6 } },
      scales: { x: axis({ maxRotation: 0 }), y: axis(kind === "traffic" ? { callback: (value) => bytes(value) } : {}) },
      plugins: { legend: { labels: { color: colour("--text"), boxWidth: 12 } } },
    },
  });
  charts.set(key, chart);
  return chart;
}

function store(told) {
  const first = told.first;
  for (const series of told.series) {
    const key = [series.kind, series.chart, series.line].join("\n");
    if (!lines.has(key)) lines.set(key, { ...series, values: new Map() });
    const values = lines.get(key).values;
    series.values.forEach((value, i) => values.set(first + i, value));
    next = Math.max(next, first + series.values.length);
  }
  for (const [key, { values }] of lines) {
    for (const slot of values.keys()) if (slot < next - slots) values.delete(slot);
    if (values.size === 0) lines.delete(key);
  }
}

/** A counter's increase per second; null where it began anew. */
function rates(values, step) {
  return values.map((value, i) => (i > 0 && value !== null && values[i - 1] !== null && value >= values[i - 1] ? (value - values[i - 1]) / step : null));
}

function draw(step) {
  const wanted = new Map();
  let oldest = next;
  for (const line of lines.values()) {
    const key = `${line.kind}\n${line.chart}`;
    if (!wanted.has(key)) wanted.set(key, []);
    wanted.get(key).push(line);
    for (const [slot, value] of line.values) if (value !== null && slot < oldest) oldest = slot;
  }
  const numbers = Array.from({ length: next - oldest }, (_, i) => oldest + i);
  const labels = numbers.map((slot) => (slot === next - 1 ? "now" : `−${((next - 1 - slot) * step / 60).toFixed(1)} min`));
  for (const [key, all] of wanted) {
    if (!charts.has(key) && charts.size >= MOST_CHARTS) continue;
    const chart = charts.get(key) ?? made(key, all[0].kind, all[0].chart);
    chart.data.labels = labels;
    chart.options.plugins.legend.display = all.length <= LEGEND_LINES;
    chart.data.datasets = all.sort((a, b) => a.line.localeCompare(b.line, undefined, { numeric: true })).map((line, i) => {
      const values = numbers.map((slot) => line.values.get(slot) ?? null);
      const paint = COLOURS[i % COLOURS.length];
      return { label: line.line, data: line.kind === "counter" ? rates(values, step) : values, borderColor: paint, backgroundColor: paint,
               borderDash: i >= COLOURS.length ? [4, 3] : [] };
    });
    chart.update("none");
  }
}

/** Fetches the new slots and draws them. */
export async function refresh() {
  if (!globalThis.Chart) {
    at("no-charts").hidden = false;
    return;
  }
  const response = await fetch(`api/history?since=${next}`);
  if (!response.ok) return;
  const told = await response.json();
  slots = 3600 / told.slot_seconds;
  store(told);
  draw(told.slot_seconds);
}
