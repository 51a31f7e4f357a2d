// The playground: one request, its text with marks, its rounds, and all that is known of a token.
import {Answer} from "./answer.js";
import {ApiError, stream} from "./api.js";
import {
  byId, copyText, count, fill, make, milliseconds, number, plural, say, uncover,
} from "./dom.js";
import {bodyOf, markWrong, sendOnEnter, setRunning, unfoldWrong} from "./form.js";
import {Inspector} from "./inspector.js";
import {partLegend, summaryTables, Timeline} from "./rounds.js";
import {TokenList} from "./tokens.js";

const N_ALTERNATIVES = 5;
const ROLES = ["system", "user", "assistant"];
const ENDS = {stop: "the model's own end or a stop text", length: "the limit of tokens"};

// ---- messages of a chat ----

class Messages {
  constructor(list) {
    this.list = list;
    this.add("user", "Tell me a story of a fox.");
  }

  add(role, text) {
    const select = make("select", {}, ...ROLES.map((name) => make("option", {}, name)));
    select.value = role;
    const area = make("textarea", {rows: 2});
    area.value = text;
    const remove = make("button", {type: "button", class: "small"}, "Remove");
    const item = make("li", {}, make("div", {class: "bar"}, select, remove), area);
    remove.addEventListener("click", () => this.remove(item));
    this.list.append(item);
    this.label();
    return area;
  }

  remove(item) {
    const next = item.nextElementSibling ?? item.previousElementSibling;
    item.remove();
    this.label();
    (next?.querySelector("textarea") ?? byId("add-message")).focus();
  }

  label() {
    [...this.list.children].forEach((item, i) => {
      fill(item.querySelector("select"),
        {id: `role-${i + 1}`, "aria-label": `Role of message ${i + 1}`});
      fill(item.querySelector("textarea"),
        {id: `message-${i + 1}`, "aria-label": `Text of message ${i + 1}`});
      item.querySelector("button").setAttribute("aria-label", `Remove message ${i + 1}`);
    });
  }

  values() {
    return [...this.list.children].map((item) => ({
      role: item.querySelector("select").value, content: item.querySelector("textarea").value,
    }));
  }
}

// ---- figures ----

function figuresOf(answer) {
  const {summary, rounds} = answer;
  const first = answer.first === undefined ? undefined : 1000 * (answer.first - answer.began);
  return [
    ["Tokens", count(answer.tokens.length)],
    ["Tokens/s", number(answer.rate())],
    ["First token", milliseconds(first)],
    ["Alpha", number(answer.alpha())],
    ["Mean K", number(rounds.length ? answer.n_guesses / rounds.length : undefined)],
    ["Tokens a round", number(rounds.length ? answer.tokens.length / rounds.length : undefined)],
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
    this.messages = new Messages(byId("messages"));
    this.inspector = new Inspector(byId("inspected"), byId("inspector-title"));
    this.tokens = new TokenList(byId("answer"), (token) => this.onToken(token));
    this.timeline = new Timeline(byId("rounds"), (round) => this.onRound(round));
    this.pending = []; // rounds that are not shown yet
    this.frame = 0;
    byId("parts").append(...partLegend());
    // On a phone the text has to be seen below the button that asks for it.
    byId("play-options").open = !matchMedia("(max-width: 760px)").matches;
    this.listen();
    this.reset();
  }

  listen() {
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (!byId("generate").disabled) this.run();
    });
    this.form.addEventListener("change", () => this.showKind());
    sendOnEnter(this.form);
    unfoldWrong(this.form);
    byId("play").addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.closeToken();
    });
    byId("play").addEventListener("focusin", (event) => {
      if (event.target.matches("[role=option]")) uncover(event.target, byId("inspector"));
    });
    byId("play-stop").addEventListener("click", () => this.abort?.abort());
    byId("add-message").addEventListener("click", () => this.messages.add("user", "").focus());
    byId("continue").addEventListener("click", () => this.goOn());
    byId("copy").addEventListener("click", () => this.copy());
    byId("close-token").addEventListener("click", () => this.closeToken());
    byId("marks").addEventListener("change", (event) => {
      byId("play").classList.toggle("unmarked", !event.target.checked);
    });
  }

  isChat() {
    return this.form.elements.kind.value === "chat";
  }

  showKind() {
    byId("completion-part").hidden = this.isChat();
    byId("chat-part").hidden = !this.isChat();
  }

  // What the server offers: whether there are chats; rules, tree rules and strategies by name.
  setFeatures(features) {
    const chat = this.form.querySelector("[value=chat]");
    chat.disabled = !features.chat;
    byId("no-chat").hidden = features.chat;
    if (!features.chat) this.form.elements.kind.value = "completion";
    this.showKind();
    this.form.elements.n_draft.max = features.n_draft_max;
    this.offer("rule", "by temperature and seed", features.rules);
    this.offer("tree_rule", "the server's", features.tree_rules);
    this.offer("strategy", "the server's", features.strategies.filter((s) => s !== "default"));
  }

  offer(name, byDefault, names) {
    const select = this.form.elements[name], old = select.value;
    select.replaceChildren(make("option", {value: ""}, byDefault),
      ...names.map((one) => make("option", {}, one)));
    select.value = names.includes(old) ? old : "";
  }

  // ---- a request ----

  requestOf() {
    if (!this.isChat()) {
      const more = {prompt: this.form.elements.prompt.value, logprobs: N_ALTERNATIVES};
      return ["v1/completions", bodyOf(this.form, more)];
    }
    const more = {messages: this.messages.values(), logprobs: true, top_logprobs: N_ALTERNATIVES};
    return ["v1/chat/completions", bodyOf(this.form, more)];
  }

  reset() {
    this.answer = new Answer();
    this.pending = [];
    this.tokens.clear();
    this.timeline.clear();
    this.inspector.clear();
    byId("summary").replaceChildren();
    byId("said").textContent = "";
    byId("continue").hidden = true;
    byId("copy").disabled = true;
    say(byId("play-problem"), "");
    markWrong(this.form);
    showFigures(byId("figures"), figuresOf(this.answer));
  }

  async run() {
    const [path, body] = this.requestOf();
    this.reset();
    this.abort = new AbortController();
    byId("play").classList.add("running");
    setRunning(byId("generate"), byId("play-stop"), true);
    byId("answer").parentElement.scrollIntoView({block: "nearest"});
    try {
      for await (const chunk of stream(path, body, this.abort.signal)) this.take(chunk);
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
    showFigures(byId("figures"), figuresOf(this.answer));
  }

  finish(how) {
    const {answer} = this;
    this.show();
    this.timeline.finish();
    byId("summary").replaceChildren(...summaryTables(answer));
    byId("copy").disabled = !answer.text;
    byId("continue").hidden = !this.isChat() || !answer.text;
    byId("said").textContent = `${plural(answer.tokens.length, "token")}, ${how}: ${answer.text}`;
    if (answer.summary?.speculation_off) {
      say(byId("play-problem"), `There was no speculation: ${answer.summary.speculation_off}.`);
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
    this.tokens.roving.mark(-1);
    this.timeline.roving.mark(-1);
  }

  goOn() {
    this.messages.add("assistant", this.answer.text);
    this.messages.add("user", "").focus();
    byId("continue").hidden = true;
  }

  async copy() {
    byId("copy").textContent = await copyText(this.answer.text) ? "Copied" : "Not allowed";
    setTimeout(() => { byId("copy").textContent = "Copy the text"; }, 1500);
  }
}
