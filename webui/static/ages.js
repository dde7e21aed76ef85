// Ages of facts, by the hub's clock: the reader's own clock may be wrong by hours.

import { language, text } from "./words.js";

const relative = new Intl.RelativeTimeFormat(language, { style: "narrow", numeric: "always" });
const timeOfDay = new Intl.DateTimeFormat(language, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const fullTime = new Intl.DateTimeFormat(language, { dateStyle: "medium", timeStyle: "medium" });

const STEPS = [
  ["second", 1, 60],
  ["minute", 60, 60],
  ["hour", 3600, 48],
  ["day", 86400, Infinity],
];

let hubMinusLocal = 0;

const localNow = () => performance.now() / 1000;

/** Takes over the hub's clock from an answer that was just received. */
export function setClock(servedAt) {
  hubMinusLocal = servedAt - localNow();
}

/** The hub's time in Unix seconds. */
export function hubNow() {
  return hubMinusLocal === 0 ? Date.now() / 1000 : localNow() + hubMinusLocal;
}

/** How long ago `at` was, in words. */
export function age(at) {
  const seconds = Math.max(0, hubNow() - at);
  for (const [unit, size, limit] of STEPS) {
    if (seconds / size < limit) return relative.format(-Math.floor(seconds / size), unit);
  }
  return "";
}

/** The time of day of `at` in the reader's zone. */
export function clockTime(at) {
  return timeOfDay.format(new Date(at * 1000));
}

/** Makes `element` show the age of `at` through the sentence `key`, from now on; `none` where there is no time. */
export function showAge(element, at, key = "", none = "not_known") {
  if (at === null || at === undefined) {
    delete element.dataset.at;
    element.removeAttribute("datetime");
    element.removeAttribute("title");
    write(element, text(none));
    return;
  }
  if (element.dataset.at !== String(at)) {
    const date = new Date(at * 1000);
    element.dataset.at = String(at);
    element.dateTime = date.toISOString();
    element.title = `${fullTime.format(date)} (${date.toISOString().slice(0, 19)}Z)`;
  }
  element.dataset.sentence = key;
  renew(element);
}

/** Lets every age on the page grow. */
export function renewAges() {
  for (const element of document.querySelectorAll("time[data-at]")) renew(element);
}

/** Writes text only where it changed, so that a selection in it survives. */
export function write(element, content) {
  if (element.textContent !== content) element.textContent = content;
}

function renew(element) {
  const words = age(Number(element.dataset.at));
  write(element, element.dataset.sentence ? text(element.dataset.sentence, { age: words }) : words);
}
