// The charts of the last hour, one for each kind and name, with a line for each member, table or node.
import { at, element, short, unitOf, UNITS } from "./dom.js";

const COLOURS = ["#2f7fe0", "#d9480f", "#2b9a4e", "#b04fcb", "#0b8fa5", "#d6336c", "#a37a00", "#7a8699"];
const TITLES = { sent: "Sent", received: "Received", adds: "Adds per second", gets: "Gets per second" };
const KINDS = ["report", "gossip", "traffic", "counter"];  // in this order
const PLACES = { report: "reports", gossip: "gossip-charts" };
const MOST_CHARTS = 24, MOST_LINES = 16, MOST_POINTS = 240;
const charts = new Map();  // "kind\nchart" -> {chart, title}
const lines = new Map();   // "kind\nchart\nline" -> values by slot
let next = 0, slots = 720;

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function paint(chart) {
  for (const axis of [chart.options.scales.x, chart.options.scales.y]) {
    axis.grid.color = colour("--line");
    axis.ticks.color = colour("--quiet");
  }
  chart.options.plugins.legend.labels.color = colour("--text");
}

function made(key, kind) {
  const canvas = element("canvas", { role: "img" });
  const title = element("figcaption");
  at(PLACES[kind] ?? "history").append(element("figure", {}, title, element("div", { class: "plot" }, canvas)));
  const minutes = (value) => (value === 0 ? "now" : `${Number(value.toFixed(1))} min`);
  const chart = new globalThis.Chart(canvas, {
    type: "line", data: { datasets: [] },
    options: {
      animation: false, responsive: true, maintainAspectRatio: false, spanGaps: false, clip: 8, normalized: true, parsing: false,
      interaction: { mode: "nearest", axis: "x", intersect: false },
      elements: { line: { borderWidth: 1.8 } },
      scales: { x: { type: "linear", max: 0, grid: {}, ticks: { callback: minutes, maxTicksLimit: 5, maxRotation: 0, autoSkipPadding: 12 } },
                y: { grid: {}, beginAtZero: kind !== "report", ticks: { maxTicksLimit: 6 } } },
      plugins: { legend: { labels: { boxWidth: 12 } }, tooltip: { callbacks: { title: (items) => minutes(items[0].parsed.x) } } },
    },
  });
  const one = { chart, title, canvas };
  paint(chart);
  charts.set(key, one);
  return one;
}

/** The last slot told is unfinished, and will be told again. */
function store(told) {
  for (const series of told.series) {
    const key = [series.kind, series.chart, series.line].join("\n");
    if (!lines.has(key)) lines.set(key, { kind: series.kind, chart: series.chart, line: series.line, values: new Map() });
    const values = lines.get(key).values;
    series.values.forEach((value, i) => values.set(told.first + i, value));
    next = Math.max(next, told.first + series.values.length - 1);
  }
  for (const [key, { values }] of lines) {
    for (const slot of values.keys()) if (slot < next - slots) values.delete(slot);
    if ([...values.values()].every((value) => value === null)) lines.delete(key);
  }
}

/** A counter's increase per second; null where it began anew, and for the unfinished slot. */
function rates(values, step) {
  return values.map((value, i) => {
    const before = i > 0 ? values[i - 1] : null;
    return value === null || before === null || value < before || i === values.length - 1 ? null : (value - before) / step;
  });
}

const mean = (values) => {
  const known = values.filter((value) => value !== null);
  return known.length > 0 ? known.reduce((a, b) => a + b) / known.length : null;
};

/** Means of `width` values each. */
const coarse = (values, width) => (width === 1 ? values
  : Array.from({ length: Math.ceil(values.length / width) }, (_, i) => mean(values.slice(i * width, (i + 1) * width))));

/** Too many lines to tell apart: the greatest, the mean and the least value of all at each moment. */
function envelope(curves) {
  const over = (choose) => curves[0].values.map((_, i) => {
    const known = curves.map((curve) => curve.values[i]).filter((value) => value !== null);
    return known.length > 0 ? choose(known) : null;
  });
  return [{ label: `greatest of ${curves.length}`, values: over((known) => known.reduce((a, b) => Math.max(a, b))) },
    { label: "mean", values: over(mean) }, { label: "least", values: over((known) => known.reduce((a, b) => Math.min(a, b))) }];
}

function curvesOf(all, first, count, width, step) {
  const sorted = all.sort((a, b) => a.line.localeCompare(b.line, undefined, { numeric: true }));
  const curves = sorted.map((line) => {
    const values = Array.from({ length: count }, (_, i) => line.values.get(first + i) ?? null);
    return { label: line.line, values: coarse(line.kind === "counter" ? rates(values, step) : values, width) };
  });
  return curves.length > MOST_LINES ? envelope(curves) : curves;
}

function titleOf(kind, name, unit) {
  if (kind === "traffic") return `${TITLES[name]}, ${UNITS[unit]} per second`;
  if (kind === "gossip") return name[0].toUpperCase() + name.slice(1);
  return kind === "counter" ? TITLES[name] : name;
}

function drawOne({ chart, title, canvas }, kind, name, curves, xs) {
  const all = curves.flatMap((curve) => curve.values).filter((value) => value !== null);
  const unit = kind === "traffic" ? unitOf(all.reduce((a, b) => Math.max(a, b), 0)) : 0;
  const text = titleOf(kind, name, unit);
  if (title.textContent !== text) title.textContent = text;
  const latest = curves.slice(0, 8).map((curve) => `${curve.label} ${short((curve.values.findLast((value) => value !== null) ?? 0) / 1024 ** unit)}`);
  canvas.setAttribute("aria-label", `Chart: ${text}, the last hour. Latest: ${latest.join(", ")}`);
  const lonely = (values, i) => (values[i - 1] ?? null) === null && (values[i + 1] ?? null) === null;  // a point without a line
  chart.options.scales.x.min = Math.min(xs[0], -1);
  chart.data.datasets = curves.map((curve, i) => ({
    label: curve.label, data: curve.values.map((value, k) => ({ x: xs[k], y: value === null ? NaN : value / 1024 ** unit })),
    borderColor: COLOURS[i % COLOURS.length], backgroundColor: COLOURS[i % COLOURS.length], borderDash: i >= COLOURS.length ? [4, 3] : [],
    pointRadius: curve.values.map((_, k) => (lonely(curve.values, k) ? 3 : 0)), pointHitRadius: 6,
  }));
  chart.update("none");
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
  const count = next - oldest + 1, width = Math.ceil(count / MOST_POINTS);
  const xs = Array.from({ length: Math.ceil(count / width) }, (_, i) => -(Math.max(0, count - 1 - i * width - (width - 1)) * step) / 60);
  const inOrder = [...wanted].sort(([, [a]], [, [b]]) => KINDS.indexOf(a.kind) - KINDS.indexOf(b.kind) || b.chart.localeCompare(a.chart));
  for (const [key, all] of inOrder) {
    const { kind, chart: name } = all[0];
    const curves = curvesOf(all, oldest, count, width, step);
    if (!curves.some((curve) => curve.values.some((value) => value !== null))) continue;
    if (!charts.has(key) && charts.size >= MOST_CHARTS) continue;
    drawOne(charts.get(key) ?? made(key, kind), kind, name, curves, xs);
  }
  at("history-section").hidden = at("history").childElementCount === 0;
}

/** Fetches the new slots and draws them. */
export async function refresh() {
  if (!globalThis.Chart) {
    at("history-section").hidden = at("no-charts").hidden = false;
    return;
  }
  if (document.hidden) return;
  const response = await fetch(`api/history?since=${next}`).catch(() => null);
  if (!response?.ok) return;
  const told = await response.json();
  slots = 3600 / told.slot_seconds;
  store(told);
  draw(told.slot_seconds);
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const { chart } of charts.values()) {
    paint(chart);
    chart.update("none");
  }
});
