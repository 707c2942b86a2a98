// One card for each request that waits, one row for everything else. Makes elements, decides nothing.

import { ago, element, safe } from "./text.js";

function when(at, now) {
  const shown = element("time", "when", ago(at, now));
  shown.dataset.at = at;
  shown.title = new Date(at * 1000).toLocaleString();
  return shown;
}

function subject(request) {
  return safe(`${request.subject.type}:${request.subject.name}`);
}

function sentence(request) {
  const line = element("p", "sentence", element("b", "", subject(request)), ` wants to ${request.verb} `);
  line.append(safe(request.resource.target, "target"));
  const own = `${request.subject.type}:${request.subject.name}`;
  const chain = request.chain.filter((name) => name !== own);
  if (chain.length) line.append(" on behalf of ", safe(chain.join(" > ")));
  line.append(element("span", "often", request.count === 1 ? ", asked once." : `, asked ${request.count} times.`));
  return line;
}

function facts(request, now) {
  const seen = element("li", "", "last asked ", when(request.last_seen, now));
  if (request.count > 1) seen.append(", first ", when(request.first_seen, now));
  const origin = request.origin;
  const session = origin.has_session_key ? `session key: yes (${origin.session})` : "session key: no";
  const list = element("ul", "facts", seen, element("li", "", session));
  list.append(element("li", "", request.resume.resumable ? "resumes by itself after approval" : "not resumable"));
  list.append(element("li", "", "chain: ", safe(request.chain.join(" > "))));
  if (origin.user_id !== null) list.append(element("li", "", "user: ", safe(String(origin.user_id))));
  if (origin.task_id !== null) list.append(element("li", "", "task: ", safe(String(origin.task_id))));
  return list;
}

function rule(request, resource) {
  const who = `${request.subject.type}:${request.subject.name}`;
  return safe(`${who}  ${resource.type}  ${resource.operation}  ${resource.target}`, "rule");
}

function stores(request, widen, onWiden) {
  const chosen = widen ? request.wider.resource : request.resource;
  const words = widen ? "Approving stores exactly this rule (denying, only what was asked):" : "Your answer stores exactly this rule:";
  const box = element("div", "stores", words, rule(request, chosen));
  if (!request.wider || request.cut) return box;
  const check = element("input");
  check.type = "checkbox";
  check.checked = widen;
  check.dataset.act = "widen";
  check.addEventListener("change", () => onWiden(check.checked));
  const whole = request.resource.type === "filesystem" ? "Approve the whole folder " : "Approve the whole origin ";
  box.append(element("label", "wider", check, element("span", "", whole, safe(request.wider.resource.target, "target"))));
  if (widen) box.append(element("div", "opens", "An approval then opens ", safe(request.wider.opens), "."));
  return box;
}

function button(words, classes, scope, act) {
  const made = element("button", classes, words);
  made.type = "button";
  made.dataset.act = scope;
  made.addEventListener("click", () => act(scope));
  return made;
}

export function card(request, now, { widen, onWiden, act }) {
  const made = element("article", `card ${request.resource.type}`);
  made.tabIndex = 0;
  made.dataset.id = request.id;
  made.append(element("div", "label", request.label), sentence(request), facts(request, now));
  made.append(stores(request, widen, onWiden));
  const buttons = element("div", "buttons", button("Deny", "deny", "denied", act));
  if (request.cut) {
    buttons.append(element("span", "why", "The target is too long to show, so it cannot be approved here."));
  } else {
    if (request.held) buttons.append(button("Let through once", "allow", "once", act));
    if (request.origin.has_session_key) buttons.append(button("Approve for the session", "allow", "session", act));
    buttons.append(button("Approve permanently", "allow", "permanent", act));
    if (request.no_session) buttons.append(element("span", "why", `Not for a session: ${request.no_session}`));
  }
  made.append(buttons);
  return made;
}

export function row(tag, tagClass, what, at, now, action) {
  const made = element("div", "row", element("span", `tag ${tagClass}`, tag), element("span", "what", what));
  if (at !== null) made.append(when(at, now));
  if (action) made.append(action);
  return made;
}

export function quietButton(words, name, act) {
  const made = element("button", "quiet", words);
  made.type = "button";
  made.dataset.act = name;
  made.addEventListener("click", act);
  return made;
}
