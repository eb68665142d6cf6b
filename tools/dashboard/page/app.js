// The page of `polyverso dashboard`: asks for a newer status four times a second, and for the charts every few seconds.
import { at, list, plural, say } from "./dom.js";
import { refresh } from "./charts.js";
import { showGossip } from "./gossip.js";
import { showMembers, showWaits } from "./members.js";
import { showGroups, showReports, showTables } from "./tables.js";

const STATUS_MS = 250, CHARTS_MS = 2500;
let newest = 0, shown = null;

function showCluster(status) {
  const members = list(status.members);
  const count = (role) => members.filter((member) => member[role] !== null).length;
  const mode = status.sync ? "sync" : "async";
  say("summary", `${plural(count("worker"), "worker")}, ${plural(count("server"), "server")}, ${mode} mode; seen by rank ${status.seen_by}`);
  showMembers(members, showWaits(status, members));
  showReports(members);
  showTables(list(status.tables));
  showGroups(list(status.groups), members);
}

const showStatus = (status) => (Array.isArray(status) ? showGossip(status) : showCluster(status));

function connected(text) {
  say("connection", text);
  at("connection").className = text ? "bad" : "";
  document.body.classList.toggle("stale", Boolean(text));
}

async function update() {
  const response = await fetch(`api/status?after=${newest}`).catch(() => null);
  if (response === null)
    return connected("The command `polyverso dashboard` does not answer. If it has ended, start it again and open its new link.");
  if (response.status === 204) return;
  if (!response.ok) return connected((await response.text()).trim());
  const told = await response.json();
  newest = told.number;
  const age = told.status ? ` for ${Math.round(told.age_seconds)} s; the page shows the last one` : "";
  connected(told.error === null ? "" : `No answer${age}: ${told.error}`);
  if (!told.status) return;
  shown = told.status;
  showStatus(shown);
}

/** Calls `work` for ever, with a pause after each. */
async function repeat(work, pause) {
  for (;;) {
    try {
      await work();
    } catch (failed) {
      console.error(failed);
    }
    await new Promise((resume) => setTimeout(resume, pause));
  }
}

history.replaceState(null, "", location.pathname);  // the token shall not stay in the address bar
for (const id of ["member-details", "pairs-details", "report-details"]) at(id).addEventListener("toggle", () => shown && showStatus(shown));
repeat(update, STATUS_MS);
repeat(refresh, CHARTS_MS);
