from __future__ import annotations

import pytest

from democrai_osguard_helper.main import serve


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--instance", "../x"], "1 to 8 of a-z and 0-9"),
        (["--instance", "toolongname"], "1 to 8 of a-z and 0-9"),
        (["--layers", "bpf,magic"], "some of bpf, firewall"),
        (["--unknown"], "unrecognized arguments"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_happens(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        serve(words)
    assert caught.value.code == 2
    assert complaint in capsys.readouterr().err
