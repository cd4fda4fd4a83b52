"""Bad settings stop the start with one line that names the variable, what was given and what is allowed."""

import re
from pathlib import Path

import pytest

from archiver.config import Settings, hide_password, interval_seconds, load_settings
from archiver.errors import ConfigError

NO_FILE = Path("no-such-file")

BAD = [
    ("SYNC_FREQUENCY", "abc", "SYNC_FREQUENCY='abc': expected a cron pattern of 5 or 6 fields"),
    ("SYNC_FREQUENCY", "* * * *", "SYNC_FREQUENCY='* * * *'"),
    ("SYNC_FREQUENCY", "61 * * * *", "SYNC_FREQUENCY='61 * * * *'"),
    ("SYNC_FREQUENCY", "0s", "at least 1s"),
    ("INGESTION_WORKER_CONCURRENCY", "0", "INGESTION_WORKER_CONCURRENCY='0': expected greater than or equal to 1"),
    ("INGESTION_WORKER_CONCURRENCY", "many", "INGESTION_WORKER_CONCURRENCY='many': expected a valid integer"),
    ("MEILI_INDEXING_BATCH", "-5", "MEILI_INDEXING_BATCH='-5'"),
    ("SLICE_SECONDS", "1.5", "SLICE_SECONDS='1.5'"),
    ("DISK_MIN_FREE_BYTES", "lots", "DISK_MIN_FREE_BYTES='lots': expected a number of bytes, optionally with K, M, G or T"),
    ("STORAGE_TYPE", "ftp", "STORAGE_TYPE='ftp': expected 'local' or 's3'"),
    ("STORAGE_TYPE", "s3", "STORAGE_TYPE=s3 also needs STORAGE_S3_BUCKET, STORAGE_S3_ACCESS_KEY_ID"),
    ("DATABASE_URL", "mysql://u:hunter2@h/x", "DATABASE_URL='mysql://u:***@h/x': expected an address postgresql://…"),
    ("DATABASE_URL", "postgresql://u:hunter2@h:port/x", "DATABASE_URL='postgresql://u:***@h:port/x'"),
    ("REDIS_URL", "localhost:6379", "REDIS_URL='localhost:6379': expected an address redis://…"),
    ("REDIS_URL", "redis://", "REDIS_URL='redis://'"),
    ("MEILI_HOST", "meili", "MEILI_HOST='meili': expected an address http://…"),
    ("MEILI_HOST", "http://meili:7700", "MEILI_HOST also needs MEILI_MASTER_KEY"),
    ("ARCHIVER_PORT", "99999", "ARCHIVER_PORT='99999': expected less than or equal to 65535"),
    ("ARCHIVER_PORT", "http", "ARCHIVER_PORT='http'"),
    ("TRUSTED_PROXIES", "10.0.0.0/8,nobody", "TRUSTED_PROXIES='10.0.0.0/8,nobody': expected addresses or networks"),
    ("OCR", "yes", "OCR='yes': expected 'auto', 'on' or 'off'"),
    ("OCR_LANGUAGES", "eng; rm -rf", "OCR_LANGUAGES='eng; rm -rf': expected languages as tesseract names them"),
    ("LOG_LEVEL", "loud", "LOG_LEVEL='loud': expected 'debug', 'info', 'warning' or 'error'"),
    ("STORAGE_S3_FORCE_PATH_STYLE", "perhaps", "STORAGE_S3_FORCE_PATH_STYLE='perhaps': expected a valid boolean"),
]


@pytest.mark.parametrize(("name", "value", "expected"), BAD, ids=[f"{name}={value}" for name, value, _ in BAD])
def test_a_bad_value_is_named(name: str, value: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings({name: value}, NO_FILE)
    text = str(caught.value)
    assert expected in text
    assert "\n" not in text
    assert "hunter2" not in text
    assert caught.value.exit_code == 2


def test_several_bad_values_get_a_line_each() -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings({"ARCHIVER_PORT": "x", "STORAGE_TYPE": "x"}, NO_FILE)
    assert len(str(caught.value).splitlines()) == 2


def test_defaults_run_everything_embedded() -> None:
    settings = load_settings({}, NO_FILE)
    assert settings.embedded == {"postgres", "valkey", "search"}
    assert (settings.sync_frequency, settings.slice_seconds, settings.archiver_port) == ("* * * * *", 30, 8080)
    assert settings.archiver_data == Path.cwd() / "data"


def test_an_address_replaces_one_part_only() -> None:
    settings = load_settings({"DATABASE_URL": "postgresql://u:p@db/archiver"}, NO_FILE)
    assert settings.embedded == {"valkey", "search"}


def test_an_empty_variable_counts_as_unset() -> None:
    assert load_settings({"DATABASE_URL": "", "ARCHIVER_PORT": ""}, NO_FILE) == load_settings({}, NO_FILE)


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text("ARCHIVER_PORT=1111\nSLICE_SECONDS=7\nPOSTGRES_PASSWORD=not-ours\n")
    settings = load_settings({"ARCHIVER_PORT": "2222"}, file)
    assert (settings.archiver_port, settings.slice_seconds) == (2222, 7)


def test_a_bad_value_in_the_file_is_named_too(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text("SLICE_SECONDS=soon\n")
    with pytest.raises(ConfigError, match="SLICE_SECONDS='soon'"):
        load_settings({}, file)


@pytest.mark.parametrize(
    ("given", "expected"), [("2G", 2 << 30), ("500 MB", 500 << 20), ("10KiB", 10 << 10), ("77", 77), ("0", 0)]
)
def test_sizes_can_have_units(given: str, expected: int) -> None:
    assert load_settings({"DISK_MIN_FREE_BYTES": given}, NO_FILE).disk_min_free_bytes == expected


def test_ocr_languages() -> None:
    assert load_settings({}, Path("none")).ocr_languages == "eng"
    assert load_settings({"OCR_LANGUAGES": "eng, deu,chi_sim"}, Path("none")).ocr_languages == "eng+deu+chi_sim"


@pytest.mark.parametrize("given", ["*/5 * * * *", "*/10 * * * * *", "30s", "5m", "2h", "1d", "0 3 * * mon-fri"])
def test_schedules(given: str) -> None:
    assert load_settings({"SYNC_FREQUENCY": given}, NO_FILE).sync_frequency == given


def test_intervals() -> None:
    assert [interval_seconds(text) for text in ("30s", "5m", "2h", "1d", "* * * * *")] == [30, 300, 7200, 86400, None]


def test_secrets_are_not_shown() -> None:
    settings = load_settings({"DATABASE_URL": "postgresql://u:hunter2@h/x", "ENCRYPTION_KEY": "hunter2"}, NO_FILE)
    assert "hunter2" not in repr(settings)
    assert "hunter2" not in str(settings)


@pytest.mark.parametrize("url", ["redis://:hunter2@h:1/0", "http://u:hunter2@h", "unix://:hunter2@/tmp/s", "x:hunter2@h"])
def test_passwords_are_hidden(url: str) -> None:
    assert "hunter2" not in hide_password(url)


def test_every_variable_stands_in_the_example_file() -> None:
    example = (Path(__file__).parents[2] / ".env.example").read_text()
    named = {line.lstrip("# ").split("=")[0] for line in example.splitlines() if "=" in line}
    assert {field.upper() for field in Settings.model_fields} <= named


def test_a_secret_from_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("pa/ss@wörd:%\n")
    given = {"DATABASE_URL": "postgresql://archiver@db:5432/archiver", "DATABASE_PASSWORD_FILE": str(secret)}
    settings = load_settings(given, NO_FILE)
    assert settings.database_url is not None
    url = settings.database_url.get_secret_value()
    assert url == "postgresql://archiver:pa%2Fss%40w%C3%B6rd%3A%25@db:5432/archiver"
    given = {"REDIS_URL": "redis://valkey:6379/0", "REDIS_PASSWORD": "a b"}
    settings = load_settings(given, NO_FILE)
    assert settings.redis_url is not None
    assert settings.redis_url.get_secret_value() == "redis://:a%20b@valkey:6379/0"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ENCRYPTION_KEY_FILE": "/nowhere/key"}, "ENCRYPTION_KEY_FILE='/nowhere/key': the file can't be read: No such file"),
        ({"ENCRYPTION_KEY": "x", "ENCRYPTION_KEY_FILE": "/nowhere"}, "both set"),
        ({"DATABASE_PASSWORD": "x"}, "DATABASE_PASSWORD needs DATABASE_URL"),
        ({"REDIS_URL": "redis://:x@v/0", "REDIS_PASSWORD": "x"}, "REDIS_URL has a password already"),
        ({"ARCHIVER_ADMIN_EMAIL": "a@b.c"}, "go together"),
    ],
)
def test_secrets_that_do_not_fit_together(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        load_settings(given, NO_FILE)
