// A request as a command for a terminal and as a program, to be copied from the page. Keys are not
// part of it: OUTRIDER_API_KEY stands in for one where the server wants one.
import {button, byId, copyText} from "./dom.js";
import {toJson} from "./form.js";

// Parameters that OpenAI's client knows; it sends others as extra_body.
const KNOWN = ["model", "prompt", "messages", "max_tokens", "temperature", "top_p", "seed", "stop"];

// Also of a browser that sends the key as a password, which it does not show.
function needsKey() {
  return !byId("key-box").hidden;
}

function addressOf(path) {
  return new URL(path, location.href).href;
}

function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

export function curlOf(path, body) {
  const lines = [`curl ${quoted(addressOf(path))}`, "-H 'Content-Type: application/json'"];
  if (needsKey()) lines.push('-H "Authorization: Bearer $OUTRIDER_API_KEY"');
  lines.push(`-d ${quoted(toJson(body, 2))}`);
  return `${lines.join(" \\\n    ")}\n`;
}

// A literal of Python. A text of JSON is one, too.
function literal(value, indent = "") {
  const deeper = `${indent}    `;
  const block = (open, items, close) => items.length
    ? `${open}\n${items.map((item) => `${deeper}${item},\n`).join("")}${indent}${close}`
    : open + close;
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) {
    return block("[", value.map((one) => literal(one, deeper)), "]");
  }
  if (typeof value === "object") {
    return block("{", Object.entries(value).map(([name, one]) =>
      `${JSON.stringify(name)}: ${literal(one, deeper)}`), "}");
  }
  return typeof value === "string" ? JSON.stringify(value) : String(value);
}

export function pythonOf(path, body) {
  const isChat = path.includes("chat");
  const named = Object.entries(body).filter(([name]) => KNOWN.includes(name));
  const others = Object.fromEntries(Object.entries(body).filter(([name]) => !KNOWN.includes(name)));
  if (Object.keys(others).length) named.push(["extra_body", others]);
  const fields = named.map(([name, value]) => `    ${name}=${literal(value, "    ")},\n`).join("");
  const api_key = needsKey() ? 'os.environ["OUTRIDER_API_KEY"]' : '"none"';
  return `${needsKey() ? "import os\n\n" : ""}from openai import OpenAI\n\n` +
    `client = OpenAI(base_url=${JSON.stringify(addressOf("v1"))}, api_key=${api_key})\n` +
    `answer = client.${isChat ? "chat.completions" : "completions"}.create(\n${fields})\n` +
    `print(answer.choices[0].${isChat ? "message.content" : "text"})\n`;
}

// A button that copies what textOf() says at that moment, and says whether that was allowed.
export function copyButton(name, textOf, attributes = {}) {
  const own = button(name, async () => {
    own.textContent = await copyText(textOf()) ? "Copied" : "Not allowed";
    setTimeout(() => { own.textContent = name; }, 1500);
  }, attributes);
  return own;
}
