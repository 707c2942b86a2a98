from __future__ import annotations

import pytest

from democrai_osguard_helper.main import serve


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--instance", "../x"], "1 to 8 of a-z and 0-9"),
        (["--instance", "toolongname"], "1 to 8 of a-z and 0-9"),
        (["--layers", "bpf,magic"], "some of bpf, firewall"),
        (["--group", "nosuchgroup"], "there is no group 'nosuchgroup'"),
        (["--socket", "helper.sock"], "--socket: expected an absolute path"),
        (["--state", "state"], "--state: expected an absolute path"),
        (["--resolver-socket", ""], "--resolver-socket: expected an absolute path"),
        (["--refresh-seconds", "nan"], "more than 0 and at most 3600 seconds"),
        (["--refresh-seconds", "-1"], "more than 0 and at most 3600 seconds"),
        (["--refresh-seconds", "0"], "more than 0 and at most 3600 seconds"),
        (["--refresh-seconds", "inf"], "more than 0 and at most 3600 seconds"),
        (["--refresh-seconds", "soon"], "more than 0 and at most 3600 seconds"),
        (["--ready-boxes", "-3"], "0 to 64"),
        (["--ready-boxes", "65"], "0 to 64"),
        (["--may-leave", "everything"], "--may-leave: some of ingress, egress"),
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


def test_who_is_not_root_is_told_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert serve([]) == 1
    assert capsys.readouterr().err == "democrai-osguard-helper: only root can hold egress\n"
