// The server's API, as any client uses it. Addresses are relative, so that the page also works
// behind a proxy that puts it into a folder.

const KEY = "outrider-key";

export function key() {
  return sessionStorage.getItem(KEY) ?? "";
}

export function setKey(value) {
  if (value) sessionStorage.setItem(KEY, value);
  else sessionStorage.removeItem(KEY);
}

// What the server answered instead: a sentence, and the field that is wrong where it names one.
export class ApiError extends Error {
  constructor(status, text, field) {
    super(text);
    this.status = status;
    this.field = field;
  }
}

function headers(more = {}) {
  return key() ? {...more, Authorization: `Bearer ${key()}`} : more;
}

function errorOf(status, body) {
  const error = body?.error;
  const text = error?.message ?? `The server answered with status ${status}.`;
  if (status === 401) {
    return new ApiError(status, `${text.replace(/\.?$/, ".")} Enter an API key at the top.`);
  }
  return new ApiError(status, text, error?.param ?? undefined);
}

async function request(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The server does not answer.");
  }
  if (response.ok) return response;
  throw errorOf(response.status, await response.json().catch(() => undefined));
}

export async function getJson(path) {
  return (await request(path, {headers: headers()})).json();
}

export async function getText(path) {
  return (await request(path, {headers: headers(), cache: "no-store"})).text();
}

// ---- streams ----

function brokenOff() {
  return new ApiError(0, "The connection broke before the answer was complete.");
}

// What comes next of a stream. The browser's own word for a connection that broke ("network
// error") says too little.
async function readOn(reader) {
  try {
    return await reader.read();
  } catch (error) {
    throw error.name === "AbortError" ? error : brokenOff();
  }
}

// The data of server-sent events, one text each.
async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const {value, done} = await readOn(reader);
      if (done) return;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        const lines = block.split("\n").filter((line) => line.startsWith("data:"));
        if (lines.length) yield lines.map((line) => line.slice(5).trimStart()).join("\n");
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// A seed may have more digits than a number of JavaScript holds, so it stays text.
function parseChunk(data) {
  return JSON.parse(data.replace(/"seed":(-?\d+)(?=[,}])/, '"seed":"$1"'));
}

// Posts a request and yields the chunks of its answer. signal ends it early, with an AbortError.
export async function* stream(path, body, signal) {
  const response = await request(path, {
    method: "POST", headers: headers({"Content-Type": "application/json"}), body, signal,
  });
  for await (const data of eventsOf(response)) {
    if (data === "[DONE]") return;
    const chunk = parseChunk(data);
    if (chunk.error) throw errorOf(200, chunk);
    yield chunk;
  }
  throw brokenOff();
}
