// Conversations, answered by the server's API as the messages are sent.
import {Answer} from "./answer.js";
import {ApiError, stream} from "./api.js";
import {button, byId, count, make, number, plural, say} from "./dom.js";
import {bodyOf, fieldsOf, markWrong, setRunning, unfoldWrong} from "./form.js";
import {copyButton, curlOf, pythonOf} from "./snippets.js";
import {keepFold, keepForm, watchOtherTabs} from "./store.js";
import {
  allTalks, forgetTalk, isTalk, jsonOf, keepTalk, markdownOf, newTalk, plainPromptOf, PLAIN_STOPS,
  talkOfJson,
} from "./talks.js";
import {Turn} from "./turns.js";

const NO_TEMPLATE = "This model has no chat template, so conversations are sent as plain text to " +
  "/v1/completions, and it may answer badly. The coordinator's option --chat-template FILE gives " +
  "it one.";
const NOT_KEPT = "This browser keeps no more: save this conversation as a file, and delete others.";
const NEAR_END = 160; // px; a reader who is that near the end stays there

function saveFile(name, type, text) {
  const address = URL.createObjectURL(new Blob([text], {type}));
  const link = make("a", {href: address, download: name});
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

function fileNameOf(talk, suffix) {
  const name = talk.title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "");
  return `${name || "conversation"}.${suffix}`;
}

// How an answer was made, in a line.
function infoOf(answer, end) {
  const n_tokens = answer.usage?.completion_tokens ?? answer.tokens.length;
  const parts = [plural(n_tokens, "token")];
  if (answer.rounds.length) {
    parts.push(plural(answer.rounds.length, "round"), `${number(answer.tokensARound())} a round`);
  }
  if (answer.rate()) parts.push(`${number(answer.rate())} tokens/s`);
  if (answer.usage) parts.push(`prompt ${plural(answer.usage.prompt_tokens, "token")}`);
  if (answer.finish_reason === "length") parts.push("cut off at the limit of tokens");
  if (end) parts.push(end);
  return parts.join(" · ");
}

export class Chat {
  constructor() {
    this.form = byId("chat-form");
    this.hasTemplate = true;
    this.turns = [];
    this.answers = new WeakMap(); // message -> Answer, of those that came since the page is open
    keepForm(this.form, ["system"]);
    keepFold(byId("chat-options"));
    this.talk = allTalks()[0] ?? newTalk();
    this.listen();
    this.foldTalks();
    this.showTalk();
  }

  listen() {
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
    byId("message").addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      if (!byId("send").disabled) this.form.requestSubmit();
    });
    unfoldWrong(this.form);
    this.form.elements.system.addEventListener("change", () => {
      this.talk.system = this.form.elements.system.value;
      if (this.talk.messages.length) this.keep();
    });
    byId("chat").addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.run?.abort.abort();
    });
    byId("chat-stop").addEventListener("click", () => this.run?.abort.abort());
    byId("new-talk").addEventListener("click", () => this.open(newTalk()));
    byId("undo-delete").addEventListener("click", () => this.undoDelete());
    byId("open-file").addEventListener("change", (event) => this.openFile(event.target));
    this.addTools();
    watchOtherTabs((name) => {
      if (isTalk(name)) this.reload();
    });
    addEventListener("pagehide", () => {
      if (this.run) keepTalk(this.run.talk);
    });
  }

  addTools() {
    byId("talk-tools").append(
      copyButton("Copy as curl", () => curlOf(...this.snippet())),
      copyButton("Copy as Python", () => pythonOf(...this.snippet())),
      button("Save as Markdown", () => saveFile(fileNameOf(this.talk, "md"), "text/markdown",
        markdownOf(this.talk))),
      button("Save as JSON", () => saveFile(fileNameOf(this.talk, "json"), "application/json",
        jsonOf(this.talk))),
      button("Delete", () => this.remove()));
  }

  setShown(isShown) {
    if (isShown) this.scrollToEnd();
  }

  // ---- the server ----

  setServer(features, model) {
    this.hasTemplate = features.chat;
    this.model = model;
    this.form.elements.n_draft.max = features.n_draft_max;
    say(byId("chat-kind"), features.chat ? "" : NO_TEMPLATE);
    this.showUsage();
  }

  requestOf(messages) {
    const {system} = this.talk;
    const all = system.trim() ? [{role: "system", content: system}, ...messages] : messages;
    const own = all.map(({role, content}) => ({role, content}));
    return this.hasTemplate ? ["v1/chat/completions", {messages: own}]
      : ["v1/completions", {prompt: plainPromptOf(own), stop: PLAIN_STOPS}];
  }

  // The request that Send would make now, without what only this page asks for.
  snippet() {
    const text = this.form.elements.message.value.trim();
    const messages = [...this.talk.messages];
    while (messages.at(-1)?.role === "assistant" && !text) messages.pop();
    if (text || !messages.length) messages.push({role: "user", content: text || "Hello"});
    const [path, fields] = this.requestOf(messages);
    return [path, {
      ...(this.model ? {model: this.model.id} : {}), ...fields, ...fieldsOf(this.form),
    }];
  }

  // ---- talks ----

  keep() {
    if (!keepTalk(this.talk)) say(byId("chat-problem"), NOT_KEPT);
    this.listTalks();
  }

  // Another tab has changed something, perhaps the talk that is shown here.
  reload() {
    const same = allTalks().find((talk) => talk.id === this.talk.id);
    if (!same || this.run) this.listTalks();
    else {
      this.talk = same;
      this.showTalk();
    }
  }

  listTalks() {
    const talks = allTalks();
    byId("talks").replaceChildren(...talks.map((talk) => {
      const isShown = talk.id === this.talk.id;
      return make("li", {}, button(talk.title || "Conversation", () => this.open(talk),
        isShown ? {"aria-current": "true"} : {}));
    }));
    byId("talks-count").textContent = talks.length ? `${count(talks.length)} kept in this browser`
      : "Conversations are kept in this browser alone.";
  }

  // A talk that is being answered is the one in memory, not the one that was kept last.
  open(talk) {
    this.talk = this.run?.talk.id === talk.id ? this.run.talk : talk;
    say(byId("chat-problem"), "");
    this.showTalk();
    this.foldTalks();
    this.form.elements.message.focus({preventScroll: true});
    this.scrollToEnd();
  }

  // On a narrow screen the list would push the conversation down.
  foldTalks() {
    byId("talks-box").open = matchMedia("(min-width: 900px)").matches;
  }

  remove() {
    if (!this.talk.messages.length) return;
    if (this.run?.talk === this.talk) this.run.abort.abort();
    this.deleted = this.talk;
    forgetTalk(this.talk);
    this.open(allTalks()[0] ?? newTalk());
    byId("undo").hidden = false;
  }

  undoDelete() {
    byId("undo").hidden = true;
    this.talk = this.deleted;
    this.deleted = undefined;
    this.keep();
    this.open(this.talk);
  }

  async openFile(input) {
    const talk = input.files[0] && talkOfJson(await input.files[0].text());
    input.value = "";
    if (!talk) {
      say(byId("chat-problem"), "This file is no conversation that was saved here as JSON.");
      return;
    }
    keepTalk(talk);
    this.open(talk);
  }

  showTalk() {
    this.form.elements.system.value = this.talk.system;
    byId("talk-title").textContent = this.talk.title || "New conversation";
    byId("talk-empty").hidden = this.talk.messages.length > 0;
    byId("talk-tools").hidden = !this.talk.messages.length;
    this.turns = this.talk.messages.map((message, i) => this.makeTurn(message, i));
    byId("turns").replaceChildren(...this.turns.map((turn) => turn.item));
    this.listTalks();
    this.showUsage();
  }

  makeTurn(message, i) {
    const isLast = i === this.talk.messages.length - 1;
    const turn = new Turn(message, i + 1, {
      edit: (own, text, isSent) => this.edit(own, text, isSent),
      regenerate: isLast && message.role === "assistant" ? () => this.regenerate() : undefined,
    });
    const answer = this.answers.get(message);
    if (answer?.finished && answer.tokens.length) turn.setAnswer(answer);
    return turn;
  }

  // Tokens of the model's context, as the last answer told.
  showUsage() {
    const n_tokens = this.talk.messages.findLast((one) => one.total)?.total;
    const limit = this.model && `${count(this.model.max_model_len)} tokens`;
    byId("talk-usage").textContent = !limit ? "" : n_tokens
      ? `${count(n_tokens)} of ${limit} of context` : `context ${limit}`;
  }

  // ---- requests ----

  send() {
    if (this.run) return;
    const {message} = this.form.elements, text = message.value;
    const isAgain = !text.trim() && this.talk.messages.at(-1)?.role === "user";
    if (!text.trim() && !isAgain) return;
    if (!isAgain) this.talk.messages.push({role: "user", content: text});
    message.value = "";
    message.dispatchEvent(new Event("input", {bubbles: true})); // it is kept no more
    this.answer();
  }

  regenerate() {
    if (this.run) return;
    this.talk.messages.pop();
    this.answer();
  }

  // A question that was changed is asked again, and all that followed it goes.
  edit(turn, text, isSent) {
    if (this.run) return;
    turn.message.content = text;
    if (isSent) {
      this.talk.messages.length = this.talk.messages.indexOf(turn.message) + 1;
      this.answer();
      return;
    }
    turn.update();
    this.keep();
  }

  async answer() {
    const {talk} = this, answer = new Answer(), message = {role: "assistant", content: ""};
    const [path, fields] = this.requestOf(talk.messages);
    const run = this.run = {talk, message, abort: new AbortController()};
    talk.messages.push(message);
    this.answers.set(message, answer);
    say(byId("chat-problem"), "");
    markWrong(this.form);
    this.keep();
    this.showTalk();
    this.setRunning(true);
    this.scrollToEnd();
    try {
      for await (const chunk of stream(path, bodyOf(this.form, fields), run.abort.signal)) {
        answer.take(chunk);
        message.content = this.hasTemplate ? answer.text : answer.text.trimStart();
        run.frame ||= requestAnimationFrame(() => this.showRun(run));
      }
      this.end(run, answer, "");
    } catch (error) {
      this.end(run, answer, error.name === "AbortError" ? "stopped" : "broken off", error);
    }
  }

  showRun(run) {
    run.frame = 0;
    if (this.talk !== run.talk || this.run !== run) return;
    const isNearEnd = innerHeight + scrollY >= document.documentElement.scrollHeight - NEAR_END;
    this.turns.at(-1).update();
    if (isNearEnd) this.scrollToEnd();
  }

  // An answer without a word leaves no message.
  end(run, answer, how, error) {
    const {talk, message} = run;
    cancelAnimationFrame(run.frame);
    this.run = undefined;
    this.setRunning(false);
    answer.finished = true;
    message.info = infoOf(answer, how);
    message.total = answer.usage?.total_tokens;
    if (!message.content) talk.messages.splice(talk.messages.indexOf(message), 1);
    const isGone = this.deleted === talk;
    if (!isGone && !keepTalk(talk)) say(byId("chat-problem"), NOT_KEPT);
    if (this.talk === talk) this.showTalk();
    else this.listTalks();
    byId("chat-said").textContent = message.content ? `Answer, ${message.info}: ${message.content}`
      : how;
    if (error && error.name !== "AbortError") this.tell(error);
    else if (!message.content && !how) say(byId("chat-problem"), "The answer has no text.");
  }

  tell(error) {
    const again = " Your message is kept: send again with Enter in the empty field.";
    const last = this.talk.messages.at(-1);
    say(byId("chat-problem"), error.message + (last?.role === "user" ? again : ""));
    markWrong(this.form, error.field === "messages" ? undefined : error.field);
    if (!(error instanceof ApiError)) throw error;
  }

  setRunning(isRunning) {
    byId("chat").classList.toggle("running", isRunning);
    setRunning(byId("send"), byId("chat-stop"), isRunning);
  }

  scrollToEnd() {
    if (!byId("chat").hidden) scrollTo({top: document.documentElement.scrollHeight});
  }
}
