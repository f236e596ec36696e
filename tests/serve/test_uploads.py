"""Files of a request: a single body, and forms with several files."""

from __future__ import annotations

import pytest

from graphcaps.serve.limits import RequestError
from graphcaps.serve.uploads import Upload, read_uploads

FORM = "multipart/form-data; boundary=cut"


def part(name: str, content: bytes, content_type: str = "") -> bytes:
    """A file of a form; skips the test where forms cannot be read."""
    pytest.importorskip(
        "python_multipart", reason="python-multipart is not installed: pip install 'graphcaps[serve]'"
    )
    lines = [f'--cut\r\nContent-Disposition: form-data; name="file"; filename="{name}"']
    lines += [f"Content-Type: {content_type}"] if content_type else []
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content + b"\r\n"


def test_a_single_file() -> None:
    assert read_uploads("Text/CSV; charset=utf-8", b"a,b") == [Upload("request.csv", "text/csv", b"a,b")]


def test_files_of_a_form_lose_their_folders_and_fields_are_ignored() -> None:
    field = b'--cut\r\nContent-Disposition: form-data; name="note"\r\n\r\ntext\r\n'
    large = b"x" * 3_000_000  # more than a parser keeps in memory
    body = part("../up/a.csv", b"1\r\n\r\n2", "text/csv; charset=utf-8") + field + part("C:\\b.xml", large)
    first, second = read_uploads(FORM, body + b"--cut--\r\n")
    assert first == Upload("a.csv", "text/csv", b"1\r\n\r\n2")
    assert (second.name, second.content_type, second.content == large) == ("b.xml", "", True)


def test_a_form_that_was_cut_off_is_rejected() -> None:
    form = part("a.csv", b"1") + part("b.csv", b"2")
    for body in (form, form[:-10], form + b"--cu"):
        with pytest.raises(RequestError, match="closing boundary") as caught:
            read_uploads(FORM, body)
        assert caught.value.status == 422


@pytest.mark.parametrize(
    ("kind", "body", "message"),
    [
        (
            "multipart/form-data",
            b"x",
            "upload: expected a boundary in the content type multipart/form-data, found none.",
        ),
        (
            FORM,
            b"abc",
            "upload: expected files that are separated by the boundary of the content type, found other content.",
        ),
        (
            FORM,
            b"--cut\r\nno heading\r\n--cut--",
            "upload: expected files that are separated by the boundary of the content type, found other content.",
        ),
    ],
)
def test_a_malformed_form_is_explained_to_the_client_and_not_logged(
    kind: str, body: bytes, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    part("a.csv", b"")  # skips the test without python-multipart
    with pytest.raises(RequestError) as caught:
        read_uploads(kind, body)
    assert (caught.value.status, str(caught.value)) == (422, message)
    assert caplog.records == []


def test_the_format_follows_the_name_and_else_the_content_type() -> None:
    assert Upload("a.GraphML", "text/csv", b"").format == ".xml"
    assert Upload("a", "text/csv", b"").format == ".csv"
    with pytest.raises(RequestError, match=r"found 'a\.pdf'") as caught:
        _ = Upload("a.pdf", "application/pdf", b"").format
    assert caught.value.status == 415
