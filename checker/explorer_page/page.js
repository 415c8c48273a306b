"use strict";
// A walk is a path of numbers in the fragment: #KEY/3.0.12, KEY naming the scenario. The fragment is
// the only state of the page: every move sets it, and drawing follows from it, so that the browser's
// own Back, a reload and a copied link all do what they should.

const MOST_RADIOS = 8; // more options than this become a list
const VERDICTS = { PROVED: "good", HOLDS: "good", VIOLATED: "bad", INCONCLUSIVE: "warn" };
let overview = null;
let drawn = 0; // of the latest drawing; an answer that comes late is dropped

const $ = (id) => document.getElementById(id);

function make(tag, attributes = {}, ...content) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick") node.addEventListener("click", value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null) node.setAttribute(name, value);
  }
  node.append(...content);
  return node;
}

async function ask(url) {
  const answer = await fetch(url);
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.error);
  return told;
}

function say(words) {
  $("message").textContent = words;
  $("message").hidden = !words;
}

function currentPath() {
  const [key, path = ""] = decodeURIComponent(location.hash.slice(1)).split("/");
  if (key && key !== overview.key) {
    throw new Error("This link is of another scenario, so it is not followed. This is the start of the one that is served.");
  }
  return path ? path.split(".") : [];
}

function go(path) {
  const fragment = `#${overview.key}/${path.join(".")}`;
  if (fragment === location.hash) draw();
  else location.hash = fragment;
}

// --- drawing ----------------------------------------------------------------------------------

const guarded = (act) => async (...given) => {
  try {
    await act(...given);
  } catch (error) {
    say(`The page has lost its server (${error.message}). Start check explore again and reload.`);
  }
};

const draw = guarded(async () => {
  const mine = ++drawn;
  let words = "";
  let view;
  try {
    view = await ask("api/walk?path=" + encodeURIComponent(currentPath().join(".")));
  } catch (error) {
    words = error.message;
    view = await ask("api/walk");
  }
  if (mine !== drawn) return;
  say(words);
  $("copied").textContent = "";
  $("step").textContent = view.state ? `Step ${view.path.length - 1}` : "Before the first step";
  $("back").disabled = $("restart").disabled = view.path.length === 0;
  $("findings").replaceChildren(...findings(view));
  $("state").replaceChildren(...(view.state ? state(view) : []));
  $("choices").replaceChildren(...choices(view));
  $("history").replaceChildren(...history(view));
  document.body.dataset.path = view.path.join(".");
});

function findings(view) {
  const found = (view.violates || []).map((one) =>
    make("p", { class: "finding" }, make("strong", { class: "bad" }, `This step violates ${one.name}`), one.finding));
  if (view.repeats !== null && view.repeats !== undefined) {
    const words = `${view.path.length - 1 - view.repeats} steps later nothing has changed: from here the run can repeat for ever.`;
    found.push(make("p", { class: "finding warn" }, make("strong", { class: "warn" }, `The state of step ${view.repeats} again`), words));
  }
  return found;
}

function state(view) {
  const { state, decision } = view;
  const held = state.requests.map((request) => request.blocks.reduce((a, b) => a + b, 0));
  const arrived = decision.arrived.map((words) => make("p", { class: "soft" }, words));
  return [
    ...arrived,
    make("div", { class: "queues" }, queue("Running", state.running), queue("Waiting, first to be admitted first", state.waiting)),
    make("h3", {}, "The requests before the step"), table(state.requests),
    make("h3", {}, `The pool before the step: ${state.free} of ${state.usable} blocks free`), pool(held, state.usable),
    make("h3", {}, "The scheduler decides"),
    list(decision.what),
    make("h3", {}, `The pool in the step: ${decision.free} of ${state.usable} blocks free`), pool(decision.blocks, state.usable),
  ];
}

const shade = (id) => `c${overview.ids.indexOf(id) % 8}`;

function queue(name, ids) {
  const chips = ids.map((id) => make("span", { class: `chip ${shade(id)}` }, id));
  return make("div", {}, make("h3", {}, name), ...(chips.length ? chips : [make("span", { class: "soft" }, "nobody")]));
}

function pool(held, usable) {
  const bar = make("div", { class: "pool" });
  const add = (blocks, words, title, kind) => {
    if (!blocks) return;
    const part = make("span", { class: kind, title }, words);
    part.style.flex = `${blocks} 1 0`;
    bar.append(part);
  };
  held.forEach((blocks, index) => {
    const id = overview.ids[index];
    add(blocks, `${id} ${blocks}`, `${id} holds ${blocks} blocks`, shade(id));
  });
  const free = usable - held.reduce((a, b) => a + b, 0);
  add(free, `${free} free`, `${free} blocks free`, "free");
  return bar;
}

function table(requests) {
  const here = requests.filter((request) => request.phase !== "unarrived");
  const heads = ["request", "phase", "computed", "known", "emitted", "drafts", "blocks"];
  const row = (request) => make("tr", {}, ...[
    request.id, request.phase,
    ...(request.phase === "finished" ? ["", "", "", "", ""] : [request.computed, request.known, request.outputs, request.drafts, request.blocks.join(" + ")]),
  ].map((cell) => make("td", {}, String(cell))));
  return make("table", {},
    make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", {}, head)))),
    make("tbody", {}, ...here.map(row)));
}

const list = (lines) => make("ul", { class: "plain" }, ...lines.map((line) => make("li", {}, line)));

// --- choosing ---------------------------------------------------------------------------------

function choices(view) {
  const { answers, arrivals, count } = view.choices;
  if (!count) return [make("h3", {}, "Nothing follows: every request of the workload has ended.")];
  const ask = view.state ? "The environment answers" : "Who is there at the start";
  return [
    make("h3", {}, `${ask} (${count.toLocaleString("en")} ${count === 1 ? "way" : "ways"})`),
    ...answers.map((answer, number) => field(answer.id, `answer${number}`, answer.options)),
    field("Arrivals before the next step", "arrivals", arrivals.map((one) => one.words)),
    make("button", { class: "go", id: "take", type: "submit" }, view.state ? "Take the step" : "Start"),
  ];
}

function field(name, key, options) {
  const box = make("fieldset", { "data-key": key }, make("legend", {}, name));
  if (options.length === 1) {
    box.append(make("input", { type: "hidden", name: key, value: 0 }), options[0]);
  } else if (options.length > MOST_RADIOS) {
    box.append(make("select", { name: key, "aria-label": name }, ...options.map((words, value) => make("option", { value }, words))));
  } else {
    options.forEach((words, value) =>
      box.append(make("label", {}, make("input", { type: "radio", name: key, value, checked: value === 0 }), ` ${words}`)));
  }
  return box;
}

async function take(event) {
  event.preventDefault();
  const form = new FormData($("choices"));
  const path = document.body.dataset.path ? document.body.dataset.path.split(".") : [];
  const view = await ask("api/walk?path=" + path.join("."));
  const { answers, arrivals } = view.choices;
  const combined = answers.reduce((sum, answer, number) => sum * answer.options.length + Number(form.get(`answer${number}`)), 0);
  const { base, stride, offset } = arrivals[Number(form.get("arrivals"))];
  go([...path, base + combined * stride + offset]);
}

// --- beside it --------------------------------------------------------------------------------

function history(view) {
  return view.history.map((step, number) =>
    make("li", {}, make("button", { type: "button", title: `go back to step ${number}`, onclick: () => go(view.path.slice(0, number + 1)) },
      ...(step.violates.length ? [make("strong", { class: "bad" }, `violates ${step.violates.join(", ")}: `)] : []),
      step.what.join("; "))));
}

function property(one) {
  const shown = one.verdict === "VIOLATED" && !one.required ? "warn" : VERDICTS[one.verdict];
  const verdict = make("span", { class: `verdict ${shown}` }, one.verdict);
  const name = make("span", { title: one.statement }, one.name + (one.required ? "" : " (not required)"));
  const evidence = one.verdict === "HOLDS" ? make("span", { class: "soft" }, `, ${one.evidence}`) : make("div", { class: "soft" }, one.evidence);
  const item = make("li", {}, verdict, name, evidence);
  if (one.path) {
    item.append(make("button", { type: "button", "data-property": one.name, onclick: () => go(one.path) }, "Go to the violation"));
  }
  return item;
}

async function copy() {
  try {
    await navigator.clipboard.writeText(location.href);
    $("copied").textContent = "copied";
  } catch {
    $("copied").textContent = "copy it from the address bar";
  }
}

const start = guarded(async () => {
  overview = await ask("api/scenario");
  overview.ids = overview.scenario.requests.map((request) => request.id);
  $("instance").textContent = overview.instance;
  $("properties").replaceChildren(...overview.properties.map(property));
  $("choices").addEventListener("submit", guarded(take));
  $("back").addEventListener("click", () => go(document.body.dataset.path.split(".").slice(0, -1)));
  $("restart").addEventListener("click", () => go([]));
  $("copy").addEventListener("click", copy);
  addEventListener("hashchange", draw);
  await draw();
});

start();
