// Small parts that all other files use: elements, and numbers as text.

const SVG = "http://www.w3.org/2000/svg";

// Gives an element attributes and children; true = an attribute without a value.
export function fill(element, attributes, children = []) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== undefined && value !== null && value !== false) {
      element.setAttribute(name, value);
    }
  }
  element.append(...children.filter((child) => child !== undefined && child !== null));
  return element;
}

// An element with attributes and children; a string becomes text, never markup.
export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function makeSvg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

// A small button.
export function button(name, onClick, attributes = {}) {
  const own = make("button", {type: "button", class: "small", ...attributes}, name);
  own.addEventListener("click", onClick);
  return own;
}

export function byId(id) {
  return document.getElementById(id);
}

// Shows a sentence, or hides its place where there is none. One that is there already is not set
// again, because screen readers would read it again.
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
  element.hidden = !text;
}

// Scrolls the page so far that an element is not under a panel that lies over it.
export function uncover(element, panel) {
  const own = element.getBoundingClientRect(), over = panel.getBoundingClientRect();
  const isCovered = own.bottom > over.top && own.top < over.bottom && own.left < over.right &&
    own.right > over.left;
  if (isCovered) scrollBy(0, own.bottom - over.top + 12);
}

// Without TLS browsers give the clipboard to pages of this machine only; for all others there is
// the old way, by a selection. False: neither is allowed.
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const had = document.activeElement, area = make("textarea", {class: "hidden"});
    area.value = text;
    document.body.append(area);
    area.select();
    const isCopied = document.execCommand("copy");
    area.remove();
    had?.focus({preventScroll: true});
    return isCopied;
  }
}

// ---- numbers ----

function digits(value) {
  const size = Math.abs(value);
  return size >= 100 ? 0 : size >= 10 ? 1 : 2;
}

// Three digits or more, as 0.42, 12.3, 4,567.
export function number(value) {
  if (value === undefined || !Number.isFinite(value)) return "–";
  return value.toLocaleString("en", {
    minimumFractionDigits: digits(value), maximumFractionDigits: digits(value),
  });
}

export function count(value) {
  return value === undefined ? "–" : value.toLocaleString("en");
}

export function milliseconds(us) {
  return us === undefined ? "–" : `${number(us / 1000)} ms`;
}

export function percent(ratio) {
  if (ratio === undefined || !Number.isFinite(ratio)) return "–";
  return `${(100 * ratio).toLocaleString("en", {maximumFractionDigits: ratio < 0.1 ? 1 : 0})} %`;
}

// Of p and q; small ones keep their size.
export function probability(value) {
  if (value === undefined) return "unknown";
  if (value > 0 && value < 0.001) return value.toExponential(1);
  return value.toFixed(3);
}

export function plural(n, one, many = `${one}s`) {
  return `${count(n)} ${n === 1 ? one : many}`;
}

// A token's text where blanks matter.
export function visible(text) {
  return text.replaceAll(" ", "␣").replaceAll("\n", "↵").replaceAll("\t", "⇥");
}
