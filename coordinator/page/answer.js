// What the chunks of a stream tell: tokens with where they come from, rounds with what they
// guessed, and the summary at the end. Nothing here knows how it is shown.

const encoder = new TextEncoder();
const decoder = new TextDecoder();

// The parts of a round's time, in the order in which they happen; what is left is "rest".
export const PARTS = ["draft", "wire", "verify", "collective", "rest"];

function timesOf(told) {
  const known = told.draft + told.wire + told.verify + told.collective;
  return {...told, rest: Math.max(0, told.total - known)};
}

// Probabilities of the alternatives, best first. A completion has an object, a chat a list.
function alternativesOf(top) {
  if (!top) return [];
  const pairs = Array.isArray(top)
    ? top.map((one) => [one.token, one.logprob]) : Object.entries(top);
  return pairs.map(([text, logprob]) => ({text, p: Math.exp(logprob)}))
    .sort((a, b) => b.p - a.p);
}

// Of each token of a chunk: its piece of the vocabulary, its probability, the alternatives.
function piecesOf(logprobs) {
  if (!logprobs) return [];
  if (logprobs.content) {
    return logprobs.content.map((one) => ({
      piece: one.token, model: Math.exp(one.logprob),
      alternatives: alternativesOf(one.top_logprobs),
    }));
  }
  return logprobs.tokens.map((piece, i) => ({
    piece, model: Math.exp(logprobs.token_logprobs[i]),
    alternatives: alternativesOf(logprobs.top_logprobs[i]),
  }));
}

// ---- the tree of a round ----

// The `sibling` of a guess of a second chain, which is tried behind siblings, and of the first
// guess that follows a sibling; the siblings of such a guess have the next numbers.
export const BRANCH = 4;
export const GROWN = 5;

// Guesses that stayed come first: of the chain, then perhaps a sibling and guesses behind it, or
// guesses of a second chain. Nobody has tried those behind one that was rejected, nor those for a
// place at which an earlier one stayed.
function fateOf(guess, stayed) {
  const kept = stayed[guess.place];
  return guess.untried || (kept && guess.sibling > kept.sibling) ? "unseen" : "rejected";
}

// The guesses with what became of each, and how many of the chain and of the others stayed.
function treeOf(told) {
  const guesses = (told?.guesses ?? []).map((guess, i) => ({place: i, sibling: 0, ...guess}));
  const stayed = guesses.slice(0, told?.kept ?? 0);
  guesses.forEach((guess, i) => {
    guess.fate = i < stayed.length ? "accepted" : fateOf(guess, stayed);
  });
  const ofChain = (list) => list.filter((guess) => guess.sibling === 0).length;
  const n_guesses = ofChain(guesses), n_accepted = ofChain(stayed);
  return {
    guesses, n_kept: stayed.length, n_guesses, n_accepted,
    n_siblings: guesses.length - n_guesses, n_siblings_accepted: stayed.length - n_accepted,
    sibling: stayed[n_accepted],
  };
}

// The guesses for each place: the one that the chain goes on from, then its siblings.
export function placesOf(round) {
  const places = [];
  for (const guess of round.guesses) (places[guess.place] ??= []).push(guess);
  for (const place of places) place?.sort((a, b) => a.sibling - b.sibling);
  return places.filter(Boolean);
}

export class Answer {
  constructor() {
    this.text = "";
    this.tokens = [];
    this.n_described = 0; // tokens whose probabilities have come
    this.rounds = [];
    this.n_guesses = 0;
    this.n_accepted = 0;
    this.n_rejected = 0;
    this.summary = undefined; // the server's own, with the last chunk
    this.usage = undefined; // tokens of the prompt and of the answer, after the last chunk
    this.finish_reason = undefined;
    this.began = performance.now();
    this.first = undefined; // ms, when the first and the last token came
    this.last = undefined;
  }

  // Takes a chunk in; returns the round that it brought, if any.
  take(chunk) {
    const choice = chunk.choices[0];
    const told = chunk.outrider;
    this.usage = chunk.usage ?? this.usage;
    if (!choice) return undefined;
    const text = choice.text ?? choice.delta?.content ?? "";
    this.text += text;
    if (choice.finish_reason) {
      this.finish_reason = choice.finish_reason;
      this.summary = told;
    }
    const round = told?.tokens ? this.takeRound(told, text) : undefined;
    this.describe(piecesOf(choice.logprobs));
    return round;
  }

  // Probabilities may come later than their tokens, but in the same order.
  describe(pieces) {
    for (const piece of pieces) {
      const token = this.tokens[this.n_described++];
      if (token) Object.assign(token, piece);
    }
  }

  takeRound(told, text) {
    const round = {
      number: this.rounds.length + 1, ...treeOf(told.round),
      times: told.round && timesOf(told.round.time_us),
      lanes: told.round?.lanes, rows: told.round?.rows, tokens: [],
    };
    const bytes = encoder.encode(text);
    let begin = 0;
    told.tokens.forEach((one, i) => {
      const end = i === told.tokens.length - 1 ? bytes.length : one.text_end;
      const own = decoder.decode(bytes.subarray(begin, end));
      begin = end;
      round.tokens.push(this.makeToken(one, own, round, i));
    });
    this.tokens.push(...round.tokens);
    this.rounds.push(round);
    this.countRound(round, Boolean(told.rejected));
    return round;
  }

  makeToken(one, text, round, place) {
    const guess = place < round.n_kept ? round.guesses[place] : undefined;
    return {
      number: this.tokens.length + place + 1, id: one.id, origin: one.origin, text,
      piece: text, model: undefined, alternatives: [],
      p: one.p, q: guess?.q, round, place, sibling: guess?.sibling ?? 0,
      rejected: round.guesses.filter((one) => one.place === place && one.fate === "rejected"),
    };
  }

  countRound(round, isRejected) {
    this.last = performance.now();
    this.first ??= this.last;
    this.n_guesses += round.n_guesses;
    this.n_accepted += round.n_accepted;
    this.n_rejected += isRejected ? 1 : 0;
  }

  // Tokens per second after the first round, as this page received them.
  rate() {
    const later = this.tokens.length - (this.rounds[0]?.tokens.length ?? 0);
    return later > 0 ? later / (this.last - this.first) * 1000 : undefined;
  }

  // The share of tested guesses that stayed, siblings left out.
  alpha() {
    const tested = this.n_accepted + this.n_rejected;
    return tested ? this.n_accepted / tested : undefined;
  }

  // Guesses and tokens of a round, on average.
  meanK() {
    return this.rounds.length ? this.n_guesses / this.rounds.length : undefined;
  }

  tokensARound() {
    return this.rounds.length ? this.tokens.length / this.rounds.length : undefined;
  }

  // Mean times of the parts of a round, in us.
  meanTimes() {
    const timed = this.rounds.filter((round) => round.times);
    const mean = (part) => timed.reduce((sum, round) => sum + round.times[part], 0) / timed.length;
    return timed.length
      ? Object.fromEntries([...PARTS, "total"].map((part) => [part, mean(part)])) : undefined;
  }
}
