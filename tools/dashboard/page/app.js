// The page of `polyverso dashboard`: asks for a newer status four times a second (of many members once), and for the charts every few seconds.
import { at, list, plural, say } from "./dom.js";
import { refresh } from "./charts.js";
import { showGossip } from "./gossip.js";
import { chooseLog, refreshLog } from "./log.js";
import { MOST_ROWS, showMembers, showWaits } from "./members.js";
import { showGroups, showReports, showTables } from "./tables.js";

const STATUS_MS = 250, MANY_MS = 1000, CHARTS_MS = 2500, LOG_MS = 1000, LOST_MS = 2000;
const MANY_TURNS = 4;  // each cell takes time: tables of many rows are updated every fourth time
let newest = 0, turn = 0, shown = null;

function showCluster(status, whole) {
  const members = list(status.members);
  const count = (role) => members.filter((member) => member[role] !== null).length;
  const mode = status.sync ? "sync" : "async";
  say("summary", `${plural(count("worker"), "worker")}, ${plural(count("server"), "server")}, ${mode} mode; seen by rank ${status.seen_by}`);
  showMembers(members, showWaits(status, members), status.busiest, whole);
  showReports(members, whole);
  showTables(list(status.tables));
  showGroups(list(status.groups), members);
  chooseLog(members);
}

const showStatus = (status, whole) => (Array.isArray(status) ? showGossip(status) : showCluster(status, whole));

function connected(text) {
  say("connection", text);
  at("connection").className = text ? "bad" : "";
  document.body.classList.toggle("stale", Boolean(text));
}

async function update() {
  const response = await fetch(`api/status?after=${newest}`).catch(() => null);
  if (response === null) {
    connected("`polyverso dashboard` does not answer. If it has ended, or the run that started it, start it again and open its new link.");
    return LOST_MS;
  }
  if (response.status === 204) return STATUS_MS;
  if (!response.ok) {
    connected((await response.text()).trim());
    return LOST_MS;
  }
  const told = await response.json();
  newest = told.number;
  const age = told.status ? ` for ${Math.round(told.age_seconds)} s; the page shows the last one` : "";
  connected(told.error === null ? "" : `No answer${age}: ${told.error}`);
  if (!told.status) return STATUS_MS;
  showStatus((shown = told.status), turn++ % MANY_TURNS === 0);
  return list(told.status.members).length > MOST_ROWS ? MANY_MS : STATUS_MS;
}

/** Calls `work` for ever, with a pause after each, which `work` can return. */
async function repeat(work, pause) {
  for (;;) {
    const wished = await work().catch(console.error);
    await new Promise((resume) => setTimeout(resume, wished ?? pause));
  }
}

history.replaceState(null, "", location.pathname);  // the token shall not stay in the address bar
for (const id of ["member-details", "pairs-details", "report-details"]) at(id).addEventListener("toggle", () => shown && showStatus(shown, true));
repeat(update, STATUS_MS);
repeat(refresh, CHARTS_MS);
repeat(refreshLog, LOG_MS);
