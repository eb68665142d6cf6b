// Tables, stores, groups and reported numbers.
import { at, bytes, element, grid, list, plural, seconds, shape, short, show, some } from "./dom.js";
import { briefOf, namesOf } from "./members.js";

const MOST_KEYS = 8;  // more tables whose names share a prefix, such as a store's keys, are one row

/** Tables by name, the many keys of a store as one. */
function merged(tables) {
  const stores = new Map();
  for (const table of tables) {
    const prefix = table.name.includes("/") ? table.name.slice(0, table.name.indexOf("/") + 1) : "";
    stores.set(prefix, [...(stores.get(prefix) ?? []), table]);
  }
  return [...stores].flatMap(([prefix, all]) => (prefix === "" || all.length <= MOST_KEYS ? all : [sumOf(prefix, all)]));
}

function sumOf(prefix, tables) {
  const add = (lists, key, counts) => {
    const sums = new Map();
    for (const one of lists.flat()) {
      const sum = sums.get(one[key]) ?? { [key]: one[key], ...Object.fromEntries(counts.map((count) => [count, 0])) };
      for (const count of counts) sum[count] += one[count];
      sums.set(one[key], sum);
    }
    return [...sums.values()];
  };
  const kinds = [...new Set(tables.map((table) => table.consistency))];
  return { name: prefix, what: plural(tables.length, "key"), consistency: kinds.join(", "), complete: tables.every((table) => table.complete),
    workers: add(tables.map((table) => list(table.workers)), "worker", ["adds", "gets"]).map((worker) => ({ ...worker, clock: 0 })),
    servers: add(tables.map((table) => list(table.servers)), "server", ["stored", "memory_bytes"]) };
}

/** How a table is cut over the servers: a bar with a piece for each, and the numbers of rows or keys. */
function cutOf(table) {
  const servers = [...list(table.servers)].sort((a, b) => a.server - b.server);
  if (servers.length === 0) return "–";
  const total = servers.reduce((sum, server) => sum + server.stored, 0);
  const counts = servers.map((server) => server.stored);
  const text = servers.length <= 4 ? servers.map((server) => `${server.server}: ${server.stored}`).join(", ")
    : `${servers.length} servers, ${Math.min(...counts)} to ${Math.max(...counts)} each`;
  let begin = 0;
  const pieces = servers.map((server, i) => {
    const width = total > 0 ? (100 * server.stored) / total : 0;
    const piece = shape("rect", { x: begin.toFixed(2), y: 0, width: width.toFixed(2), height: 8, class: `piece${i % 2}` });
    begin += width;
    return piece;
  });
  const bar = shape("svg", { viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" }, ...pieces);
  return element("span", { class: "cut" }, bar, text);
}

/** "worker 3, by 1 add" */
function behindOf(workers) {
  const by = workers.some((worker) => worker.clock > 0) ? "clock" : "adds";  // rounds are counted by clocks where there are any, else by adds
  const counts = workers.map((worker) => worker[by]);
  const least = Math.min(...counts), most = Math.max(...counts);
  const last = workers.filter((worker) => worker[by] === least).map((worker) => `worker ${worker.worker}`);
  if (least === most || last.length === workers.length) return "nobody";
  return `${some(last)}, by ${plural(most - least, by === "clock" ? "clock" : "add")}`;
}

export function showTables(tables) {
  at("tables-section").hidden = tables.length === 0;
  if (tables.length === 0) return;
  const rows = merged(tables).map((table) => {
    const workers = list(table.workers);
    const sum = (what) => workers.reduce((total, worker) => total + worker[what], 0);
    const clocks = workers.map((worker) => worker.clock);
    const least = Math.min(...clocks), most = Math.max(...clocks);
    const memory = list(table.servers).reduce((total, server) => total + server.memory_bytes, 0);
    const clock = !(most > 0) ? "–" : least === most ? String(most) : `${least} to ${most}`;
    return { tone: table.complete ? "" : "warn", cells: [table.name, table.complete ? table.what : `${table.what} (being created)`, table.consistency,
      { number: String(sum("adds")) }, { number: String(sum("gets")) }, { number: clock }, behindOf(workers),
      { number: memory > 0 ? bytes(memory) : "–" }, cutOf(table)] };
  });
  show("tables", grid("Operations of all workers",
    ["table", "what", "consistency", "adds", "gets", "clock", "furthest behind", "memory", "rows or keys on each server"], rows));
}

export function showGroups(groups, members) {
  at("groups-section").hidden = groups.length === 0;
  const names = namesOf(members);
  const rows = groups.map((group, i) => {
    const ranks = list(group.ranks);
    const told = ranks.filter((rank) => rank.operations !== null);
    const least = Math.min(...told.map((rank) => rank.operations)), most = Math.max(...told.map((rank) => rank.operations));
    const awaited = [...ranks.filter((rank) => rank.operations === null).map((rank) => `${names.get(rank.rank)} (no answer)`),
      ...(most > least ? told.filter((rank) => rank.operations === least).map((rank) => `${names.get(rank.rank)} (${most - least} behind)`) : [])];
    return { tone: group.broken ? "bad" : awaited.length > 0 ? "warn" : "", cells: [`group ${i}`, group.broken ? `broken: ${group.broken}` : "works",
      { number: told.length === 0 ? "–" : String(most) }, awaited.length > 0 ? some(awaited) : "nobody", group.transport,
      some(ranks.map((rank) => names.get(rank.rank) ?? `rank ${rank.rank}`))] };
  });
  show("groups", grid("Groups and their operations", ["group", "state", "operations", "awaited", "transport", "members"], rows));
}

/** The last values as text: the charts are pictures. */
export function showReports(members) {
  const rows = members.flatMap((member) => list(member.reports).map((report) => ({ cells: [report.name, briefOf(member),
    { number: short(report.value) }, { number: String(report.count) }, { number: seconds(report.seconds) }] })));
  at("reports-section").hidden = rows.length === 0;
  if (rows.length > 0 && at("report-details").open)
    show("report-numbers", grid("The last reports", ["name", "who", "value", "reports", "ago"], rows));
}
