// The words of the page: the catalogue of its language, which the server wrote into it.

const words = JSON.parse(document.getElementById("words").textContent);

export const language = document.documentElement.lang;

const plainNumber = new Intl.NumberFormat(language);

/** The sentence of `key` with `{fields}` filled in; the key itself where the catalogue has none. */
export function text(key, fields = {}) {
  const sentence = Object.hasOwn(words, key) ? words[key] : key;
  return sentence.replace(/\{(\w+)\}/g, (_, name) => String(fields[name] ?? ""));
}

/** The sentence of a reason code; the code itself where it has none yet. */
export function reason(code, family = "") {
  const key = `reason.${family}${code}`;
  return Object.hasOwn(words, key) ? words[key] : code;
}

/** Whether the catalogue has `key`. */
export function known(key) {
  return Object.hasOwn(words, key);
}

/** A number as the reader writes it. */
export function number(value) {
  return plainNumber.format(value);
}
