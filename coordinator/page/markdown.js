// Markdown as elements, made of text nodes alone: whatever a model writes, nothing of it becomes
// markup. Headings, lists, quotations, tables, code, emphasis, and links to the web; pictures are
// links, because the page loads nothing from elsewhere. A text that grows is drawn again only from
// the block on that has changed.
import {make} from "./dom.js";
import {copyButton} from "./snippets.js";

const FENCE = /^ {0,3}(`{3,}|~{3,})(.*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:\s(.*))?$/;
const RULE = /^ {0,3}(?:(?:\*\s*){3,}|(?:-\s*){3,}|(?:_\s*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?:\s+|$)/;
const TABLE_RULE = /^(?:\|\s*)?:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?$/;
const DEEPEST = 8; // quotations and lists within each other

// ---- within a line ----

// The first of what may begin at this place wins. Each has its end on the same line or paragraph.
const INLINE = new RegExp([
  /\\([!-/:-@[-`{-~])/, // 1: an escaped mark
  /(`+)([^`]|[^`][^]*?[^`])\2(?!`)/, // 2, 3: code
  /!?\[([^[\]]*)\]\(\s*<?([^\s()<>]*(?:\([^\s()<>]*\)[^\s()<>]*)*)>?(?:\s+"[^"]*")?\s*\)/, // 4, 5
  /\*\*(?=\S)([^*]*(?:\*(?!\*)[^*]*)*)\*\*(?!\*)/, // 6: strong
  /(?<![\w_])__(?=\S)([^_]+)__(?![\w_])/, // 7: strong
  /\*(?=[^\s*])([^*]+)\*/, // 8: emphasis
  /(?<![\w_])_(?=[^\s_])([^_]+)_(?![\w_])/, // 9: emphasis
  /~~(?=\S)([^~]+)~~/, // 10: struck out
  /https?:\/\/[^\s<>()"'`]*[^\s<>()"'`.,;:!?*_]/, // an address
].map((part) => part.source).join("|"), "g");

function linkTo(address, children) {
  const isOutside = /^(?:https?:\/\/|mailto:)/i.test(address);
  if (!isOutside) return make("span", {}, ...children);
  return make("a", {href: address, target: "_blank", rel: "noopener noreferrer nofollow"},
    ...children);
}

const WRAPS = ["strong", "strong", "em", "em", "del"]; // of 6 to 10

function elementOf(match, depth) {
  const inner = (text) => inlineOf(text, depth + 1);
  const [, escaped, , code, label, address] = match, wrapped = match.slice(6, 11);
  const i = wrapped.findIndex((text) => text !== undefined);
  if (i >= 0) return make(WRAPS[i], {}, ...inner(wrapped[i]));
  if (escaped !== undefined) return escaped;
  if (code !== undefined) return make("code", {}, code.replace(/^ (.*\S.*) $/s, "$1"));
  if (label !== undefined) return linkTo(address, label ? inner(label) : [address]);
  return linkTo(match[0], [match[0]]);
}

// The parts of a line: texts and elements.
function inlineOf(text, depth = 0) {
  if (depth > DEEPEST) return [text];
  const parts = [];
  let at = 0;
  for (const match of text.matchAll(INLINE)) {
    if (match.index > at) parts.push(text.slice(at, match.index));
    parts.push(elementOf(match, depth));
    at = match.index + match[0].length;
  }
  if (at < text.length) parts.push(text.slice(at));
  return parts;
}

// ---- blocks ----

function isBlank(line) {
  return !line.trim();
}

function indentOf(line) {
  return line.length - line.trimStart().length;
}

// The marks and the language of a line that begins code; marks of ` alone may have one on the line
// again, which is code within a text.
function fenceOf(line) {
  const [, marks, rest] = FENCE.exec(line) ?? [];
  return !marks || (marks[0] === "`" && rest.includes("`")) ? undefined
    : {marks, language: rest.trim().split(" ")[0]};
}

function isClosing(line, {marks}) {
  const own = line.trim();
  return own.length >= marks.length && own === marks[0].repeat(own.length);
}

// A fence that is not closed yet goes on to the end.
function takeFence(lines, at) {
  const fence = fenceOf(lines[at]);
  let end = at + 1;
  while (end < lines.length && !isClosing(lines[end], fence)) end++;
  return Math.min(end + 1, lines.length);
}

function takeWhile(lines, at, goesOn) {
  let end = at + 1;
  while (end < lines.length && goesOn(lines[end], end)) end++;
  return end;
}

function takeList(lines, at) {
  const own = indentOf(lines[at]);
  return takeWhile(lines, at, (line, i) => {
    if (isBlank(line)) {
      const next = lines[i + 1];
      return next !== undefined && (ITEM.test(next) || indentOf(next) > own) && !isBlank(next);
    }
    if (ITEM.test(line) && !RULE.test(line)) return true;
    return indentOf(line) > own || !(isBlank(lines[i - 1]) || beginsBlock(lines, i));
  });
}

function isTable(lines, at) {
  return lines[at].includes("|") && at + 1 < lines.length && lines[at + 1].includes("-") &&
    lines[at + 1].includes("|") && TABLE_RULE.test(lines[at + 1].trim());
}

function beginsBlock(lines, at) {
  const line = lines[at];
  return fenceOf(line) !== undefined || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) ||
    ITEM.test(line) || isTable(lines, at);
}

// The kind of the block at a line, and the line after it.
function blockAt(lines, at) {
  const line = lines[at];
  if (fenceOf(line)) return ["fence", takeFence(lines, at)];
  if (HEADING.test(line)) return ["heading", at + 1];
  if (RULE.test(line)) return ["rule", at + 1];
  if (QUOTE.test(line)) return ["quote", takeWhile(lines, at, (one) => QUOTE.test(one))];
  if (ITEM.test(line)) return ["list", takeList(lines, at)];
  if (isTable(lines, at)) {
    return ["table", takeWhile(lines, at, (one) => one.includes("|") && !isBlank(one))];
  }
  return ["text", takeWhile(lines, at, (one, i) => !isBlank(one) && !beginsBlock(lines, i))];
}

// Blocks of a text: [{kind, lines}].
function blocksOf(lines) {
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    if (isBlank(lines[at])) {
      at++;
      continue;
    }
    const [kind, end] = blockAt(lines, at);
    blocks.push({kind, lines: lines.slice(at, end)});
    at = end;
  }
  return blocks;
}

function codeBlock(lines) {
  const fence = fenceOf(lines[0]), name = fence.language || "text";
  const isClosed = lines.length > 1 && isClosing(lines.at(-1), fence);
  const code = lines.slice(1, isClosed ? -1 : undefined).join("\n");
  return make("div", {class: "code"},
    make("div", {class: "bar"}, make("span", {class: "soft"}, name),
      copyButton("Copy the code", () => code)),
    make("pre", {tabindex: 0, role: "group", "aria-label": `Code, ${name}`},
      make("code", {}, code)));
}

// Items of a list: the lines of each, moved to the left by its mark.
function itemsOf(lines) {
  const own = indentOf(lines[0]), items = [];
  for (const line of lines) {
    const mark = ITEM.exec(line);
    if (mark && indentOf(line) <= own + 1) items.push({width: mark[0].length, lines: []});
    const item = items.at(-1);
    const isFirst = !item.lines.length;
    item.lines.push(line.slice(isFirst ? item.width : Math.min(item.width, indentOf(line))));
  }
  return items.map((item) => item.lines);
}

function listOf(lines, depth) {
  const [, , mark] = ITEM.exec(lines[0]);
  const isNumbered = /\d/.test(mark);
  const items = itemsOf(lines).map((own) => {
    const parts = blocksOf(own);
    const isPlain = parts.length && parts[0].kind === "text";
    return make("li", {}, ...(isPlain ? inlineOf(parts[0].lines.join("\n")) : []),
      ...parts.slice(isPlain ? 1 : 0).map((part) => blockOf(part, depth + 1)));
  });
  return make(isNumbered ? "ol" : "ul",
    isNumbered && parseInt(mark, 10) !== 1 ? {start: parseInt(mark, 10)} : {}, ...items);
}

function cellsOf(line) {
  return line.trim().replace(/^\|/, "").replace(/\|$/, "").split(/(?<!\\)\|/)
    .map((cell) => cell.trim().replaceAll("\\|", "|"));
}

function tableOf(lines) {
  const row = (line, tag, more) => make("tr", {}, ...cellsOf(line).map((cell) =>
    make(tag, more, ...inlineOf(cell))));
  return make("div", {class: "table", tabindex: 0, role: "group", "aria-label": "Table"},
    make("table", {}, make("thead", {}, row(lines[0], "th", {scope: "col"})),
      make("tbody", {}, ...lines.slice(2).map((line) => row(line, "td", {})))));
}

// Too deep a block is its text.
function blockOf({kind, lines}, depth = 0) {
  if (depth > DEEPEST) return make("p", {}, lines.join("\n"));
  switch (kind) {
  case "fence":
    return codeBlock(lines);
  case "heading": {
    const [, marks, text] = HEADING.exec(lines[0]);
    const level = Math.min(marks.length + 2, 6);
    return make("p", {class: "heading", role: "heading", "aria-level": level},
      ...inlineOf((text ?? "").trim().replace(/ #+$/, "")));
  }
  case "rule":
    return make("hr");
  case "quote":
    return make("blockquote", {}, ...blocksOf(lines.map((line) => line.replace(QUOTE, "")))
      .map((block) => blockOf(block, depth + 1)));
  case "list":
    return listOf(lines, depth);
  case "table":
    return tableOf(lines);
  default:
    return make("p", {}, ...inlineOf(lines.map((line) => line.trim()).join("\n")));
  }
}

// Shows a text in a place that holds nothing else. What is there already of the same text stays.
export class Markdown {
  constructor(place) {
    this.place = place;
    this.shown = []; // sources of the blocks
  }

  show(text) {
    const blocks = blocksOf(text.replaceAll("\r\n", "\n").replaceAll("\t", "    ").split("\n"));
    const sources = blocks.map((block) => block.kind + block.lines.join("\n"));
    let same = 0;
    while (same < sources.length && sources[same] === this.shown[same]) same++;
    while (this.place.children.length > same) this.place.lastElementChild.remove();
    this.place.append(...blocks.slice(same).map((block) => blockOf(block)));
    this.shown = sources;
  }
}
