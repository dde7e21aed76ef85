// The page of the accounts: asks for the facts and shows them in place. Facts become text, never markup.

import { showAge, write } from "./ages.js";
import { showBooks } from "./books.js";
import { factsOf, keepFreshness, showAnswer } from "./freshness.js";
import { ask, keepLooking } from "./hub.js";
import { known, number, reason, text } from "./words.js";

const EVERY_MS = 2000;
const ICONS = { online: "●", offline: "■", unknown: "▲" };

const byId = (id) => document.getElementById(id);
const labels = [...document.querySelectorAll("thead th")].map((cell) => cell.textContent);
const rows = new Map();

function part(parent, tag, className) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  parent.append(element);
  return element;
}

function buildRow() {
  const line = document.createElement("tr");
  const cells = labels.map((label, index) => {
    const cell = document.createElement(index === 1 ? "th" : "td");
    if (index === 1) cell.scope = "row";
    cell.dataset.label = label;
    line.append(cell);
    return cell;
  });
  const badge = part(cells[0], "span", "badge");
  const icon = part(badge, "span", "icon");
  icon.setAttribute("aria-hidden", "true");
  const connection = cells[6];
  return {
    line,
    badge,
    icon,
    state: part(badge, "span", ""),
    why: part(cells[0], "span", "minor"),
    nickname: part(cells[1], "bdi", "nickname"),
    selfId: part(cells[1], "span", "minor"),
    shard: part(cells[2], "span", ""),
    end: part(cells[3], "span", ""),
    version: part(cells[3], "bdi", "minor"),
    lastEvent: part(cells[4], "time", ""),
    lastSent: part(cells[5], "time", ""),
    since: part(connection, "time", ""),
    heartbeat: part(connection, "span", "minor"),
    links: part(cells[7], "span", ""),
  };
}

function showRow(row, bot) {
  row.line.className = `state-${bot.state}`;
  write(row.icon, ICONS[bot.state] ?? "▲");
  write(row.state, text(`state.${bot.state}`));
  write(row.why, bot.reason === "connected" ? "" : reason(bot.reason, "bot."));
  write(row.nickname, bot.nickname);
  write(row.selfId, bot.self_id);
  write(row.shard, bot.shard_id);
  row.shard.title = text("bots.epoch", { epoch: bot.epoch });
  write(row.end, known(`end.${bot.end}`) ? text(`end.${bot.end}`) : bot.end);
  write(row.version, bot.end_version);
  // Its worker counts from the account's connect on: what was before, nobody here knows.
  const none = bot.connected_at === null ? "not_known" : "bots.not_yet";
  showAge(row.lastEvent, bot.last_event_at, "", none);
  showAge(row.lastSent, bot.last_sent_at, "", none);
  if (bot.state === "online") showAge(row.since, bot.connected_at, "bots.connected");
  else showAge(row.since, bot.last_seen_at, "bots.seen");
  write(row.heartbeat, text(`bots.heartbeat.${bot.heartbeat_online}`));
  write(row.links, number(bot.links));
}

function showRows(bots) {
  const body = byId("rows");
  const seen = new Set();
  for (const bot of bots) {
    const key = JSON.stringify([bot.self_id, bot.shard_id]);
    seen.add(key);
    let row = rows.get(key);
    if (row === undefined) {
      row = buildRow();
      rows.set(key, row);
      body.append(row.line);
    }
    row.rank = seen.size;
    showRow(row, bot);
  }
  for (const [key, row] of rows) {
    if (seen.has(key)) continue;
    row.line.remove();
    rows.delete(key);
  }
  // Rows never move under a pointer.
  if (!byId("table").matches(":hover")) putInOrder(body);
}

function putInOrder(body) {
  const wanted = [...rows.values()].sort((one, other) => one.rank - other.rank);
  wanted.forEach((row, index) => {
    if (body.children[index] !== row.line) body.insertBefore(row.line, body.children[index] ?? null);
  });
}

async function showEmpty() {
  const answer = await ask("/api/v1/shards");
  const shards = (answer.body?.shards ?? answer.body?.last_known?.shards ?? []).filter((shard) => shard.state === "live");
  const signature = JSON.stringify(shards.map((shard) => [shard.shard_id, shard.connect_url]));
  const empty = byId("empty");
  if (empty.dataset.shown === signature) return;
  empty.dataset.shown = signature;
  empty.replaceChildren();
  part(empty, "h2", "").textContent = text("bots.empty.title");
  part(empty, "p", "").textContent = text(shards.length ? "bots.empty.point" : "bots.empty.no_worker");
  const list = part(empty, "ul", "addresses");
  if (!shards.length) {
    part(part(list, "li", ""), "code", "").textContent = "pallas up --workers 2";
    return;
  }
  for (const shard of shards) {
    const item = part(list, "li", "");
    part(item, "code", "").textContent = shard.connect_url;
    part(item, "span", "minor").textContent = text("bots.empty.shard", { shard: shard.shard_id });
  }
  part(empty, "p", "note").textContent = text("bots.empty.token");
}

async function showBots(facts) {
  write(byId("counts"), text("bots.counts", facts.counts));
  showRows(facts.bots);
  const any = facts.bots.length > 0;
  if (!any) await showEmpty();
  byId("table").hidden = !any;
  byId("empty").hidden = any;
  byId("loading").hidden = true;
  byId("bots").setAttribute("aria-busy", "false");
}

async function look() {
  const [bots, books] = await Promise.all([ask("/api/v1/bots"), ask("/api/v1/books")]);
  const facts = factsOf(bots);
  if (facts) await showBots(facts);
  showBooks(books.kind === "fresh" ? books.body : books.body?.last_known, books.kind === "fresh");
  byId("bots").classList.toggle("dimmed", bots.kind !== "fresh");
  showAnswer(bots);
}

keepFreshness(0);
keepLooking(look, EVERY_MS);
