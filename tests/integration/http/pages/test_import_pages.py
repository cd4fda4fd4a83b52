"""Imports on the page: who asked for what, what is kept, and the button that discards it."""

from __future__ import annotations

from tests.integration.http.conftest import Client, Company


def uploaded(client: Client, name: str, data: bytes) -> str:
    upload = str(client.post("/uploads", json={"name": name, "size_bytes": len(data)}).json()["id"])
    assert client.patch(f"/uploads/{upload}", content=data, headers={"Upload-Offset": "0"}).status_code == 204
    assert client.post(f"/uploads/{upload}/complete").status_code == 200
    return upload


def test_the_page_shows_kept_uploads_and_discards_them(company: Company) -> None:
    with company.client("admin") as admin, company.client("auditor") as auditor:
        form = {"csrf": admin.headers["X-CSRF-Token"], "mailbox": "dora@example.org"}
        upload = uploaded(admin, "dora's <mail>.mbox", b"no mail")
        started = admin.post(f"{company.url}/sources/import", data={**form, "uploads": upload})
        assert started.status_code == 303, started.text
        source = company.url + started.headers["location"]
        assert "dora&#39;s &lt;mail&gt;.mbox" in admin.get(source).text
        assert str(company.settings.archiver_data) not in admin.get(source).text
        assert "still stored" not in admin.get(f"{company.url}/sources").text, "it waits for its turn"
        company.act("UPDATE imports SET outcome = 'failed', message = 'it broke', finished_at = now()")
        company.act("DELETE FROM outbox")
        assert "1 upload is still stored because its import did not succeed" in admin.get(f"{company.url}/sources").text
        page = admin.get(source).text
        assert "it broke" in page
        assert "The uploaded files are still stored." in page
        item = company.value("SELECT id FROM imports")
        action = f"/sources/imports/{item}/discard"
        assert action in page
        assert action not in auditor.get(source).text
        assert auditor.post(company.url + action, data={"csrf": auditor.headers["X-CSRF-Token"]}).status_code == 403
        assert admin.post(company.url + action, data=form).status_code == 303
        assert action not in admin.get(source).text
        assert "still stored" not in admin.get(f"{company.url}/sources").text
    assert list((company.settings.archiver_data / "uploads").iterdir()) == []
