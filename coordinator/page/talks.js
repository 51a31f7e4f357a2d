// Conversations as they are kept in this browser, each under a name of its own, so that a long one
// costs the others nothing. A talk: {id, title, system, created, changed, messages: [{role,
// content, info, total}]}; info is told below an answer, total are the tokens up to its end.
import {forget, load, namesWith, save} from "./store.js";

const BEGIN = "talk.";
const TITLE_CHARS = 48;
const ROLES = ["user", "assistant"];

export function newTalk() {
  const now = Date.now();
  return {
    id: `${now.toString(36)}${Math.random().toString(36).slice(2, 8)}`, title: "", system: "",
    created: now, changed: now, messages: [],
  };
}

// A talk as one of ours; undefined: it is none. Everything else that it holds is left out.
function checked(talk) {
  const messages = talk?.messages;
  if (!Array.isArray(messages) || !messages.every((one) =>
    ROLES.includes(one?.role) && typeof one.content === "string")) return undefined;
  const text = (value) => typeof value === "string" ? value : "";
  const time = (value) => Number.isFinite(value) ? value : Date.now();
  return {
    id: text(talk.id), title: text(talk.title), system: text(talk.system),
    created: time(talk.created), changed: time(talk.changed),
    messages: messages.map(({role, content, info, total}) =>
      ({role, content, info: text(info), total: Number(total) || undefined})),
  };
}

// The newest first.
export function allTalks() {
  return namesWith(BEGIN).map((name) => checked(load(name))).filter((talk) => talk?.id)
    .sort((a, b) => b.changed - a.changed);
}

// False: the browser keeps no more.
export function keepTalk(talk) {
  talk.changed = Date.now();
  const first = talk.messages.find((one) => one.role === "user")?.content.trim() ?? "";
  const line = first.split("\n")[0];
  talk.title = line.length > TITLE_CHARS ? `${line.slice(0, TITLE_CHARS - 1)}…` : line;
  return save(BEGIN + talk.id, talk);
}

export function forgetTalk(talk) {
  forget(BEGIN + talk.id);
}

export function isTalk(name) {
  return name.startsWith(BEGIN);
}

// ---- files ----

export function markdownOf(talk) {
  const names = {user: "You", assistant: "Answer"};
  const parts = talk.messages.map((one) => `## ${names[one.role]}\n\n${one.content.trim()}\n`);
  if (talk.system) parts.unshift(`## System prompt\n\n${talk.system.trim()}\n`);
  return [`# ${talk.title || "Conversation"}\n`, ...parts].join("\n");
}

export function jsonOf(talk) {
  return `${JSON.stringify(talk, null, 2)}\n`;
}

// A conversation out of such a file, under a new name; undefined: it is none.
export function talkOfJson(text) {
  try {
    const talk = checked(JSON.parse(text));
    return talk && {...talk, id: newTalk().id};
  } catch {
    return undefined;
  }
}

// ---- requests ----

// Messages as a text for a model that has no chat template, and where an answer to it ends.
const SPEAKERS = {system: "System", user: "User", assistant: "Assistant"};
export const PLAIN_STOPS = ["\nUser:", "\nSystem:"];

export function plainPromptOf(messages) {
  const lines = messages.map((one) => `${SPEAKERS[one.role]}: ${one.content.trim()}`);
  return `${lines.join("\n")}\nAssistant:`;
}
