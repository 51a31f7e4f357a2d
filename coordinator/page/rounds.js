// The timeline of rounds: what was guessed and accepted, and how long each part took. All bars have
// one scale; a round that is far longer than most is cut off and says so.
import {PARTS, placesOf} from "./answer.js";
import {count, make, milliseconds, number, percent, plural, visible} from "./dom.js";
import {Roving, reveal} from "./roving.js";

// The parts of a round in words, and where one that takes most of the time comes from.
const PART_WORDS = {
  draft: "guessing", wire: "messages to the ranks and back", verify: "computing in the target",
  collective: "ranks waiting for each other", rest: "planning and accepting",
};
const MOST_RATIO = 0.5;
const CAUSES = {
  draft: "A smaller draft, or fewer guesses (K), would be faster.",
  wire: "The network between the coordinator and the ranks is slow, or the machine is busy.",
  collective: "Ranks wait for the slowest one: there are more threads than free cores, or the " +
    "network between the ranks is slow.",
  rest: "The coordinator's machine is busy.",
};

const CUT_RATIO = 0.9; // of the rounds set the scale, with room for some longer ones
const CUT_ROOM = 1.25;

// "62 % computing in the target, 21 % ...": the parts that take a tenth or more, the longest first.
export function wordsOfParts(times) {
  const total = PARTS.reduce((sum, part) => sum + times[part], 0);
  const parts = PARTS.filter((part) => times[part] > 0.1 * total)
    .sort((a, b) => times[b] - times[a]);
  const words = parts.map((part) => `${percent(times[part] / total)} ${PART_WORDS[part]}`);
  const most = parts[0] && times[parts[0]] > MOST_RATIO * total ? CAUSES[parts[0]] : undefined;
  return words.length ? `${words.join(", ")}.${most ? ` ${most}` : ""}` : "";
}

export function partLegend() {
  return [...PARTS.map((part) => make("li", {}, make("span", {class: `swatch ${part}`}),
    part)),
  make("li", {class: "cut"}, make("span", {class: "stack swatch rest"}), "cut off: far longer")];
}

function chip(kind, text) {
  return make("span", {class: `chip ${kind}`}, visible(text));
}

// The guesses in order, siblings below theirs, and the token that the round added itself.
function chipsOf(round) {
  const chips = placesOf(round).map((place) => {
    const own = place.map((guess) => chip(guess.fate, guess.text));
    return own.length > 1 ? make("span", {class: "place"}, ...own) : own[0];
  });
  const last = round.tokens.at(-1);
  if (last && last.origin !== "accepted") chips.push(chip(last.origin, last.text || last.piece));
  return chips;
}

function labelOf(round) {
  const guesses = round.n_guesses
    ? `${plural(round.n_guesses, "guess", "guesses")}, ${round.n_accepted} accepted` : "no guesses";
  const siblings = round.n_siblings
    ? `, ${plural(round.n_siblings, "sibling")}, ${round.n_siblings_accepted} accepted` : "";
  const words = [`Round ${round.number}: ${guesses}${siblings}, ` +
    plural(round.tokens.length, "token")];
  if (round.times) {
    words.push(milliseconds(round.times.total));
    words.push(...PARTS.map((part) => `${part} ${milliseconds(round.times[part])}`));
  }
  return words.join(", ");
}

function barOf(times) {
  const bar = make("span", {class: "stack"});
  for (const part of PARTS) {
    const piece = make("span", {class: `part ${part}`});
    piece.style.setProperty("--us", times[part]);
    bar.append(piece);
  }
  return bar;
}

export class Timeline {
  // onSelect(round) is called when a round is pointed at or focused.
  constructor(list, onSelect) {
    this.list = list;
    this.rounds = [];
    this.totals = []; // ascending
    this.roving = new Roving(list, (index) => {
      this.showRound(this.rounds[index]);
      onSelect(this.rounds[index]);
    });
  }

  clear() {
    this.rounds = [];
    this.totals = [];
    this.roving.clear();
    this.list.replaceChildren();
  }

  // Adds rounds; a reader who is at the end stays there. Where the list ends is asked for once for
  // all of them, because each answer lays the whole list out.
  add(rounds) {
    const {list} = this;
    const isAtEnd = list.scrollTop + list.clientHeight >= list.scrollHeight - 8;
    list.append(...rounds.map((round) => this.makeRow(round)));
    this.rescale();
    if (isAtEnd) list.scrollTop = list.scrollHeight;
  }

  makeRow(round) {
    const row = make("li", {"aria-label": labelOf(round)},
      make("span", {class: "number"}, String(round.number)),
      make("span", {class: "chips"}, ...chipsOf(round)),
      round.times ? barOf(round.times) : undefined,
      make("span", {class: "total"}, milliseconds(round.times?.total)));
    this.rounds.push(round);
    this.roving.add(row);
    if (round.times) {
      row.dataset.total = round.times.total;
      this.totals.push(round.times.total);
    }
    return row;
  }

  rescale() {
    if (!this.totals.length) return;
    this.totals.sort((a, b) => a - b);
    const typical = this.totals[Math.floor(CUT_RATIO * (this.totals.length - 1))];
    this.full = Math.min(CUT_ROOM * typical, this.totals.at(-1));
    this.list.style.setProperty("--full", this.full || 1);
  }

  // Marks bars that are cut off; when all rounds are there, because the scale moves until then.
  finish() {
    for (const row of this.roving.items) {
      row.classList.toggle("cut", Number(row.dataset.total) > this.full * 1.001);
    }
  }

  showRound(round) {
    this.list.querySelector(".shown")?.classList.remove("shown");
    this.roving.items[round.number - 1]?.classList.add("shown");
  }

  reveal(round) {
    const row = this.roving.items[round.number - 1];
    if (row) reveal(this.list, row);
  }
}

// ---- the summary in numbers ----

function partsTable(answer) {
  const times = answer.meanTimes();
  if (!times) return undefined;
  const body = make("tbody");
  for (const part of [...PARTS, "total"]) {
    body.append(make("tr", {}, make("th", {scope: "row"}, part === "total" ? "round" : part),
      make("td", {}, milliseconds(times[part])),
      make("td", {}, percent(times[part] / times.total))));
  }
  return make("table", {}, make("caption", {}, "Mean time of a round"),
    make("thead", {}, make("tr", {}, make("th", {scope: "col"}, "part"),
      make("th", {scope: "col"}, "time"), make("th", {scope: "col"}, "share"))), body);
}

function positionsTable(summary) {
  const tested = summary?.tested_per_position ?? [];
  if (!tested.length) return undefined;
  const body = make("tbody");
  tested.forEach((n, i) => {
    const accepted = summary.accepted_per_position[i] ?? 0;
    body.append(make("tr", {}, make("th", {scope: "row"}, String(i + 1)),
      make("td", {}, String(n)), make("td", {}, String(accepted)),
      make("td", {}, number(accepted / n))));
  });
  return make("table", {}, make("caption", {}, "Guesses by position"),
    make("thead", {}, make("tr", {}, make("th", {scope: "col"}, "position"),
      make("th", {scope: "col"}, "tested"), make("th", {scope: "col"}, "accepted"),
      make("th", {scope: "col"}, "alpha"))), body);
}

function siblingsNote(summary) {
  if (!summary?.siblings) return undefined;
  return make("p", {class: "note"}, `${plural(summary.siblings, "sibling")} of guesses ` +
    `${summary.siblings === 1 ? "was" : "were"} checked, too; ` +
    `${count(summary.siblings_accepted)} were accepted.`);
}

export function summaryTables(answer) {
  const {summary} = answer;
  return [partsTable(answer), positionsTable(summary), siblingsNote(summary)].filter(Boolean);
}
