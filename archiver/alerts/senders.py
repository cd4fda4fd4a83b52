"""Sends one notice to one address: by mail, by a signed webhook, or through Apprise."""

from __future__ import annotations

import hashlib
import hmac
import smtplib
import ssl
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime
from uuid import UUID

import orjson
import requests

from archiver import __version__
from archiver.alerts.addresses import AppriseAddress, MailAddress, MailServer, NoticeAddress, WebhookAddress
from archiver.errors import ArchiverError

_SECONDS = 15
_LOCAL = ("localhost", "127.0.0.1", "::1")


class NotSent(ArchiverError):
    """The notice did not arrive; trying again later may help. The text never contains an address or a secret."""


@dataclass(frozen=True, slots=True)
class Notice:
    id: UUID
    """The same for each attempt, so that a receiver can recognise a repetition."""
    event: str
    severity: str
    rule: str
    subject: str
    title: str
    text: str
    at: datetime
    link: str


def send(notice: Notice, address: NoticeAddress) -> None:
    """Raises NotSent."""
    if isinstance(address, MailAddress):
        _send_mail(notice, address)
    elif isinstance(address, WebhookAddress):
        _post(notice, address)
    else:
        _send_by_apprise(notice, address)


def _send_mail(notice: Notice, address: MailAddress) -> None:
    try:
        with _connect(address.server) as server:
            server.send_message(compose(notice, address))
    except (OSError, smtplib.SMTPException) as error:
        raise NotSent(f"the mail server {address.server.host} did not take the message: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    if isinstance(error, smtplib.SMTPResponseException):
        text = error.smtp_error
        return f"{error.smtp_code} {text.decode('utf-8', 'replace') if isinstance(text, bytes) else text}"[:200]
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def _connect(server: MailServer) -> smtplib.SMTP:
    """A password is sent over TLS only, except to this machine."""
    context = ssl.create_default_context()
    if server.is_tls:
        found: smtplib.SMTP = smtplib.SMTP_SSL(server.host, server.port, timeout=_SECONDS, context=context)
    else:
        found = smtplib.SMTP(server.host, server.port, timeout=_SECONDS)
    try:
        is_private = server.is_tls
        if not is_private and _offers_tls(found):
            found.starttls(context=context)
            is_private = True
        if server.user and server.password:
            if not is_private and server.host not in _LOCAL:
                raise NotSent(f"the mail server {server.host} offers no TLS: the password was not sent")
            found.login(server.user, server.password)
    except BaseException:
        found.close()
        raise
    return found


def _offers_tls(server: smtplib.SMTP) -> bool:
    server.ehlo_or_helo_if_needed()
    return server.has_extn("starttls")


def compose(notice: Notice, address: MailAddress) -> EmailMessage:
    message = EmailMessage()
    message["From"], message["To"] = address.server.sender, ", ".join(address.recipients)
    message["Subject"] = " ".join(f"[Archiver] {notice.title}".split())[:200]
    message["Date"] = format_datetime(datetime.now(UTC))
    message["Message-ID"] = f"<{notice.id}@archiver.invalid>"
    message["Auto-Submitted"] = "auto-generated"
    message["X-Archiver-Event"] = notice.event
    message.set_content(f"{notice.text}\n\n{notice.link}\n")
    return message


def _post(notice: Notice, address: WebhookAddress) -> None:
    body = orjson.dumps({"version": __version__, **asdict(notice)})
    timestamp = str(int(datetime.now(UTC).timestamp()))
    headers = {"Content-Type": "application/json", "X-Archiver-Event-Id": str(notice.id), "X-Archiver-Timestamp": timestamp}
    if address.secret:
        headers["X-Archiver-Signature"] = f"sha256={sign(address.secret, timestamp, body)}"
    try:
        response = requests.post(address.url, data=body, headers=headers, timeout=_SECONDS, allow_redirects=False)
    except (requests.RequestException, OSError, ValueError) as error:
        raise NotSent(f"{address.shown} does not answer: {type(error).__name__}") from error
    if not 200 <= response.status_code < 300:
        raise NotSent(f"{address.shown} answered with status {response.status_code}")


def sign(secret: str, timestamp: str, body: bytes) -> str:
    """The receiver computes the same, and refuses an old time stamp."""
    return hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def _send_by_apprise(notice: Notice, address: AppriseAddress) -> None:
    from apprise import Apprise, AppriseAsset, NotifyType

    kinds = {"critical": NotifyType.FAILURE, "warning": NotifyType.WARNING, "info": NotifyType.INFO}
    # without pictures from outside, which some services would load
    asset = AppriseAsset(app_id="Archiver", app_desc="Archiver", app_url="", image_url_mask="", image_url_logo="")
    apprise = Apprise(asset=asset)
    kind = NotifyType.SUCCESS if notice.event == "resolved" else kinds[notice.severity]
    sent = apprise.add(address.url) and apprise.notify(
        body=f"{notice.text}\n{notice.link}", title=notice.title, notify_type=kind
    )
    if not sent:
        raise NotSent(f"{address.shown} did not take the notice")
