// One message of a conversation as it is seen: its text, what can be done with it, and a line that
// tells how it was made.
import {button, make} from "./dom.js";
import {Markdown} from "./markdown.js";
import {copyButton} from "./snippets.js";
import {TokenList} from "./tokens.js";

export class Turn {
  // actions: edit(turn, text, isSent), and of the last answer regenerate().
  constructor(message, number, actions) {
    this.message = message;
    this.actions = actions;
    this.isAnswer = message.role === "assistant";
    this.body = make("div", {class: "body"});
    this.markdown = this.isAnswer ? new Markdown(this.body) : undefined;
    this.info = make("p", {class: "info soft"});
    this.tools = make("div", {class: "bar tools"}, this.info);
    const who = this.isAnswer ? "Answer" : "You", label = `${who}, message ${number}`;
    this.item = make("li", {class: `turn ${message.role}`, "aria-label": label},
      make("p", {class: "who"}, who), this.body, this.tools);
    this.addTools(number);
    this.update();
  }

  addTools(number) {
    const {actions, tools} = this;
    const label = (verb) => ({"aria-label": `${verb} message ${number}`});
    this.editButton = button("Edit", () => this.edit(), label("Edit"));
    tools.append(copyButton("Copy", () => this.message.content, label("Copy")), this.editButton);
    if (actions.regenerate) {
      tools.append(button("Regenerate", actions.regenerate, label("Regenerate")));
    }
  }

  // Shows the text and the line as they are now.
  update() {
    if (this.isAnswer) this.markdown.show(this.message.content);
    else this.body.textContent = this.message.content;
    this.info.textContent = this.message.info ?? "";
  }

  // An answer that came while this page is open can show its guesses in place of its layout.
  setAnswer(answer) {
    this.toggle = button("Guesses", () => this.showTokens(this.tokens ? undefined : answer),
      {"aria-pressed": "false", "aria-label": "Show the guesses of this answer"});
    this.editButton.before(this.toggle);
  }

  showTokens(answer) {
    this.tokens?.remove();
    this.tokens = undefined;
    this.body.hidden = Boolean(answer);
    this.toggle?.setAttribute("aria-pressed", String(this.body.hidden));
    if (!answer) return;
    this.tokens = make("div", {class: "tokens marked", role: "listbox",
      "aria-label": "Answer with its guesses"});
    const list = new TokenList(this.tokens);
    list.add(answer.tokens);
    this.body.after(this.tokens);
  }

  // ---- editing ----

  edit() {
    this.showTokens();
    const area = make("textarea", {rows: 3, name: "text", "aria-label": "Text of the message"});
    area.value = this.message.content;
    const close = () => {
      box.remove();
      this.body.hidden = this.tools.hidden = false;
      this.editButton.focus();
    };
    const done = (isSent) => {
      close();
      this.actions.edit(this, area.value, isSent);
    };
    const box = make("div", {class: "edit"}, area, make("div", {class: "bar"},
      this.isAnswer ? button("Save", () => done(false), {class: "small main"})
        : button("Send again", () => done(true), {class: "small main"}),
      button("Cancel", close)));
    area.addEventListener("keydown", (event) => {
      if (event.key === "Escape") close();
      else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) done(!this.isAnswer);
      else return;
      event.stopPropagation();
    });
    this.body.hidden = this.tools.hidden = true;
    this.tools.before(box);
    area.focus();
  }
}
