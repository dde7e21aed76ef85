// How old what a page shows is, and the banner over it when the hub or its sight of the cluster is gone.

import { age, clockTime, hubNow, renewAges, setClock, write } from "./ages.js";
import { text } from "./words.js";

const AGING_S = 4;
const STALE_S = 10;

const byId = (id) => document.getElementById(id);
let asOf = null;
let goneSince = null;
let lateBy = 0;

/** The facts of an answer, old ones where there are no new ones; null where there never were any. */
export function factsOf(answer) {
  if (answer.body?.served_at) setClock(answer.body.served_at);
  goneSince = answer.kind === "gone" ? (goneSince ?? hubNow()) : null;
  const facts = (answer.kind === "fresh" ? answer.body : answer.body?.last_known) ?? null;
  if (facts) asOf = facts.as_of;
  return facts;
}

/** Shows how fresh the page is after `answer`. */
export function showAnswer(answer) {
  const content = bannerOf(answer);
  const banner = byId("banner");
  write(banner, content);
  banner.hidden = content === "";
  showFreshness();
}

/** Lets the ages on the page grow from now on; `everyS` is how seldom the page asks. */
export function keepFreshness(everyS) {
  lateBy = everyS;
  setInterval(showFreshness, 1000);
}

function bannerOf(answer) {
  if (answer.kind === "fresh") return "";
  if (answer.kind === "gone") return text("banner.hub_gone", { since: clockTime(goneSince) });
  if (answer.kind === "error") return text("banner.error", { code: answer.body?.error?.code ?? "" });
  const since = clockTime(answer.body.since);
  if (asOf === null) return text("banner.blind_empty", { since });
  return text("banner.blind", { since, as_of: clockTime(asOf) });
}

function showFreshness() {
  renewAges();
  if (asOf === null) return;
  const seconds = hubNow() - asOf - lateBy;
  const badge = byId("as-of");
  badge.className = `as-of${seconds >= STALE_S ? " stale" : seconds >= AGING_S ? " aging" : ""}`;
  const words = text("as_of", { time: clockTime(asOf), age: age(asOf) });
  write(badge, seconds >= STALE_S ? `${text("stale")} · ${words}` : words);
}
