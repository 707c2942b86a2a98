"""The examples of the SDK's page run as they stand there, inside a guard."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from sdk.host import Host, rule

from democrai_osguard import runtime

PAGE = Path(__file__).resolve().parent.parent.parent / "docs/sdk.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_there_are_examples_of_both_parts() -> None:
    text = "\n".join(EXAMPLES)
    for name in ("check_external_access", "require_external_access", "run_blocking",
                 "run_subprocess", "run_subprocess_sync"):  # fmt: skip
        assert f"{name}(" in text


@pytest.mark.needs("landlock", "seccomp")
@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_runs(host: Host, number: int) -> None:
    runtime.use_approvals(host.service)
    example = EXAMPLES[number]
    waits = "await " in example
    body = "\n".join(f"    {line}" for line in example.splitlines())
    kind = "async def" if waits else "def"
    main = host.load(
        f"from democrai_osguard import sdk\n\n{kind} main():\n{body}\n    return locals()\n"
    )
    programs = tuple(rule("system_dependency", "execute", name) for name in ("sort", "cat"))
    with host.guard(access=programs):
        found = asyncio.run(main()) if waits else main()
    if "output" in found:
        assert (found["words"], found["output"]) == (["a", "b"], b"a\nb\n")
    elif "shown" in found:
        assert found["shown"] == b""  # there is no such file, so nobody is asked
    elif "done" in found:
        assert found["done"].stdout == b"hello"
    else:
        assert found["answer"].requires_approval
        (request,) = host.service.list_requests()
        assert request.resumable is ("resume_action" in example)
