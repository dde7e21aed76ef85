// The ledger in two lines: what arrived, what became of it, and whether that adds up.

import { showAge, write } from "./ages.js";
import { number, reason, text } from "./words.js";

const byId = (id) => document.getElementById(id);

/** Shows the books; without `books` only says that what is shown is old. */
export function showBooks(books, fresh) {
  const card = byId("books");
  card.classList.toggle("dimmed", !fresh);
  if (!books) return;
  card.hidden = false;
  showVerdict(books);
  const { total, ended } = books;
  const pending = total.pending ? text("books.pending", shown(total)) : "";
  write(byId("books-arrived"), text("books.arrived", shown(total)) + pending);
  write(byId("books-ended"), text("books.ended", shown(ended)));
  showDead(books.dead_kept_by);
  const notes = [
    byReason("books.refused", total.refused_by),
    byReason("books.copies", total.copies_by),
    byReason("books.yielded", ended.yielded_by),
    byReason("books.dropped", ended.dropped_by),
    byReason("books.dead", ended.dead_by),
    books.unaccounted ? text("books.unaccounted", { unaccounted: number(books.unaccounted) }) : "",
  ];
  write(byId("books-note"), notes.filter(Boolean).join("\n"));
}

/** Says what is listed of the dead: those that surely were not answered, and those that may have been. */
function showDead(kept) {
  const line = byId("books-doubt");
  const counted = [
    ["dead.lost", kept.holder_lost ?? 0],
    ["dead.doubt", kept.sent_unknown ?? 0],
  ].filter(([, count]) => count > 0);
  const sentences = counted.map(([key, count]) => text(count === 1 ? `${key}.one` : key, { number: number(count) }));
  write(line.querySelector("span"), sentences.join(" "));
  line.hidden = !counted.length;
}

function showVerdict(books) {
  const line = byId("books-verdict");
  if (!line.firstChild) {
    for (const [tag, className] of [["span", "badge"], ["time", "minor"]]) {
      const element = document.createElement(tag);
      element.className = className;
      line.append(element, " ");
    }
  }
  const [badge, time] = line.children;
  badge.className = `badge ${books.balanced ? "good" : "bad"}`;
  const words = books.balanced
    ? `✓ ${text("books.balanced")}`
    : `✗ ${text("books.unbalanced", { difference: number(books.difference) })}`;
  write(badge, words);
  showAge(time, books.as_of);
}

function shown(columns) {
  return Object.fromEntries(
    Object.entries(columns)
      .filter(([, value]) => typeof value === "number")
      .map(([name, value]) => [name, number(value)]),
  );
}

function byReason(column, counts) {
  const reasons = Object.entries(counts).filter(([, count]) => count > 0);
  if (!reasons.length) return "";
  const list = reasons.map(([code, count]) => `${reason(code)} ${number(count)}`).join(" · ");
  return text("books.by", { column: text(column), reasons: list });
}
