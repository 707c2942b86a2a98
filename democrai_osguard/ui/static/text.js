// Text that nobody vouches for, put into the page as text: what cannot be seen is spelled out.

const ODD = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu;
const SHOWN = 320;

function spelled(char) {
  const code = char.codePointAt(0);
  if (code >= 0xdc80 && code <= 0xdcff) return `\\x${(code - 0xdc00).toString(16)}`;
  if (code < 0x100) return `\\x${code.toString(16).padStart(2, "0")}`;
  if (code < 0x10000) return `\\u${code.toString(16).padStart(4, "0")}`;
  return `\\U${code.toString(16).padStart(8, "0")}`;
}

export function element(name, classes, ...children) {
  const made = document.createElement(name);
  if (classes) made.className = classes;
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function pieces(text) {
  const found = [];
  let last = 0;
  for (const match of text.matchAll(ODD)) {
    if (match.index > last) found.push(text.slice(last, match.index));
    found.push(element("span", "odd", spelled(match[0])));
    last = match.index + match[0].length;
  }
  if (last < text.length) found.push(text.slice(last));
  return found;
}

// A long text shows its two ends, and all of itself when asked.
export function safe(text, classes = "") {
  const shown = element("span", classes);
  if (text.length <= SHOWN) {
    shown.append(...pieces(text));
    return shown;
  }
  const all = element("button", "more quiet", `show all ${text.length} characters`);
  all.type = "button";
  all.addEventListener("click", () => shown.replaceChildren(...pieces(text)));
  shown.append(...pieces(text.slice(0, SHOWN - 90)), " … ", ...pieces(text.slice(-80)), all);
  return shown;
}

export function plain(text) {
  return text.replace(ODD, spelled);
}

export function ago(at, now) {
  const seconds = Math.max(0, Math.floor(now - at));
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86400)} d ago`;
}
