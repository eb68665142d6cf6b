// The last lines of a member's log. The member is asked only while they are shown.
import { at, element, list, say, show } from "./dom.js";
import { briefOf } from "./members.js";

let told = "";  // the members of the choice

/** Fills the choice of members. */
export function chooseLog(members) {
  const names = JSON.stringify(members.map((member) => [member.rank, briefOf(member)]));
  if (names === told) return;
  told = names;
  at("log-details").hidden = members.length === 0;
  show("log-member", ...members.map((member) => element("option", { value: String(member.rank) }, `${briefOf(member)}, rank ${member.rank}`)));
}

export async function refreshLog() {
  if (!at("log-details").open || at("log-details").hidden || document.hidden) return;
  const rank = at("log-member").value;
  const response = await fetch(`api/log?rank=${encodeURIComponent(rank)}`).catch(() => null);
  if (response === null || !response.ok || rank !== at("log-member").value) return;
  const log = await response.json();
  const lines = list(log.lines);
  const left = log.left_out > 0 ? `\n(${log.left_out} further lines were not kept)` : "";
  const text = log.error ?? (lines.join("\n") + left || "This process has logged nothing.");
  const atEnd = at("log").scrollTop + at("log").clientHeight >= at("log").scrollHeight - 4;
  say("log", text);
  if (atEnd) at("log").scrollTop = at("log").scrollHeight;
}

at("log-member").addEventListener("change", () => refreshLog().catch(console.error));
at("log-details").addEventListener("toggle", () => refreshLog().catch(console.error));
