// The page of `polyverso dashboard`: shows the newest status twice a second, and the charts every five seconds.
import { at, bytes, element, grid, say, seconds, shape, short } from "./dom.js";
import { refresh } from "./charts.js";

const STUCK_SECONDS = 0.5;  // shorter waits are part of every round
const MOST_PAIRS = 32, MOST_SENTENCES = 100;
let newest = 0;

const list = (value) => (Array.isArray(value) ? value : []);
const name = (member) => [member.worker === null ? null : `worker ${member.worker}`, member.server === null ? null : `server ${member.server}`]
  .filter(Boolean).join(", ") || `rank ${member.rank}`;
const brief = (member) => (member.worker !== null ? `worker ${member.worker}` : name(member));
const some = (names) => (names.length <= 6 ? names.join(", ") : `${names.slice(0, 5).join(", ")} and ${names.length - 5} more`);

/** The members that are awaited and not themselves in a wait for another: the ends of the chains. */
function culprits(waits) {
  const waiting = new Set(waits.map((wait) => wait.rank));
  const found = new Map();
  for (const wait of waits)
    for (const awaited of list(wait.awaited)) {
      const one = found.get(awaited.rank) ?? { ...awaited, holds: new Set(), longest: 0, waits: waiting.has(awaited.rank) };
      one.holds.add(wait.rank);
      one.longest = Math.max(one.longest, wait.seconds);
      found.set(awaited.rank, one);
    }
  const all = [...found.values()].sort((a, b) => b.holds.size - a.holds.size || b.longest - a.longest);
  const ends = all.filter((one) => !one.waits);
  return ends.length > 0 ? ends : all;  // a circle has no end
}

function card(tone, title, ...rest) {
  return element("li", { class: `card ${tone}` }, element("strong", {}, title), ...rest.map((text) => element("span", {}, text)));
}

function showWaits(status, members) {
  const names = new Map(members.map((member) => [member.rank, brief(member)]));
  const waits = list(status.waits).filter((wait) => wait.seconds >= STUCK_SECONDS);
  const lost = members.filter((member) => member.state === "lost");
  const holding = culprits(waits);
  const cards = holding.slice(0, 8).map((one) => {
    const held = [...one.holds].sort((a, b) => a - b).map((rank) => names.get(rank) ?? `rank ${rank}`);
    const silent = typeof one.silence_seconds === "number" && one.silence_seconds > 2 ? `Last heard ${seconds(one.silence_seconds)} ago.` : "It is alive.";
    return card("bad", `${one.who} holds up ${some(held)}`, `It ${one.what}. ${silent}`, `The longest wait: ${seconds(one.longest)}.`);
  });
  cards.push(...lost.slice(0, 8).map((member) => card("bad", `${name(member)} is lost`, member.why, `Process ${member.pid} on ${member.host}.`)));
  at("culprits").replaceChildren(...cards);
  const ranks = new Set(waits.map((wait) => wait.rank));
  if (status.joining) say("verdict", `The cluster is forming: ${status.missing || "the master has not answered yet"}.`);
  else if (holding.length > 0) say("verdict", `${some(holding.map((one) => one.who))}: ${ranks.size} of ${members.length} members wait.`);
  else if (waits.length > 0) say("verdict", `${ranks.size} of ${members.length} members wait for their own values, which are in transit.`);
  else say("verdict", lost.length > 0 ? "No call is waiting, but members are lost." : "Nobody waits longer than half a second.");
  at("verdict").className = waits.length > 0 || lost.length > 0 ? "bad" : "good";
  at("wait-details").hidden = waits.length === 0;
  if (at("wait-details").hidden) return;
  say("wait-count", waits.length === 1 ? "The waiting call" : `All ${waits.length} waiting calls, the longest first`);
  at("waits").replaceChildren(...waits.slice(0, MOST_SENTENCES).map((wait) => element("li", {}, wait.text ?? "")));
}

function stateOf(member) {
  if (member.state !== "here") return { text: member.state === "lost" ? `lost: ${member.why}` : member.state, tone: member.state === "lost" ? "bad" : "quiet" };
  if (member.answered) return { text: member.phase ?? "here", tone: "" };
  return { text: member.silence_seconds === null ? "did not answer" : `silent for ${seconds(member.silence_seconds)}`, tone: "warn" };
}

function transports(member) {
  const counts = new Map();
  for (const peer of list(member.peers)) counts.set(peer.transport, (counts.get(peer.transport) ?? 0) + 1);
  return [...counts].map(([transport, count]) => `${transport || "none"} ${count}`).join(", ");
}

function showMembers(members) {
  at("members-section").hidden = members.length === 0;
  const hosts = new Map();
  for (const member of members) hosts.set(member.host, [...(hosts.get(member.host) ?? []), member]);
  at("hosts").replaceChildren(...[...hosts].map(([host, all]) => {
    const rows = all.map((member) => {
      const state = stateOf(member);
      return { tone: state.tone, cells: [name(member), state.text, { number: bytes(member.sent_bytes_per_second) }, { number: bytes(member.received_bytes_per_second) },
        transports(member), { number: seconds(member.uptime_seconds) }, { number: String(member.pid) }] };
    });
    const caption = `${host}: ${all.length} ${all.length === 1 ? "member" : "members"}`;
    return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
      grid(caption, ["who", "state", "sent/s", "received/s", "transports", "up", "process"], rows));
  }));
  showPairs(members);
}

/** A matrix for few members; for many, its cells would be too small to read. */
function showPairs(members) {
  at("pairs-details").hidden = members.length < 2 || members.length > MOST_PAIRS;
  if (at("pairs-details").hidden || !at("pairs-details").open) return;
  const rows = members.map((member) => {
    const by = new Map(list(member.peers).map((peer) => [peer.rank, peer]));
    return { cells: [name(member), ...members.map((other) => {
      const peer = by.get(other.rank);
      if (!peer) return "";
      return element("span", { title: `${bytes(peer.sent_bytes_per_second)} sent per second` }, peer.transport || "none");
    })] };
  });
  at("pairs").replaceChildren(grid("From each member (row) to each other (column)", ["", ...members.map(brief)], rows));
}

function showTables(tables) {
  at("tables-section").hidden = tables.length === 0;
  const rows = tables.map((table) => {
    const workers = list(table.workers);
    const sum = (what) => String(workers.reduce((total, worker) => total + worker[what], 0));
    // Rounds are counted by clocks where there are any, else by adds.
    const by = workers.some((worker) => worker.clock > 0) ? "clock" : "adds";
    const counts = workers.map((worker) => worker[by]);
    const least = Math.min(...counts), most = Math.max(...counts);
    const behind = workers.filter((worker) => worker[by] === least).map((worker) => `worker ${worker.worker}`);
    const range = least === most ? String(most) : `${least} to ${most}`;
    return { tone: "", cells: [table.name, table.what, table.consistency, { number: sum("adds") }, { number: sum("gets") },
      { number: workers.length === 0 ? "–" : by === "clock" ? range : "–" },
      most > least && behind.length < workers.length ? `${some(behind)}, by ${most - least} ${by === "clock" ? "clocks" : "adds"}` : "nobody"] };
  });
  at("tables").replaceChildren(grid("Operations of the workers", ["table", "what", "consistency", "adds", "gets", "clock", "furthest behind"], rows));
}

function showGroups(groups, members) {
  at("groups-section").hidden = groups.length === 0;
  const names = new Map(members.map((member) => [member.rank, brief(member)]));
  const rows = groups.map((group, i) => {
    const ranks = list(group.ranks);
    const told = ranks.filter((rank) => rank.operations !== null);
    const least = Math.min(...told.map((rank) => rank.operations)), most = Math.max(...told.map((rank) => rank.operations));
    const awaited = [...ranks.filter((rank) => rank.operations === null).map((rank) => `${names.get(rank.rank)} (no answer)`),
      ...(most > least ? told.filter((rank) => rank.operations === least).map((rank) => names.get(rank.rank)) : [])];
    return { tone: group.broken ? "bad" : "", cells: [`group ${i}`, some(ranks.map((rank) => names.get(rank.rank) ?? `rank ${rank.rank}`)), group.transport,
      { number: told.length === 0 ? "–" : String(most) }, awaited.length > 0 ? some(awaited) : "nobody", group.broken ? `broken: ${group.broken}` : "works"] };
  });
  at("groups").replaceChildren(grid("Groups and their operations", ["group", "members", "transport", "operations", "awaited", "state"], rows));
}

/** The last values as text: the charts are pictures. */
function showReports(members) {
  const rows = members.flatMap((member) => list(member.reports).map((report) => (
    { cells: [report.name, brief(member), { number: short(report.value) }, { number: String(report.count) }, { number: seconds(report.seconds) }] })));
  at("reports-section").hidden = rows.length === 0;
  if (rows.length > 0) at("report-numbers").replaceChildren(grid("The last reports", ["name", "who", "value", "reports", "ago"], rows));
}

function showGossip(nodes) {
  at("gossip-section").hidden = false;
  const place = new Map(nodes.map((node, i) => {
    const angle = (2 * Math.PI * i) / nodes.length - Math.PI / 2;
    return [node.name, { x: 200 + 150 * Math.cos(angle), y: 170 + 135 * Math.sin(angle) }];
  }));
  const edges = nodes.flatMap((node) => list(node.peers).filter((peer) => place.has(peer.name)).map((peer) => {
    const from = place.get(node.name), to = place.get(peer.name);
    const line = shape("line", { x1: from.x, y1: from.y, x2: to.x, y2: to.y, class: peer.problem ? "problem" : "edge",
      "stroke-opacity": Math.max(0.15, Math.min(1, peer.score / 1000)) });
    line.append(shape("title", {}, `${node.name} to ${peer.name}: score ${short(peer.score)}, ${peer.fetched} fetched, ${peer.failed} failed`));
    return line;
  }));
  const dots = nodes.flatMap((node) => {
    const { x, y } = place.get(node.name);
    return [shape("circle", { cx: x, cy: y, r: 7, class: node.error ? "problem" : "node" }), shape("text", { x, y: y - 12, "text-anchor": "middle" }, node.name)];
  });
  at("graph").replaceChildren(shape("svg", { viewBox: "0 0 400 340", role: "img", "aria-label": "Graph of the gossiping nodes; the table has its numbers" },
    ...edges, ...dots));
  const rows = nodes.map((node) => {
    const peers = list(node.peers);
    const low = peers.filter((peer) => peer.problem).map((peer) => peer.name);
    return { tone: node.error ? "bad" : "", cells: [node.name, node.address, { number: short(node.clock) }, { number: short(node.loss) },
      { number: short(node.disagreement) }, { number: short(node.averaged) }, peers.map((peer) => `${peer.name} ${short(peer.score)}`).join(", "),
      node.error ? `no answer: ${node.error}` : low.length > 0 ? `problem with ${some(low)}` : "works"] };
  });
  at("gossip").replaceChildren(grid("Gossiping nodes", ["node", "address", "clock", "loss", "disagreement", "averaged", "peers' scores", "state"], rows));
  const failed = nodes.filter((node) => node.error);
  say("verdict", failed.length > 0 ? `No answer of ${some(failed.map((node) => node.name))}.` : "All nodes answer.");
  at("verdict").className = failed.length > 0 ? "bad" : "good";
  at("culprits").replaceChildren(...failed.slice(0, 8).map((node) => card("bad", `${node.name} does not answer`, node.error)));
  say("summary", `${nodes.length} gossiping nodes`);
  for (const id of ["members-section", "tables-section"]) at(id).hidden = true;
}

function showCluster(status) {
  const members = list(status.members);
  const count = (role) => members.filter((member) => member[role] !== null).length;
  const plural = (number, what) => `${number} ${what}${number === 1 ? "" : "s"}`;
  say("summary", `${plural(count("worker"), "worker")}, ${plural(count("server"), "server")}, ${status.sync ? "sync" : "async"} mode; seen by rank ${status.seen_by}`);
  showWaits(status, members);
  showMembers(members);
  showTables(list(status.tables));
  showGroups(list(status.groups), members);
  showReports(members);
}

function connected(text) {
  say("connection", text);
  at("connection").className = text ? "bad" : "";
  document.body.classList.toggle("stale", Boolean(text));
}

async function update() {
  const response = await fetch(`api/status?after=${newest}`);
  if (response.status === 204) return;
  if (!response.ok) return connected((await response.text()).trim());
  const told = await response.json();
  newest = told.number;
  connected(told.error === null ? "" : `No answer${told.status ? ` for ${Math.round(told.age_seconds)} s; the page shows the last one` : ""}: ${told.error}`);
  if (told.status) Array.isArray(told.status) ? showGossip(told.status) : showCluster(told.status);
}

/** Calls `work` for ever, with a pause after each. */
async function repeat(work, pause) {
  for (;;) {
    try {
      await work();
    } catch {
      connected("The command `polyverso dashboard` does not answer. If it has ended, start it again and open its new link.");
    }
    await new Promise((resume) => setTimeout(resume, pause));
  }
}

history.replaceState(null, "", location.pathname);  // the token shall not stay in the address bar
repeat(update, 500);
repeat(refresh, 5000);
