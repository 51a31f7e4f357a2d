// The beginning: which view is shown, what server this is, and the key.
import {getJson, getText, key, setKey} from "./api.js";
import {Chat} from "./chat.js";
import {Compare} from "./compare.js";
import {byId, count, say} from "./dom.js";
import {Live} from "./live.js";
import {startMarks} from "./marks.js";
import {Play} from "./play.js";

const VIEWS = ["play", "chat", "compare", "live"];
const EVERY_MS = 2000;

startMarks();
const play = new Play();
const chat = new Chat();
const compare = new Compare();
const live = new Live();
let isServing = false; // as far as is known
let timer;

// ---- views ----

function showView(name) {
  for (const view of VIEWS) byId(view).hidden = view !== name;
  for (const link of document.querySelectorAll("[data-view]")) {
    if (link.dataset.view === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  live.setShown(name === "live");
  chat.setShown(name === "chat");
}

// Addresses with another # (the skip link's) leave the view as it is.
function followAddress() {
  const name = location.hash.slice(1) || "play";
  if (VIEWS.includes(name)) showView(name);
}

// ---- the server ----

function setStatus(state, text) {
  byId("status").dataset.state = state;
  if (byId("status").textContent !== text) byId("status").textContent = text;
}

// A message of the server as a sentence of its own.
function sentence(text) {
  const own = text.trim();
  return own.charAt(0).toUpperCase() + own.slice(1) + (/[.!?]$/.test(own) ? "" : ".");
}

const REFUSES = /^the target group is not there: (\S+) is not available: nothing listens there$/;

// Why nothing is served, and that nobody has to do anything on this page.
function outageOf({status, message}) {
  if (!status) return `${sentence(message)} This page asks again and goes on by itself.`;
  const [, address] = REFUSES.exec(message) ?? [];
  return address ? `The target group at ${address} refuses connections; waiting for it.`
    : `${sentence(message)} This page waits and goes on by itself.`;
}

// Asks /ready, which wants no key. While there is no group, why there is none is shown, and
// what can be asked of the server is read again as soon as there is one.
async function watch() {
  clearTimeout(timer);
  if (document.hidden) return;
  const outage = await getText("ready").then(() => undefined, (error) => error);
  say(byId("outage"), outage ? outageOf(outage) : "");
  if (outage) setStatus("down", outage.status ? "not serving" : "no answer");
  isServing = !outage && (isServing || await readServer());
  timer = setTimeout(watch, EVERY_MS);
}

// False: it has to be asked again.
async function readServer() {
  try {
    const [version, models] = await Promise.all([getJson("version"), getJson("v1/models")]);
    const {features} = version, model = models.data[0];
    play.setServer(features, model);
    chat.setServer(features, model);
    compare.setServer(features);
    byId("key-box").hidden = !features.keys && !key();
    byId("model").textContent = model
      ? `${model.id} · context ${count(model.max_model_len)} tokens` : "";
    byId("model").title = `Outrider ${version.version}`;
    setStatus("up", "serving");
    return true;
  } catch (error) {
    setStatus("down", error.status === 401 ? "needs another key" : "no answer");
    if (error.status === 401) {
      byId("key-box").hidden = false;
      byId("key-box").open = true;
    }
    return error.status === 401;
  }
}

// ---- the key ----

function listenForKey() {
  byId("key").value = key();
  byId("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    setKey(byId("key").value.trim());
    byId("key-box").open = false;
    byId("key-box").querySelector("summary").focus();
    readServer();
    live.start();
  });
  byId("key-box").addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !byId("key-box").open) return;
    byId("key-box").open = false;
    byId("key-box").querySelector("summary").focus();
  });
  byId("key-box").addEventListener("toggle", () => {
    if (byId("key-box").open) byId("key").focus();
  });
}

addEventListener("hashchange", followAddress);
document.addEventListener("visibilitychange", watch);
followAddress();
listenForKey();
watch();
live.start();
