"""Every target of the fuzzers: what is fed, and what must hold of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from fuzz import inputs, reading
from fuzz.standing import ChangedLog, FuzzedPage
from hypothesis import given
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable


class Target(NamedTuple):
    """A strategy, and how the check that takes what it draws is made: once for a whole run."""

    drawn: st.SearchStrategy[Any]
    check: Callable[[], Callable[[Any], None]]

    def property(self) -> Callable[[], None]:
        """Return what Hypothesis runs; settings come around it."""
        check = self.check()

        @given(self.drawn)
        def must_hold(case: object) -> None:
            try:
                check(case)
            except BaseException as error:
                error.add_note(f"fed with {case!r}")
                raise

        return must_hold


_targets = (
    st.tuples(st.just("network"), inputs.networks)
    | st.tuples(st.just("filesystem"), inputs.paths)
    | st.tuples(st.just("system_dependency"), inputs.dependencies)
)
_endpoint = st.fixed_dictionaries(
    {
        "network": st.sampled_from(["198.18.0.1", "::/0", "1.2.3.4/8"]) | inputs.networks,
        "port": st.none() | st.integers(-1, 70000) | inputs.scalars,
        "protocol": st.sampled_from([None, "tcp", "udp", "icmp"]) | inputs.scalars,
    }
)
_name = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["api.example.com", "*.example.com"]) | inputs.networks,
        "port": st.none() | st.integers(0, 65536),
        "protocol": st.none(),
        "within": st.lists(st.sampled_from(["10.0.0.0/8", "x"]), max_size=2),
    }
)
_message = st.fixed_dictionaries(
    {"call": st.sampled_from(["confine", "update", "revoke", "release", "list", "status", "x"])},
    optional={
        "subject": st.just({"type": "module", "name": "m"}) | inputs.values,
        "session": st.none() | inputs.scalars,
        "endpoints": st.lists(_endpoint, max_size=3) | inputs.values,
        "names": st.lists(_name, max_size=3) | inputs.values,
        "require": st.sampled_from(["full", "partial", "none"]) | inputs.scalars,
        "refresh": st.none() | st.integers(0, 4000) | inputs.scalars,
        "follows": st.sampled_from([None, "0123456789abcdef"]) | inputs.scalars,
        "sandbox": st.sampled_from(["0123456789ab", "../x"]) | inputs.scalars,
        "more": inputs.values,
    },
)
messages = inputs.damaged(_message.map(json.dumps)).map(
    lambda text: text.encode("utf-8", "surrogatepass")
) | st.binary(max_size=64)

_OPTIONS = (
    "--read", "--create", "--modify", "--delete", "--execute", "--connect", "--receive", "--send",
    "--manifest", "--phase", "--subject", "--require", "--best-effort", "--explain", "--json",
    "--keep-env", "--keep-fd", "--limit", "--receipt", "--help", "--", "-x", "full", "runtime",
    "module:m", "/srv", "example.com:443", "files=3", "memory=512m", "2", "true",
)  # fmt: skip
_word = st.sampled_from(_OPTIONS) | inputs.paths | inputs.networks | st.text(max_size=8)
_words = st.lists(_word | st.tuples(_word, _word).map("=".join), max_size=8)

_LINES = (
    "--- ", "+++ ", "--- a/", "+++ b/", "/dev/null", "@@ -1 +1 @@", "@@ -0,0 +1 @@",
    "@@ -1 +0,0 @@", "-old", "+new", " same", "diff --git a/", " b/", "rename from ", "rename to ",
    "copy from ", "copy to ", "similarity index 100%", "new file mode 100644",
    "deleted file mode 100644",
    "index 0000000..1111111", "GIT binary patch", "literal 0", "old mode 100644", "new mode 100755",
    "\n", "\n", "\n", "\n", "\t2020-01-01", '"', "\\303\\251", "\\", "x", "folder/x", "../x",
    "\xe9",
    "*** Update File: ", "*** Add File: ", "*** Delete File: ", "*** Move to: ", "\r", " ",
)  # fmt: skip
_names = st.text('abé. \t"\\/-', min_size=1, max_size=8).filter(lambda name: name.strip("/. \t"))


@st.composite
def _patches(draw: st.DrawFn) -> str:
    """Draw a patch that is mostly well formed, for names that need care."""
    old, new = draw(_names), draw(_names)
    git = draw(st.booleans())
    kind = draw(st.sampled_from(["change", "add", "delete", "rename", "mode"]))
    before = "/dev/null" if kind == "add" else f"a/{old}"
    after = "/dev/null" if kind == "delete" else f"b/{new}"
    first = f"diff --git a/{old} b/{new}\n" if git else ""
    extended = {
        "add": "new file mode 100644\n",
        "delete": "deleted file mode 100644\n",
        "rename": f"similarity index 90%\nrename from {old}\nrename to {new}\n",
        "mode": "old mode 100644\nnew mode 100755\n",
    }
    marks = {"add": "@@ -0,0 +1 @@\n+new\n", "delete": "@@ -1 +0,0 @@\n-old\n"}
    body = marks.get(kind, "@@ -1 +1 @@\n-old\n+new\n")
    head = first + (extended.get(kind, "") if git else "")
    return head if kind == "mode" and git else f"{head}--- {before}\n+++ {after}\n{body}"


patches = inputs.damaged(_patches() | st.lists(st.sampled_from(_LINES), max_size=24).map("".join))

_damage = st.tuples(
    st.integers(0, 9), st.integers(0, 20_000), st.integers(0, 3000), st.binary(max_size=40)
)
_ROUTES = (
    "/", "/?token=x", "/api/state", "/api/state?after=-1", "/api/state?after=x", "/api/decide",
    "/api/undo", "/api/revoke", "/static/page.js", "/static/../x", "/api/leave/x",
)  # fmt: skip
_call_body = st.fixed_dictionaries(
    {},
    optional={
        "request": inputs.scalars,
        "scope": st.sampled_from(["session", "permanent", "denied", "once"]) | inputs.values,
        "widen": inputs.scalars,
        "resource": inputs.values,
        "decision": inputs.scalars | st.integers(0, 40),
    },
)
_headers = st.dictionaries(
    st.sampled_from(["origin", "host", "content-type", "cookie", "x-osguard-token", "accept"]),
    st.text("abc:/.;=123", max_size=12),
    max_size=2,
)
_calls = st.tuples(
    st.sampled_from(["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS"]),
    st.sampled_from(_ROUTES),
    _call_body | inputs.values | st.binary(max_size=40),
    _headers,
    st.booleans(),
)

TARGETS: dict[str, Target] = {
    "manifest": Target(inputs.manifests, lambda: reading.manifest),
    "manifest text": Target(inputs.documents, lambda: reading.manifest_text),
    "access variable": Target(inputs.documents, lambda: reading.access_variable),
    "target": Target(_targets, lambda: reading.target),
    "helper message": Target(messages, lambda: reading.helper_message),
    "command line": Target(_words, lambda: reading.command_line),
    "patch": Target(patches, lambda: reading.patch),
    "audit log": Target(_damage, ChangedLog),
    "page": Target(_calls, FuzzedPage),
}
