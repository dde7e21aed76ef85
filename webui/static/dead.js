// The page of what ended as dead: asks for the facts and shows them in place. Facts become text, never markup.

import { showAge, write } from "./ages.js";
import { factsOf, keepFreshness, showAnswer } from "./freshness.js";
import { ask, keepLooking } from "./hub.js";
import { known, number, text } from "./words.js";

const EVERY_MS = 5000;
const SHOWN = 200;

const byId = (id) => document.getElementById(id);
const labels = [...document.querySelectorAll("thead th")].map((cell) => cell.textContent);
let shown = "";

const worded = (kind, code) => (known(`dead.${kind}.${code}`) ? text(`dead.${kind}.${code}`) : code);

function buildRow(row) {
  const line = document.createElement("tr");
  line.className = row.reason === "sent_unknown" ? "state-unknown" : "state-offline";
  const cells = labels.map((label) => {
    const cell = document.createElement("td");
    cell.dataset.label = label;
    line.append(cell);
    return cell;
  });
  const part = (parent, tag, className, content) => {
    const element = document.createElement(tag);
    element.className = className;
    element.textContent = content;
    parent.append(element);
    return element;
  };
  if (row.said_at === null) {
    part(cells[0], "span", "", "—");
  } else {
    part(cells[0], "span", "", new Date(row.said_at * 1000).toLocaleString(document.documentElement.lang));
    showAge(part(cells[0], "time", "minor", ""), row.said_at);
  }
  part(cells[1], "span", "badge", worded("what", row.reason));
  part(cells[1], "span", "minor", worded("cause", row.cause));
  part(cells[2], "bdi", "", row.group_id || text("dead.private"));
  part(cells[3], "bdi", "", row.bot_id || "—");
  part(cells[4], "bdi", "", row.handler || "—");
  part(cells[5], "span", "", row.shard_id || "—").title = text("bots.epoch", { epoch: row.epoch });
  return line;
}

function showRows(facts) {
  const few = facts.dead.length < facts.total;
  write(byId("counts"), text(few ? "dead.counts.latest" : "dead.counts", { kept: number(facts.total), shown: number(SHOWN) }));
  const signature = JSON.stringify(facts.dead);
  // Rebuilt only where something changed: a selection in it survives.
  if (signature !== shown) byId("rows").replaceChildren(...facts.dead.map(buildRow));
  shown = signature;
  byId("table").hidden = !facts.dead.length;
  byId("empty").hidden = facts.dead.length > 0;
  byId("loading").hidden = true;
  byId("dead").setAttribute("aria-busy", "false");
}

async function look() {
  const answer = await ask(`/api/v1/dead?limit=${SHOWN}`);
  const facts = factsOf(answer);
  if (facts) showRows(facts);
  byId("dead").classList.toggle("dimmed", answer.kind !== "fresh");
  showAnswer(answer);
}

keepFreshness(EVERY_MS / 1000);
keepLooking(look, EVERY_MS);
