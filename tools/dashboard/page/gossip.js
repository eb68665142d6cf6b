// Gossiping nodes: their graph, and their numbers.
import { at, element, grid, list, plural, say, shape, short, show, some } from "./dom.js";
import { card } from "./members.js";

const MOST_CARDS = 8;
const FULL_SCORE = 1000;

function graphOf(nodes) {
  const place = new Map(nodes.map((node, i) => {
    const angle = (2 * Math.PI * i) / nodes.length - Math.PI / 2;
    const on = (radius) => ({ x: (220 + 1.25 * radius * Math.cos(angle)).toFixed(1), y: (170 + radius * Math.sin(angle)).toFixed(1) });
    return [node.name, { at: on(130), name: on(150), anchor: Math.abs(Math.cos(angle)) < 0.2 ? "middle" : Math.cos(angle) > 0 ? "start" : "end" }];
  }));
  const edges = nodes.flatMap((node) => list(node.peers).filter((peer) => place.has(peer.name)).map((peer) => {
    const from = place.get(node.name).at, to = place.get(peer.name).at;
    const line = shape("line", { x1: from.x, y1: from.y, x2: to.x, y2: to.y, class: peer.problem ? "problem" : "edge",
      "stroke-opacity": Math.max(0.1, Math.min(1, peer.score / FULL_SCORE)).toFixed(2) });
    line.append(shape("title", {}, `${node.name} to ${peer.name}: score ${short(peer.score)}, ${peer.fetched} fetched, ${peer.failed} failed`));
    return line;
  }));
  const dots = nodes.flatMap((node) => {
    const { at: dot, name, anchor } = place.get(node.name);
    const text = { x: name.x, y: name.y, dy: "0.35em", "text-anchor": anchor, class: node.error ? "problem" : "" };
    return [shape("circle", { cx: dot.x, cy: dot.y, r: 7, class: node.error ? "problem" : "node" }),
      shape("text", text, `${node.name}${node.error ? " ✕" : ""}`)];
  });
  const label = "Graph of the gossiping nodes; the table has its numbers";
  return shape("svg", { viewBox: "0 0 440 340", role: "img", "aria-label": label }, ...edges, ...dots);
}

export function showGossip(nodes) {
  for (const id of ["members-section", "tables-section"]) at(id).hidden = true;
  at("gossip-section").hidden = false;
  const failed = nodes.filter((node) => node.error);
  const problems = nodes.flatMap((node) => list(node.peers).filter((peer) => peer.problem).map((peer) => ({ node: node.name, ...peer })))
    .filter((peer) => !failed.some((node) => node.name === peer.name));
  const silent = failed.map((node) => node.name);
  say("verdict", failed.length > 0 ? `${some(silent)} ${failed.length === 1 ? "does" : "do"} not answer.`
    : problems.length > 0 ? `All nodes answer; ${plural(problems.length, "pair")} of them can't exchange.` : "All nodes answer.");
  at("verdict").className = failed.length > 0 ? "bad" : problems.length > 0 ? "warn" : "good";
  show("culprits", ...failed.slice(0, MOST_CARDS).map((node) => card(`${node.name} does not answer`, node.error)),
    ...problems.slice(0, MOST_CARDS).map((peer) => card(`${peer.node} gets nothing from ${peer.name}`, peer.problem)));
  say("summary", plural(nodes.length, "gossiping node"));
  show("graph", graphOf(nodes));
  const rows = nodes.map((node) => {
    const peers = list(node.peers);
    const low = peers.filter((peer) => peer.problem).map((peer) => peer.name);
    const [tone, state] = node.error ? ["bad", `no answer: ${node.error}`] : low.length > 0 ? ["warn", `problem with ${some(low)}`] : ["", "works"];
    const numbers = ["clock", "loss", "disagreement", "averaged"].map((name) => ({ number: short(node[name]) }));
    const scores = peers.map((peer) => `${peer.name} ${Math.round(peer.score)}`).join(", ");
    const transports = [...new Set(peers.map((peer) => peer.transport).filter(Boolean))].join(", ");
    return { tone, cells: [node.name, state, ...numbers, scores, transports, node.address] };
  });
  show("gossip", grid("Scores: from 10 to 1000; peers with higher scores are asked more often",
    ["node", "state", "clock", "loss", "disagreement", "averaged", "peers' scores", "transports", "address"], rows));
}
