// Who is stuck, the map of hosts, and the members' table and pairs.
import { at, bytes, chip, element, grid, list, plural, say, seconds, show, some } from "./dom.js";

const STUCK_SECONDS = 0.5;  // shorter waits are part of every round
const SILENT_SECONDS = 2;
let map = "";   // what the map shows
export const MOST_ROWS = 64;  // of a table that is updated each time
const MOST_MATRIX = 32, MOST_CARDS = 8, MOST_SENTENCES = 100;

const roles = (member) => ["worker", "server"].filter((role) => typeof member[role] === "number").map((role) => `${role} ${member[role]}`);
const nameOf = (member) => roles(member).join(", ") || `rank ${member.rank}`;
/** As `polyverso status` names members in its sentences. */
export const briefOf = (member) => roles(member)[0] ?? `rank ${member.rank}`;
export const namesOf = (members) => new Map(members.map((member) => [member.rank, briefOf(member)]));

/** The members that are awaited, by rank, as {who, what, holds: ranks, longest, waits}. */
function awaitedIn(waits) {
  const waiting = new Set(waits.map((wait) => wait.rank));
  const found = new Map();
  for (const wait of waits)
    for (const awaited of list(wait.awaited)) {
      const one = found.get(awaited.rank) ?? { ...awaited, holds: new Set(), longest: 0, waits: waiting.has(awaited.rank) };
      if (awaited.rank !== wait.rank) one.holds.add(wait.rank);
      one.longest = Math.max(one.longest, wait.seconds);
      found.set(awaited.rank, one);
    }
  return found;
}

/** Those that do not wait for others themselves: the ends of the chains. */
function endsOf(awaited) {
  const all = [...awaited.values()].filter((one) => one.holds.size > 0).sort((a, b) => b.holds.size - a.holds.size || b.longest - a.longest);
  const ends = all.filter((one) => !one.waits);
  return ends.length > 0 ? ends : all;  // a circle has no end
}

export function card(title, ...rest) {
  return element("li", { class: "card" }, element("strong", {}, title), ...rest.map((text) => element("span", {}, text)));
}

function cardOf(one, names) {
  const held = [...one.holds].sort((a, b) => a - b).map((rank) => names.get(rank) ?? `rank ${rank}`);
  const silence = one.silence_seconds;
  const heard = typeof silence !== "number" ? "" : silence > SILENT_SECONDS ? `Last heard ${seconds(silence)} ago.` : "Its process is alive.";
  return card(`${one.who} holds up ${some(held)}`, `It ${one.what}. ${heard}`, `The longest wait: ${seconds(one.longest)}.`);
}

/** Of a cluster with replicas: whose tables have no copy, or nobody to serve them. */
function cardsOfParts(parts, names) {
  return parts.filter((part) => part.backup === null).map((part) => part.served_by === null
    ? card(`The tables of server ${part.server} are lost`, "Calls on tables fail. Start again from the last checkpoint.")
    : card(`The tables of server ${part.server} have no back-up`, `They are served by ${names.get(part.served_by) ?? `rank ${part.served_by}`}. If it dies, too, they are lost.`,
      ...(typeof part.next_backup === "number" ? [`${names.get(part.next_backup) ?? `Rank ${part.next_backup}`} is being given a copy.`] : [])));
}

function verdict(status, members, waits, ends, lost) {
  const held = new Set(ends.flatMap((one) => [...one.holds])), waiting = new Set(waits.map((wait) => wait.rank));
  if (status.joining) return ["warn", `The cluster is forming: ${status.missing || "the master has not answered yet"}.`];
  const hold = ends.length === 1 ? "holds" : "hold";
  if (ends.length > 0) return ["bad", `${some(ends.map((one) => one.who))} ${hold} up ${held.size} of ${plural(members.length, "member")}.`];
  if (lost.length > 0) return ["bad", `${some(lost.map(briefOf))} ${lost.length === 1 ? "is" : "are"} lost. No call is waiting.`];
  const silent = members.filter((member) => member.state === "here" && !member.answered);
  const rest = waits.length === 0 ? " No call is waiting." : "";
  if (silent.length > 0) return ["warn", `${some(silent.map(briefOf))} ${silent.length === 1 ? "does" : "do"} not answer.${rest}`];
  if (waits.length > 0) return ["warn", `${plural(waiting.size, "member")} wait for their own values, which are in transit.`];
  return ["good", "Nobody waits longer than half a second."];
}

/** Shows the section "Who is stuck". Returns what the members' states depend on. */
export function showWaits(status, members) {
  const names = namesOf(members);
  const waits = list(status.waits).filter((wait) => wait.seconds >= STUCK_SECONDS);
  const lost = members.filter((member) => member.state === "lost");
  const awaited = awaitedIn(waits), ends = endsOf(awaited);
  const [tone, text] = verdict(status, members, waits, ends, lost);
  say("verdict", text);
  at("verdict").className = tone;
  show("culprits", ...ends.slice(0, MOST_CARDS).map((one) => cardOf(one, names)),
    ...lost.slice(0, MOST_CARDS).map((member) => card(`${nameOf(member)} is lost`, member.why, `Process ${member.pid} on ${member.host}.`)),
    ...cardsOfParts(list(status.parts), names).slice(0, MOST_CARDS));
  at("wait-details").hidden = waits.length === 0;
  say("wait-count", waits.length === 1 ? "The waiting call" : `All ${waits.length} waiting calls, the longest first`);
  show("waits", ...waits.slice(0, MOST_SENTENCES).map((wait) => element("li", {}, wait.text ?? "")));
  const longest = new Map();
  for (const wait of waits) if (!longest.has(wait.rank)) longest.set(wait.rank, wait);
  return { longest, ends: new Map(ends.map((one) => [one.rank, one])) };
}

function stateOf(member, { longest, ends }) {
  if (member.state === "lost") return { text: `lost: ${member.why}`, tone: "bad" };
  if (member.state !== "here") return { text: member.state, tone: "quiet" };
  if (ends.has(member.rank)) return { text: `holds up ${plural(ends.get(member.rank).holds.size, "member")}`, tone: "bad" };
  const wait = longest.get(member.rank);
  if (wait) return { text: `waits ${seconds(wait.seconds)} for ${some(list(wait.awaited).map((one) => one.who))}`, tone: "warn" };
  if (member.answered) return { text: member.phase === "ready" ? "here" : member.phase ?? "here", tone: "" };
  const heard = typeof member.silence_seconds === "number" ? `, last heard ${seconds(member.silence_seconds)} ago` : "";
  return { text: `no answer${heard}`, tone: "warn" };
}

const transports = (member) => Object.entries(member.transports ?? {}).map(([transport, count]) => `${transport} ${count}`).join(", ");

/** Each host with its members as chips, so that 256 of them fit on a screen. */
function showMap(members, states) {
  const told = JSON.stringify(members.map((member) => [member.host, nameOf(member), states.get(member.rank)]));
  if (told === map) return;
  map = told;
  const hosts = new Map();
  for (const member of members) hosts.set(member.host, [...(hosts.get(member.host) ?? []), member]);
  const narrow = members.length > MOST_MATRIX;
  show("hosts", ...[...hosts].map(([host, all]) => element("div", { class: "host" }, element("h3", {}, `${host}: ${plural(all.length, "member")}`),
    element("ul", { class: "chips" }, ...all.map((member) => {
      const { text, tone } = states.get(member.rank);
      const name = nameOf(member);
      const mark = { bad: " ✕", warn: " …", quiet: " ✓" }[tone] ?? "";  // not by colour alone
      const shown = narrow ? briefOf(member).replace(/^(.)\w* /, "$1") : name;
      return element("li", {}, chip(`${shown}${mark}`, tone, `${name}: ${text}`));
    })))));
}

/** `busiest`: the pairs with the most traffic, of a cluster that is too large for a matrix. `whole`: update tables of many rows, too. */
export function showMembers(members, waiting, busiest, whole) {
  at("members-section").hidden = members.length === 0;
  if (members.length > MOST_ROWS && !at("member-details").dataset.chosen) at("member-details").open = false;
  at("member-details").dataset.chosen = "yes";  // from here on, the user's choice
  const states = new Map(members.map((member) => [member.rank, stateOf(member, waiting)]));
  showMap(members, states);
  if (at("member-details").open && (whole || members.length <= MOST_ROWS))
    show("members", grid("Traffic of each member with all others",
      ["who", "state", "sent/s", "received/s", "in flight", "transports", "up", "host", "process"], members.map((member) => {
        const { text, tone } = states.get(member.rank);
        const traffic = ["sent_bytes_per_second", "received_bytes_per_second", "in_flight_bytes"].map((name) => ({ number: bytes(member[name]) }));
        const rest = [{ number: seconds(member.uptime_seconds) }, member.host, { number: String(member.pid) }];
        return { tone, cells: [nameOf(member), text, ...traffic, transports(member), ...rest] };
      })));
  showPairs(members, busiest);
}

/** A matrix for few members; for many, its cells would be too small to read, and the busiest pairs are listed. */
function showPairs(members, busiest) {
  at("pairs-details").hidden = members.length < 2;
  if (at("pairs-details").hidden || !at("pairs-details").open) return;
  if (busiest || members.length > MOST_MATRIX) return showBusiest(members, list(busiest));
  const most = Math.max(1, ...members.flatMap((member) => list(member.peers).map((peer) => peer.sent_bytes_per_second)));
  const rows = members.map((member) => {
    const by = new Map(list(member.peers).map((peer) => [peer.rank, peer]));
    return { cells: [briefOf(member), ...members.map((other) => {
      const peer = by.get(other.rank);
      if (!peer) return "";
      const heat = Math.ceil(4 * Math.min(1, peer.sent_bytes_per_second / most));
      return element("span", { class: `pair heat${heat}` }, peer.transport || "none", element("br"), `${bytes(peer.sent_bytes_per_second)}/s`);
    })] };
  });
  show("pairs", grid("From each member (row) to each other (column): transport, and bytes sent per second", ["", ...members.map(briefOf)], rows));
}

function showBusiest(members, busiest) {
  const names = namesOf(members);
  const nameAt = (rank) => names.get(rank) ?? `rank ${rank}`;
  const rows = busiest.map((pair) => ({ cells: [`${nameAt(pair.from)} to ${nameAt(pair.to)}`, pair.transport || "none",
    { number: bytes(pair.sent_bytes_per_second) }] }));
  show("pairs", grid("The busiest pairs", ["from and to", "transport", "sent/s"], rows));
}
