// The text of an answer, token by token. With its guesses shown, each token is marked by where it
// comes from: by the style of its underline, by colour, and in words for those who hear it.
import {make, probability, visible} from "./dom.js";
import {Roving, reveal} from "./roving.js";

export const ORIGINS = {
  plain: "plain", accepted: "accepted guess", replacement: "replacement", bonus: "bonus token",
};

// The text with a mark at each line break, because a break alone can be neither seen nor hit.
function* textNodes(text) {
  for (const part of text.split(/(\n)/)) {
    if (part === "\n") yield make("i", {class: "mark", "aria-hidden": "true"}, "↵");
    if (part) yield part;
  }
}

// What is seen of a token: bytes of a character that is not complete yet have no text.
function shownOf(token) {
  if (token.text) return [...textNodes(token.text)];
  return [make("i", {class: "mark"}, token.piece ? visible(token.piece) : "·")];
}

export function classOf(token) {
  return `token ${token.origin}${token.sibling ? " sibling" : ""}`;
}

function labelOf(token) {
  const origin = token.sibling ? "accepted sibling" : ORIGINS[token.origin];
  const parts = [`${visible(token.piece)}, ${origin}`];
  const rejected = token.rejected.map((guess) => visible(guess.text));
  if (rejected.length) parts.push(`instead of ${rejected.join(" and ")}`);
  if (token.p !== undefined) parts.push(`p ${probability(token.p)}`);
  if (token.q !== undefined) parts.push(`q ${probability(token.q)}`);
  return parts.join(", ");
}

export class TokenList {
  // onSelect(token) is called when a token is pointed at or focused.
  constructor(list, onSelect = () => {}) {
    this.list = list;
    this.tokens = [];
    this.roving = new Roving(list, (index) => onSelect(this.tokens[index]));
  }

  clear() {
    this.tokens = [];
    this.roving.clear();
    this.list.replaceChildren();
  }

  // Tokens can be pointed at only while their guesses are shown.
  setActive(isActive) {
    if (!isActive) this.showRound(undefined);
    this.roving.setActive(isActive);
    this.roving.items.forEach((item, i) => this.name(item, this.tokens[i]));
  }

  name(item, token) {
    if (this.roving.isActive) item.setAttribute("aria-label", labelOf(token));
    else item.removeAttribute("aria-label");
  }

  // Adds the tokens of a round; a reader who is at the end stays there.
  add(tokens) {
    const {list} = this;
    const isAtEnd = list.scrollTop + list.clientHeight >= list.scrollHeight - 8;
    list.append(...tokens.map((token) => this.makeItem(token)));
    if (isAtEnd) list.scrollTop = list.scrollHeight;
  }

  makeItem(token) {
    const item = make("span", {class: classOf(token)});
    item.append(...token.rejected.map((guess) => make("s", {}, ...textNodes(guess.text))),
      ...shownOf(token));
    this.tokens.push(token);
    this.roving.add(item);
    this.name(item, token);
    return item;
  }

  // Marks the tokens of a round, and no others.
  showRound(round) {
    this.list.querySelectorAll(".in-round").forEach((item) => item.classList.remove("in-round"));
    round?.tokens.forEach((token) => {
      this.roving.items[token.number - 1]?.classList.add("in-round");
    });
  }

  reveal(round) {
    const item = this.roving.items[round.tokens[0]?.number - 1];
    if (item) reveal(this.list, item);
  }
}
