// The same prompt and seed with guesses and without, each with a clock of its own. At the end the
// two texts are compared token by token.
import {Answer} from "./answer.js";
import {stream} from "./api.js";
import {byId, count, make, number, plural, say} from "./dom.js";
import {bodyOf, markWrong, sendOnEnter, setRunning} from "./form.js";
import {TokenList} from "./tokens.js";

class Lane {
  // own: fields of "outrider" that make the difference.
  constructor(place, title, own) {
    this.own = own;
    this.clock = make("p", {class: "clock"}, "0.000 s");
    this.note = make("p", {class: "soft"}, "–");
    const heading = make("h2", {id: `lane-${place.children.length}`}, title);
    const list = make("div", {class: "tokens", role: "listbox", "aria-labelledby": heading.id,
      "data-empty": "The text comes here."});
    this.tokens = new TokenList(list);
    place.append(make("section", {class: "card lane", "aria-labelledby": heading.id},
      make("div", {class: "bar"}, heading, this.clock), this.note, list));
    this.reset();
  }

  reset() {
    this.answer = undefined;
    this.pending = [];
    this.tokens.clear();
  }

  async run(form, signal) {
    const {prompt} = form.elements;
    const body = bodyOf(form, {prompt: prompt.value}, this.own);
    this.answer = new Answer();
    for await (const chunk of stream("v1/completions", body, signal)) {
      const round = this.answer.take(chunk);
      if (round) this.pending.push(round);
    }
  }

  // Seconds from the request to the last token, or to now.
  seconds() {
    if (!this.answer) return 0;
    const end = this.answer.finish_reason ? this.answer.last : performance.now();
    return ((end ?? this.answer.began) - this.answer.began) / 1000;
  }

  rate() {
    return this.seconds() ? this.answer.tokens.length / this.seconds() : 0;
  }

  show() {
    const rounds = this.pending.splice(0);
    if (rounds.length) this.tokens.add(rounds.flatMap((round) => round.tokens));
    this.clock.textContent = `${this.seconds().toFixed(3)} s`;
    if (!this.answer) return;
    const {tokens, rounds: all} = this.answer;
    this.note.textContent = `${plural(tokens.length, "token")} in ` +
      `${plural(all.length, "round")}, ${number(this.rate())} tokens/s`;
  }
}

// The first token in which the answers differ; -1 = they are the same.
function firstDifference(a, b) {
  const n = Math.max(a.tokens.length, b.tokens.length);
  for (let i = 0; i < n; i++) {
    if (a.tokens[i]?.id !== b.tokens[i]?.id) return i;
  }
  return a.text === b.text ? -1 : n - 1;
}

function verdictOf(fast, plain) {
  const at = firstDifference(fast.answer, plain.answer);
  if (at >= 0) return `The texts differ from token ${at + 1} on. This must not happen.`;
  return `The two texts are identical: ${plural(fast.answer.tokens.length, "token")}, ` +
    `${count([...fast.answer.text].length)} characters. With guesses ${number(fast.rate())} ` +
    `tokens/s, without ${number(plain.rate())}: ` +
    `${(fast.rate() / plain.rate()).toFixed(2)} times as fast.`;
}

export class Compare {
  constructor() {
    this.form = byId("compare-form");
    this.fast = new Lane(byId("lanes"), "With guesses", {});
    this.plain = new Lane(byId("lanes"), "Without", {n_draft: 0});
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (!byId("compare-run").disabled) this.run();
    });
    sendOnEnter(this.form);
    byId("compare-stop").addEventListener("click", () => this.abort?.abort());
  }

  setFeatures(features) {
    this.form.elements.n_draft.max = features.n_draft_max;
  }

  reset() {
    this.fast.reset();
    this.plain.reset();
    this.setVerdict("", "");
    say(byId("compare-problem"), "");
    markWrong(this.form);
  }

  setVerdict(text, kind) {
    byId("verdict").textContent = text;
    byId("verdict").dataset.kind = kind;
  }

  async run() {
    this.reset();
    this.abort = new AbortController();
    setRunning(byId("compare-run"), byId("compare-stop"), true);
    byId("lanes").scrollIntoView({block: "nearest"});
    this.tick();
    try {
      await this.runBoth(this.form.elements.order.value === "together", this.abort.signal);
      this.show();
      const verdict = verdictOf(this.fast, this.plain);
      this.setVerdict(verdict, verdict.includes("identical") ? "good" : "bad");
    } catch (error) {
      this.fail(error);
    } finally {
      this.show();
      cancelAnimationFrame(this.frame);
      setRunning(byId("compare-run"), byId("compare-stop"), false);
    }
  }

  async runBoth(isTogether, signal) {
    const first = this.fast.run(this.form, signal);
    if (!isTogether) await first;
    await Promise.all([first, this.plain.run(this.form, signal)]);
  }

  fail(error) {
    this.abort.abort(); // the other one, too
    if (error.name === "AbortError") {
      this.setVerdict("Stopped.", "");
      return;
    }
    say(byId("compare-problem"), error.message);
    markWrong(this.form, error.field);
  }

  show() {
    this.fast.show();
    this.plain.show();
  }

  tick() {
    this.show();
    this.frame = requestAnimationFrame(() => this.tick());
  }
}
