"""What other sandboxes call their options, and which of ours does that; for an error's words alone.

No word here works: an operation that another one implies elsewhere is a right of its own here.
"""

from __future__ import annotations

_READING = "reading is --read"
_WRITING = "writing is --create (new), --modify (existing) and --delete"
_NETWORK = "reaching the network is --connect HOST:PORT"
_NO_NETWORK = "without --connect there is no network"
_STARTING = "starting programs is --execute"
_VARIABLES = "the command inherits variables; --keep-env keeps one that looks like a secret"
_EACH = "each operation has an option of its own, such as --read; --help lists them"

# What bubblewrap, firejail, landrun, containers, deno and node say, and what people guess.
_WORDS = {
    _READING: "--allow-fs-read --allow-read --read-only --readonly --ro --ro-bind --ro-bind-try",
    _WRITING: "--allow-fs-write --allow-write --write",
    f"{_READING}; {_WRITING}": "--bind --bind-try --dir --read-write --rw --volume --whitelist",
    f"{_READING}; {_STARTING}": "--rox",
    f"{_READING}; {_WRITING}; {_STARTING}": "--rwx",
    _NETWORK: "--allow-net --allow-network --connect-tcp --net --network --share-net",
    _NO_NETWORK: "--deny-net --no-net --no-network --unshare-net",
    _STARTING: "--allow-child-process --allow-exec --allow-run --exec --run",
    _VARIABLES: "--allow-env --env --setenv",
    _EACH: "--allow --allow-all --grant --permit",
}
ADVICE = {word: advice for advice, words in _WORDS.items() for word in words.split()}
