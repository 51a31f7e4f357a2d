// The playground: one prompt, its text, and on demand where each token comes from, the rounds, and
// all that is known of a token.
import {Answer} from "./answer.js";
import {ApiError, stream} from "./api.js";
import {byId, count, make, milliseconds, number, plural, say, uncover} from "./dom.js";
import {bodyOf, fieldsOf, markWrong, sendOnEnter, setRunning, unfoldWrong} from "./form.js";
import {Inspector} from "./inspector.js";
import {onMarks} from "./marks.js";
import {partLegend, summaryTables, Timeline, wordsOfParts} from "./rounds.js";
import {copyButton, curlOf, pythonOf} from "./snippets.js";
import {keepFold, keepForm} from "./store.js";
import {TokenList} from "./tokens.js";

const N_ALTERNATIVES = 5;
const ENDS = {stop: "the model's own end or a stop text", length: "the limit of tokens"};
const PATH = "v1/completions";

// ---- figures ----

// The ones that matter most, in a line below the text.
function lineOf(answer) {
  const {tokens, rounds, usage} = answer;
  if (!tokens.length) return "";
  const prompt = usage ? ` after a prompt of ${count(usage.prompt_tokens)}` : "";
  const rate = answer.rate() ? `, ${number(answer.rate())} tokens/s` : "";
  return `${plural(tokens.length, "token")}${prompt} in ${plural(rounds.length, "round")}: ` +
    `${number(answer.tokensARound())} a round${rate}`;
}

function figuresOf(answer) {
  const {summary} = answer;
  const first = answer.first === undefined ? undefined : 1000 * (answer.first - answer.began);
  return [
    ["Tokens", count(answer.tokens.length)],
    ["Tokens/s", number(answer.rate())],
    ["First token", milliseconds(first)],
    ["Alpha", number(answer.alpha())],
    ["Mean K", number(answer.meanK())],
    ["Tokens a round", number(answer.tokensARound())],
    ["Rule", summary?.rule ?? "–"], ["Strategy", summary?.strategy ?? "–"],
    ["Seed", summary?.seed ?? "–"],
  ];
}

function showFigures(list, figures) {
  list.replaceChildren(...figures.map(([name, value]) =>
    make("div", {}, make("dt", {}, name), make("dd", {}, String(value)))));
}

// ---- the playground ----

export class Play {
  constructor() {
    this.form = byId("play-form");
    this.inspector = new Inspector(byId("inspected"), byId("inspector-title"));
    this.tokens = new TokenList(byId("answer"), (token) => this.onToken(token));
    this.timeline = new Timeline(byId("rounds"), (round) => this.onRound(round));
    this.pending = []; // rounds that are not shown yet
    this.frame = 0;
    byId("parts").append(...partLegend());
    byId("answer-tools").append(
      copyButton("Copy the text", () => this.answer.text, {id: "copy", disabled: true}),
      copyButton("Copy as curl", () => curlOf(PATH, this.snippet())),
      copyButton("Copy as Python", () => pythonOf(PATH, this.snippet())));
    // On a phone the text has to be seen below the button that asks for it.
    byId("play-options").open = !matchMedia("(max-width: 760px)").matches;
    this.kept = keepForm(this.form);
    keepFold(byId("figures-box"));
    keepFold(byId("rounds-box"));
    this.listen();
    this.reset();
  }

  listen() {
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (!byId("generate").disabled) this.run();
    });
    sendOnEnter(this.form);
    unfoldWrong(this.form);
    byId("play").addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.closeToken();
    });
    byId("play").addEventListener("focusin", (event) => {
      if (event.target.matches("[role=option]")) uncover(event.target, byId("inspector"));
    });
    byId("play-stop").addEventListener("click", () => this.abort?.abort());
    byId("close-token").addEventListener("click", () => this.closeToken());
    onMarks((isMarked) => {
      this.closeToken();
      this.tokens.setActive(isMarked);
    });
  }

  // What the server offers: rules, tree rules and strategies by name.
  setServer(features, model) {
    this.model = model;
    this.form.elements.n_draft.max = features.n_draft_max;
    this.offer("rule", "by temperature and seed", features.rules);
    this.offer("tree_rule", "the server's", features.tree_rules);
    this.offer("strategy", "the server's", features.strategies.filter((s) => s !== "default"));
  }

  offer(name, byDefault, names) {
    const select = this.form.elements[name];
    const old = select.options.length ? select.value : this.kept[name];
    select.replaceChildren(make("option", {value: ""}, byDefault),
      ...names.map((one) => make("option", {}, one)));
    select.value = names.includes(old) ? old : "";
  }

  // ---- a request ----

  prompt() {
    return this.form.elements.prompt.value;
  }

  // The request without what only this page asks for.
  snippet() {
    return {
      ...(this.model ? {model: this.model.id} : {}), prompt: this.prompt(), ...fieldsOf(this.form),
    };
  }

  reset() {
    this.answer = new Answer();
    this.pending = [];
    this.tokens.clear();
    this.timeline.clear();
    this.inspector.clear();
    byId("summary").replaceChildren();
    byId("said").textContent = "";
    byId("copy").disabled = true;
    say(byId("play-problem"), "");
    markWrong(this.form);
    this.showFigures();
  }

  showFigures() {
    const times = this.answer.meanTimes();
    byId("line").textContent = lineOf(this.answer);
    byId("rounds-words").textContent = times
      ? `${milliseconds(times.total)} each: ${wordsOfParts(times)}` : "";
    showFigures(byId("figures"), figuresOf(this.answer));
  }

  async run() {
    const body = bodyOf(this.form, {prompt: this.prompt(), logprobs: N_ALTERNATIVES});
    this.reset();
    this.abort = new AbortController();
    byId("play").classList.add("running");
    setRunning(byId("generate"), byId("play-stop"), true);
    byId("answer").parentElement.scrollIntoView({block: "nearest"});
    try {
      for await (const chunk of stream(PATH, body, this.abort.signal)) this.take(chunk);
      this.finish(`ended by ${ENDS[this.answer.finish_reason] ?? this.answer.finish_reason}`);
    } catch (error) {
      this.fail(error);
    } finally {
      byId("play").classList.remove("running");
      setRunning(byId("generate"), byId("play-stop"), false);
    }
  }

  take(chunk) {
    const round = this.answer.take(chunk);
    if (round) this.pending.push(round);
    this.frame ||= requestAnimationFrame(() => this.show());
  }

  // Many rounds may come between two frames; they are shown together.
  show() {
    this.frame = 0;
    const rounds = this.pending.splice(0);
    this.tokens.add(rounds.flatMap((round) => round.tokens));
    if (rounds.length) this.timeline.add(rounds);
    this.showFigures();
  }

  finish(how) {
    const {answer} = this;
    this.show();
    this.timeline.finish();
    byId("summary").replaceChildren(...summaryTables(answer));
    byId("copy").disabled = !answer.text;
    byId("said").textContent = `${plural(answer.tokens.length, "token")}, ${how}: ${answer.text}`;
    if (answer.summary?.speculation_off && this.form.elements.n_draft.value !== "0") {
      byId("line").textContent += `. There were no guesses: ${answer.summary.speculation_off}.`;
    }
  }

  fail(error) {
    if (error.name === "AbortError") {
      this.finish("stopped");
      return;
    }
    this.finish("broken off");
    say(byId("play-problem"), error.message);
    if (error instanceof ApiError) markWrong(this.form, error.field);
    else throw error;
  }

  // ---- what the reader does ----

  onToken(token) {
    this.inspector.show(token);
    this.tokens.showRound(token.round);
    this.timeline.showRound(token.round);
    this.timeline.reveal(token.round);
  }

  onRound(round) {
    this.tokens.showRound(round);
    this.tokens.reveal(round);
    this.inspector.showRound(round);
  }

  // The same token can be pointed at again; the focus goes back to it if it was on the button.
  closeToken() {
    if (document.activeElement === byId("close-token")) {
      byId("answer").querySelector("[aria-selected=true]")?.focus({preventScroll: true});
    }
    this.inspector.clear();
    this.tokens.showRound(undefined);
    this.tokens.roving.mark(-1);
    this.timeline.roving.mark(-1);
  }
}
