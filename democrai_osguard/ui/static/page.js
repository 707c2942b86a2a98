// The live page: asks for changes, draws them, sends decisions. What is not known to be current
// cannot be decided.

import { card, quietButton, row } from "./cards.js";
import { ago, element, plain, safe } from "./text.js";

const CALM = 500; // milliseconds after the list has moved in which clicks decide nothing
const UNDO = 15000;
const token = localStorage.getItem("osguard-token") || "";
const byId = (id) => document.getElementById(id);

let state = null;
let skew = 0; // the server's clock minus ours, in seconds
let moved = -Infinity;
let undoable = null;
let toastTimer = 0;
const widened = new Set();
const known = new Set();

const now = () => Date.now() / 1000 + skew;

async function call(path, body) {
  const options = { headers: { "X-Osguard-Token": token }, cache: "no-store" };
  if (body) {
    options.method = "POST";
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  const response = await fetch(path, options);
  const answer = await response.json().catch(() => ({ message: "the server gave no answer" }));
  if (!response.ok) throw Object.assign(new Error(answer.message), { status: response.status });
  return answer;
}

function live(on, words) {
  byId("live").className = `live ${on ? "on" : "off"}`;
  byId("live").textContent = words;
  for (const made of byId("waiting").querySelectorAll("button, input")) made.disabled = !on;
}

async function follow() {
  for (;;) {
    try {
      const after = state ? state.revision : -1;
      const answer = await call(`/api/state?after=${after}`);
      skew = answer.now - Date.now() / 1000;
      state = answer;
      draw();
      live(true, "live");
    } catch (error) {
      const closed = error.status === 401;
      live(false, closed ? "closed: open a fresh link from the terminal" : "not connected; nothing can be decided");
      if (closed) return;
      await new Promise((resolve) => setTimeout(resolve, 1000));
    }
  }
}

function matches(text) {
  return plain(text).toLowerCase().includes(byId("filter").value.trim().toLowerCase());
}

const wordsOf = (each) => `${each.label} ${each.subject.type}:${each.subject.name} ${each.resource.target} ${(each.chain || []).join(" ")} ${each.scope || ""} ${each.by || each.decided_by || ""}`;

function settle() {
  moved = performance.now();
  const list = byId("waiting");
  list.classList.add("calm");
  setTimeout(() => performance.now() - moved >= CALM - 5 && list.classList.remove("calm"), CALM);
}

function announce(requests) {
  const fresh = requests.filter((each) => !known.has(each.id));
  const first = known.size === 0;
  fresh.forEach((each) => known.add(each.id));
  document.title = requests.length ? `(${requests.length}) Approvals` : "Approvals";
  if (!first && fresh.length) byId("announce").textContent = fresh.map((each) => `New request: ${each.label}`).join(". ");
}

// A card that shows the same rule stays the same element, so that a click in progress is not lost.
const cards = new Map();

function cardOf(request) {
  const { count, last_seen, ...lasting } = request;
  const key = JSON.stringify([lasting, widened.has(request.id)]);
  const kept = cards.get(request.id);
  const made = card(request, now(), {
    widen: widened.has(request.id),
    onWiden: (on) => { widened[on ? "add" : "delete"](request.id); drawWaiting(); },
    act: (scope) => decide(request, scope),
  });
  if (kept?.key === key) {
    for (const part of [".facts", ".often"]) kept.made.querySelector(part).replaceWith(made.querySelector(part));
    return kept.made;
  }
  cards.set(request.id, { key, made });
  return made;
}

function drawWaiting() {
  const list = byId("waiting");
  const focus = document.activeElement?.closest?.(".card")?.dataset.id;
  const focusAct = document.activeElement?.dataset?.act;
  const before = [...list.children];
  const shown = state.pending.filter((each) => matches(wordsOf(each)));
  const after = shown.map(cardOf);
  if (before.length !== after.length || before.some((each, place) => each !== after[place])) {
    list.replaceChildren(...after);
    settle();
    const again = focus && after.find((each) => each.dataset.id === focus);
    if (again) (again.querySelector(`[data-act="${focusAct}"]`) || again).focus({ preventScroll: true });
  }
  byId("waiting-count").textContent = state.pending_count;
  byId("waiting-none").hidden = state.pending_count > 0;
  announce(state.pending);
}

function fill(name, made, count) {
  byId(name).replaceChildren(...made);
  byId(`${name}-none`)?.toggleAttribute("hidden", made.length > 0);
  if (byId(`${name}-count`)) byId(`${name}-count`).textContent = count;
}

function standingRow(each) {
  const words = element("span", "", element("b", "", safe(`${each.subject.type}:${each.subject.name}`)), ` ${each.label} `, safe(each.resource.target, "target"));
  if (each.session) words.append(` in session ${each.session}`);
  const revoke = quietButton("Revoke", "revoke", () => change("/api/revoke", { decision: each.id }, "Revoked."));
  return row(each.scope, each.scope, words, each.decided_at, now(), revoke);
}

function historyRow(each) {
  const undo = each.undoable && now() - each.at < 60 ? quietButton("Undo", "undo", () => takeBack(each.id)) : null;
  return row(each.act.replace("_", " "), each.act, safe(each.words), each.at, now(), undo);
}

// On whose word a sandbox is listed: a process can say anything about itself.
const KNOWN = {
  helper: ["held", "named by the helper", "session"],
  kernel: ["confined", "held by the kernel; the name is its own word", "once"],
  itself: ["unverified", "only says that it is a sandbox; the kernel does not confine it", "denied"],
};

function sandboxRow(each) {
  const [tag, why, tagClass] = KNOWN[each.known_from];
  const refused = state.refusals.reduce((sum, refusal) => sum + (refusal.subject === each.subject ? refusal.count : 0), 0);
  const words = element("span", "", element("b", "", safe(each.subject)), ` pid ${each.pid} `, safe(each.command, "target"));
  words.append(element("span", "word", ` ${why}`));
  if (refused) words.append(`, its subject refused ${refused} time${refused === 1 ? "" : "s"} lately`);
  return row(tag, tagClass, words, null, now());
}

function refusalRow(each) {
  const words = element("span", "", element("b", "", safe(each.subject)), ` ${plain(each.what)} `, safe(each.target, "target"));
  if (each.count > 1) words.append(` ${each.count} times`);
  return row(each.code === "denied" ? "denied" : "not allowed", each.code === "denied" ? "denied" : "once", words, each.at, now());
}

function draw() {
  drawWaiting();
  fill("standing", state.standing.filter((each) => matches(wordsOf(each))).map(standingRow), state.standing_count);
  fill("history", state.history.filter((each) => matches(wordsOf(each) + each.words)).map(historyRow), state.history.length);
  fill("sandboxes", state.sandboxes.filter((each) => matches(`${each.subject} ${each.command}`)).map(sandboxRow), state.sandboxes.length);
  fill("refusals", state.refusals.filter((each) => matches(`${each.subject} ${each.target}`)).map(refusalRow), state.refusals.length);
  byId("refusals-box").hidden = state.refusals.length === 0;
  byId("operator").textContent = plain(state.operator);
}

function toast(words, decision = null) {
  undoable = decision;
  byId("toast-words").textContent = words;
  byId("toast-undo").hidden = decision === null;
  byId("toast").hidden = false;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => { byId("toast").hidden = true; undoable = null; }, UNDO);
}

async function change(path, body, words) {
  try {
    const answer = await call(path, body);
    if (!answer.applied) toast(answer.words);
    else if (words) toast(words);
    return answer;
  } catch (error) {
    toast(error.message);
    return null;
  }
}

async function decide(request, scope) {
  if (performance.now() - moved < CALM) return;
  const widen = scope !== "denied" && scope !== "once" && widened.has(request.id);
  const resource = widen ? request.wider.resource : request.resource;
  const answer = await change("/api/decide", { request: request.id, scope, widen, resource });
  if (answer?.applied) {
    const also = answer.settled.length ? ` This also answers ${answer.settled.length} more.` : "";
    const did = { denied: "Denied", session: "Approved for the session", permanent: "Approved permanently", once: "Let through once" };
    toast(`${did[scope]}: ${plain(request.label)} for ${plain(request.subject.name)}.${also}`, answer.decision);
  }
}

async function takeBack(decision) {
  const answer = await change("/api/undo", { decision }, "Taken back.");
  if (answer && !answer.agrees) toast("Taken back, but what waited behind it had already gone on.");
}

function choose(step) {
  const cards = [...byId("waiting").children];
  const at = cards.indexOf(document.activeElement?.closest?.(".card"));
  const next = cards[Math.max(0, Math.min(cards.length - 1, at < 0 ? 0 : at + step))];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

const PRESSED = { d: "denied", s: "session", p: "permanent", o: "once", w: "widen" };

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  if (event.target.matches("input[type=search]")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const chosen = document.activeElement?.closest?.(".card");
  if (event.key === "j") choose(1);
  else if (event.key === "k") choose(-1);
  else if (event.key === "u" && undoable !== null) takeBack(undoable);
  else if (event.key === "/") { event.preventDefault(); byId("filter").focus(); }
  else if (chosen && event.key === "Enter" && event.target === chosen) chosen.querySelector("[data-act=denied]").click();
  else if (chosen && PRESSED[event.key]) chosen.querySelector(`[data-act=${PRESSED[event.key]}]`)?.click();
});

byId("filter").addEventListener("input", () => state && draw());
byId("toast-undo").addEventListener("click", () => undoable !== null && takeBack(undoable));
byId("leave").addEventListener("click", async () => {
  await change("/api/leave", {});
  localStorage.removeItem("osguard-token");
  location.reload();
});
setInterval(() => {
  for (const shown of document.querySelectorAll("time.when")) shown.textContent = ago(Number(shown.dataset.at), now());
}, 1000);
follow();
