// All that is known of one token (p and q, what it replaced, and what else the model would have
// said there) or of one round (its guesses with p and q, and how long its parts took).
import {BRANCH, GROWN, PARTS, placesOf} from "./answer.js";
import {count, make, milliseconds, plural, probability, visible} from "./dom.js";
import {classOf} from "./tokens.js";

const HINT = "Point at a token, or go through the answer with the arrow keys, to see how likely " +
  "it was and what else could have been there. Rounds tell their guesses and times.";
const FIXED = "Greedy and coupled choose before anything is compared, so p and q are 0 or 1.";

function meter(label, ratio, value, kind) {
  const fill = make("span", {class: `fill ${kind}`});
  fill.style.setProperty("--ratio", ratio);
  return make("div", {class: "meter"},
    make("span", {class: "name"}, label), make("span", {class: "track"}, fill),
    make("span", {class: "value"}, value));
}

function bar(label, value, kind) {
  return meter(label, value ?? 0, probability(value), kind);
}

function quoted(text) {
  return make("code", {}, visible(text));
}

function guessSentence(token) {
  const {round, place, sibling} = token;
  const where = `in round ${round.number}; it was accepted`;
  if (sibling === BRANCH) return `Guess ${place + 1} of the second chain ${where}.`;
  if (sibling >= GROWN) return `Guess ${place + 1} after a sibling ${where}.`;
  return sibling ? `Sibling ${sibling} of guess ${place + 1} ${where} in place of that guess.`
    : `Guess ${place + 1} of ${round.n_guesses} ${where}.`;
}

function bonusSentence(round) {
  if (round.guesses[round.n_kept - 1]?.sibling === BRANCH) {
    return `Guesses of the second chain of round ${round.number} were accepted, and the target's ` +
      "own token came after them.";
  }
  if (round.sibling) {
    const then = round.n_siblings_accepted > 1 ? "Then came what was guessed after it, and the"
      : "The";
    return `A sibling of guess ${round.sibling.place + 1} of round ${round.number} was accepted. ` +
      `${then} target's own token came on top.`;
  }
  const all = round.n_kept === 1 ? `The guess of round ${round.number} was`
    : `All ${count(round.n_kept)} guesses of round ${round.number} were`;
  return `${all} accepted, so the target's own token came on top.`;
}

function sentence(token) {
  switch (token.origin) {
  case "accepted":
    return guessSentence(token);
  case "replacement":
    return `It took the place of guess ${token.place + 1} in round ${token.round.number}.`;
  case "bonus":
    return bonusSentence(token.round);
  default:
    return `Round ${token.round.number} made no guess here.`;
  }
}

// Rules that fix the choice beforehand leave nothing to chance: p and q are 0 or 1.
function isFixed(token) {
  const values = [token.p, token.q, ...token.rejected.map((guess) => guess.q)]
    .filter((value) => value !== undefined);
  return values.length > 0 && values.every((value) => value === 0 || value === 1);
}

function chances(token) {
  // The server tells p of what it compared; of bonus and plain tokens the model's own is known.
  const rows = [token.p === undefined ? bar("p, model", token.model, "p")
    : bar("p, target", token.p, "p")];
  if (token.q !== undefined) rows.push(bar("q, draft", token.q, "q"));
  return make("div", {class: "chances"}, ...rows);
}

function rejectedPart(guess) {
  const rows = [bar("q, draft", guess.q, "q")];
  if (guess.p !== undefined) rows.unshift(bar("p, target", guess.p, "p"));
  return make("div", {class: "was"}, make("p", {}, guess.sibling ? "Rejected, too: " : "Rejected: ",
    make("s", {}, quoted(guess.text))), ...rows);
}

function alternativesPart(token) {
  if (!token.alternatives.length) return undefined;
  const body = make("tbody");
  for (const one of token.alternatives) {
    const fill = make("span", {class: "fill model"});
    fill.style.setProperty("--ratio", one.p);
    body.append(make("tr", one.text === token.piece ? {class: "chosen"} : {},
      make("th", {scope: "row"}, quoted(one.text)),
      make("td", {class: "track-cell"}, make("span", {class: "track"}, fill)),
      make("td", {class: "value"}, probability(one.p))));
  }
  return make("table", {class: "alternatives"},
    make("caption", {}, "The model's own, at temperature 1"), body);
}

// ---- a round ----

const FATES = {accepted: "accepted", rejected: "rejected", unseen: "untested"};

function head(...names) {
  return make("thead", {}, make("tr", {},
    ...names.map((name) => make("th", {scope: "col"}, name))));
}

// A sibling is shown below its guess, moved to the right.
function guessRow(guess) {
  const known = (value) => value === undefined ? "–" : probability(value);
  const chip = make("span", {class: `chip ${guess.fate}`}, visible(guess.text));
  const words = guess.sibling === BRANCH ? `second chain, guess ${guess.place + 1}: `
    : guess.sibling >= GROWN ? `after a sibling, guess ${guess.place + 1}: `
      : `sibling of guess ${guess.place + 1}: `;
  const name = guess.sibling ? [make("span", {class: "hidden"}, words), chip] : [chip];
  return make("tr", guess.sibling ? {class: "sibling"} : {},
    make("th", {scope: "row"}, ...name),
    make("td", {}, known(guess.q)), make("td", {}, known(guess.p)),
    make("td", {}, FATES[guess.fate]));
}

function guessesPart(round) {
  if (!round.guesses.length) return undefined;
  const rows = placesOf(round).flat().map(guessRow);
  return make("table", {class: "guesses"}, make("caption", {}, "Guesses"),
    head("guess", "q", "p", "then"), make("tbody", {}, ...rows));
}

function partsPart(times) {
  if (!times) return undefined;
  return make("div", {class: "chances parts"}, ...PARTS.map((part) =>
    meter(part, times.total ? times[part] / times.total : 0, milliseconds(times[part]), part)));
}

function roundSentence(round) {
  const guesses = round.n_guesses ? `${round.n_accepted} of ` +
    `${plural(round.n_guesses, "guess", "guesses")} accepted` : "No guesses";
  const siblings = round.n_siblings
    ? `, and ${round.n_siblings_accepted} of ${plural(round.n_siblings, "sibling")}` : "";
  const time = round.times ? ` in ${milliseconds(round.times.total)}` : "";
  return `${guesses}${siblings}; ${plural(round.tokens.length, "token")}${time}.`;
}

export class Inspector {
  constructor(place, title) {
    this.place = place;
    this.title = title;
    this.clear();
  }

  clear() {
    this.title.textContent = "Token";
    this.place.replaceChildren(make("p", {class: "note"}, HINT));
  }

  showRound(round) {
    this.title.textContent = `Round ${round.number}`;
    this.place.replaceChildren(...[make("p", {}, roundSentence(round)), partsPart(round.times),
      guessesPart(round)].filter(Boolean));
  }

  show(token) {
    this.title.textContent = "Token";
    this.place.replaceChildren(...[
      make("p", {class: "piece"}, make("span", {class: classOf(token)},
        visible(token.piece)), make("span", {class: "soft"}, ` id ${count(token.id)}`)),
      make("p", {}, sentence(token)),
      chances(token),
      isFixed(token) ? make("p", {class: "note"}, FIXED) : undefined,
      ...token.rejected.map(rejectedPart),
      alternativesPart(token),
    ].filter(Boolean));
  }
}
