"""What the fuzzers feed: texts and documents that are nearly right, and some that are not."""

from __future__ import annotations

import json

from hypothesis import strategies as st

# Pieces that parsers disagree about, glued together at random.
_NETWORK = (
    "http", "https", "ftp", "://", ":", "//", "/", "\\", "@", "[", "]", "::1", "::ffff:",
    "127.0.0.1", "0x7f", "0177", "1", "256", "65535", "65536", "*", "*.", ".", "..", "%2e", "%00",
    "%", "com", "example", "xn--", "\xdf", "\xe9", "\u3002", "\u200b", "#", "?", "a=b", "-", "_",
    " ", "\t", "\n", "\0", "/24", "/129", "localhost", "user:pw", "\u2126", "\ud800", "+", "0",
    "00", "fe80::1%eth0",
)  # fmt: skip
_PATH = (
    "/", "//", ".", "..", "~", "~root", "{data_dir}", "{temp_dir}", "{", "}", "proc", "self",
    "root", "cwd", "etc", "tmp", "a", "b", " ", "\0", "\n", "\udcff", "\xe9", "*", "fd", "0",
    "x" * 300,
)  # fmt: skip
pieces = st.text(max_size=6)
networks = st.lists(st.sampled_from(_NETWORK) | pieces, max_size=9).map("".join)
paths = st.lists(st.sampled_from(_PATH) | pieces, max_size=12).map("".join)
dependencies = st.text("abcXYZ019._+-/ \n\0é", max_size=20)

OPERATIONS = {
    "filesystem": ("read", "create", "modify", "delete", "execute"),
    "network": ("connect", "receive", "send"),
    "system_dependency": ("execute",),
}
_TARGETS = {"filesystem": paths, "network": networks, "system_dependency": dependencies}
scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=8)
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)


@st.composite
def rules(draw: st.DrawFn) -> object:
    """Draw a rule as JSON has it: mostly right, sometimes with one thing wrong."""
    kind = draw(st.sampled_from(list(OPERATIONS)))
    rule: dict[str, object] = {
        "resource_type": kind,
        "operation": draw(st.sampled_from(OPERATIONS[kind])),
        "target": draw(_TARGETS[kind]),
    }
    match draw(st.integers(0, 11)):
        case 0:
            rule[draw(st.sampled_from(list(rule)))] = draw(values)
        case 1:
            del rule[draw(st.sampled_from(list(rule)))]
        case 2:
            rule[draw(st.text(max_size=8))] = draw(values)
        case 3:
            rule["subject"] = draw(values | st.just({"type": "module", "name": "m"}))
        case 4:
            return draw(values)
    return rule


lists = st.lists(rules(), max_size=4)
_POLICY = {"access": lists | values, "allowed_imports": values}
policies = st.fixed_dictionaries({}, optional=_POLICY)
manifests = st.tuples(
    st.sampled_from(["module", "engine", "extractor", "mcp", "tool", "x"]),
    st.sampled_from([None, "runtime", "install", "x"]),
    st.fixed_dictionaries(
        {},
        optional={
            **_POLICY,
            "name": values,
            "runtime": policies | values,
            "install": policies | values,
            "endpoint": networks | values,
            "allowed_config_urls": values,
            "oops": values,
        },
    )
    | values,
)


@st.composite
def damaged(draw: st.DrawFn, texts: st.SearchStrategy[str]) -> str:
    """Draw a text, and mostly cut, double or overwrite a part of it."""
    text = draw(texts)
    start, end = sorted(draw(st.tuples(*[st.integers(0, len(text))] * 2)))
    return draw(
        st.sampled_from(
            [
                text,
                text,
                text[:start] + text[end:],
                text[:end] + text[start:],
                text[:start] + draw(st.text(max_size=4)) + text[end:],
            ]
        )
    )


documents = damaged(lists.map(lambda items: json.dumps(items, ensure_ascii=True))) | st.text()
