// The same prompt and seed with guesses and without, each with a clock of its own. At the end the
// two texts are compared token by token, and the rounds are counted.
import {Answer} from "./answer.js";
import {stream} from "./api.js";
import {byId, count, make, number, plural, say} from "./dom.js";
import {bodyOf, markWrong, sendOnEnter, setRunning} from "./form.js";
import {onMarks} from "./marks.js";
import {keepForm} from "./store.js";
import {TokenList} from "./tokens.js";

const WARM_TOKENS = 32;
const FEW_GUESSES = 0.3; // a round
const STATES = {
  warm: "A warm-up first, which does not count.", fast: "Now with guesses.",
  plain: "Now without.", both: "Both at once.",
};

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
    this.note.textContent = this.answer ? `${plural(this.answer.tokens.length, "token")} in ` +
      `${plural(this.answer.rounds.length, "round")}, ${number(this.rate())} tokens/s` : "–";
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
    `${count([...fast.answer.text].length)} characters.`;
}

function big(place, figure, words) {
  place.replaceChildren(make("b", {}, figure), make("span", {}, words));
}

// Why guesses saved little or nothing, in the server's words where it has some; "": they did.
function whyFew(answer) {
  const off = answer.summary?.speculation_off;
  if (off) return `There were no guesses: ${off}.`;
  if (answer.meanK() < FEW_GUESSES) {
    return `Hardly anything was guessed (${number(answer.meanK())} guesses a round): the server ` +
      "expects guesses to cost more time here than they save. With a number in the field K it " +
      "guesses all the same.";
  }
  if (answer.alpha() < FEW_GUESSES) {
    return `Only ${Math.round(100 * answer.alpha())} % of the guesses were accepted: draft and ` +
      "target disagree about this text. A lower temperature may help.";
  }
  return "";
}

export class Compare {
  constructor() {
    this.form = byId("compare-form");
    this.fast = new Lane(byId("lanes"), "With guesses", {});
    this.plain = new Lane(byId("lanes"), "Without", {n_draft: 0});
    keepForm(this.form);
    onMarks((isMarked) => {
      this.fast.tokens.setActive(isMarked);
      this.plain.tokens.setActive(isMarked);
    });
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (!byId("compare-run").disabled) this.run();
    });
    sendOnEnter(this.form);
    byId("compare-stop").addEventListener("click", () => this.abort?.abort());
  }

  setServer(features) {
    this.form.elements.n_draft.max = features.n_draft_max;
  }

  reset() {
    this.fast.reset();
    this.plain.reset();
    this.setState("", "");
    byId("verdict-box").hidden = true;
    say(byId("compare-problem"), "");
    markWrong(this.form);
  }

  setState(text, kind) {
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
      this.showVerdict();
    } catch (error) {
      this.fail(error);
    } finally {
      this.show();
      cancelAnimationFrame(this.frame);
      setRunning(byId("compare-run"), byId("compare-stop"), false);
    }
  }

  // The warm-up has the prompt read and lets the server learn what a guess costs.
  async warmUp(signal) {
    const {prompt, max_tokens} = this.form.elements;
    const more = {
      prompt: prompt.value, max_tokens: Math.min(WARM_TOKENS, Number(max_tokens.value)),
    };
    for await (const chunk of stream("v1/completions", bodyOf(this.form, more), signal)) {
      if (chunk.error) return;
    }
  }

  async runBoth(isTogether, signal) {
    this.setState(STATES.warm, "");
    await this.warmUp(signal);
    this.setState(isTogether ? STATES.both : STATES.fast, "");
    const first = this.fast.run(this.form, signal);
    if (!isTogether) {
      await first;
      this.setState(STATES.plain, "");
    }
    await Promise.all([first, this.plain.run(this.form, signal)]);
  }

  showVerdict() {
    const {fast, plain} = this, verdict = verdictOf(fast, plain);
    this.setState(verdict, verdict.includes("identical") ? "good" : "bad");
    big(byId("verdict-rounds"), plural(fast.answer.rounds.length, "round"),
      ` instead of ${count(plain.answer.rounds.length)}, ` +
      `${number(fast.answer.tokensARound())} tokens a round`);
    big(byId("verdict-clock"), `${(fast.rate() / plain.rate()).toFixed(2)} times`,
      ` as fast on this machine at this moment: ${number(fast.rate())} tokens/s instead of ` +
      number(plain.rate()));
    say(byId("verdict-why"), whyFew(fast.answer));
    byId("verdict-box").hidden = false;
  }

  fail(error) {
    this.abort.abort(); // the other one, too
    const isStopped = error.name === "AbortError";
    this.setState(isStopped ? "Stopped." : "", "");
    if (isStopped) return;
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
