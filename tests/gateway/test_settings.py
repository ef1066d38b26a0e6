"""Settings: environment over file over defaults, nothing unknown, nothing secret shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.settings import Provider, Settings, SettingsError


def written(folder: Path, text: str) -> Path:
    """A capline.toml."""
    path = folder / "capline.toml"
    path.write_text(text, "utf-8")
    return path


def test_the_defaults_are_the_contracts() -> None:
    settings = Settings.load({})
    assert (settings.database_url, settings.counters_url) == ("sqlite:///var/capline.db", "memory://")
    assert (settings.header_prefix, settings.node, settings.providers) == ("x-capline", "n1", ())
    assert (settings.customer_bound, settings.unverifiable_after_s, settings.hold_ttl_s) == (10_000, 60, 900)
    assert (settings.default_max_output_tokens, settings.undeclared_output) == (4096, "default")
    assert (settings.max_body_bytes, settings.drain_s, settings.spool_dir) == (
        33_554_432,
        300,
        Path("var/spool"),
    )
    assert (settings.host, settings.port, settings.admin_token) == ("127.0.0.1", 8787, None)
    assert sorted(settings.prices_dir.glob("*.json"))


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, 'drain_s = 10\nnode = "file"\n')
    settings = Settings.load({"CAPLINE_NODE": "n2", "PATH": "/bin"}, file)
    assert (settings.drain_s, settings.node) == (10, "n2")


def test_providers_come_in_the_files_order_then_by_their_keys(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        '[providers.local]\ndialect = "openai"\nbase_url = "http://127.0.0.1:11434/v1/"\n'
        '[providers.anthropic]\napi_keys = ["from-file"]\n',
    )
    environ = {
        "OPENAI_API_KEY": "sk-1",
        "ANTHROPIC_API_KEY": "sk-ant",
        "OPENROUTER_API_KEY": "",
        "CAPLINE_OPENAI_BASE_URL": "http://mock.test/v1",
    }
    local, anthropic, openai = Settings.load(environ, file).providers
    assert local == Provider(
        name="local", dialect="openai", base_url="http://127.0.0.1:11434/v1", prices="local"
    )
    assert (anthropic.base_url, anthropic.api_keys) == ("https://api.anthropic.com", ("sk-ant",))
    assert (openai.base_url, openai.api_keys, openai.prices) == ("http://mock.test/v1", ("sk-1",), "openai")


def test_a_providers_url_carries_the_version_path_once() -> None:
    openai, anthropic, openrouter = Settings.load(
        {"OPENAI_API_KEY": "a", "ANTHROPIC_API_KEY": "b", "OPENROUTER_API_KEY": "c"}
    ).providers
    assert openai.url("/v1/chat/completions") == "https://api.openai.com/v1/chat/completions"
    assert anthropic.url("/v1/messages") == "https://api.anthropic.com/v1/messages"
    assert openrouter.url("/v1/chat/completions") == "https://openrouter.ai/api/v1/chat/completions"


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        (
            {"CAPLINE_DATABSE_URL": "x"},
            "CAPLINE_DATABSE_URL is not a setting; the nearest is CAPLINE_DATABASE_URL",
        ),
        ({"CAPLINE_OPENAI_BASEURL": "x"}, "the nearest is CAPLINE_OPENAI_BASE_URL"),
        ({"CAPLINE_COUNTERS_URL": "redis://localhost"}, "later release"),
        ({"CAPLINE_PORT": "80.5"}, "CAPLINE_PORT"),
        ({"CAPLINE_PORT": "65536"}, "CAPLINE_PORT"),
        ({"CAPLINE_DRAIN_S": "-1"}, "CAPLINE_DRAIN_S"),
        ({"CAPLINE_HOLD_TTL_S": "0"}, "CAPLINE_HOLD_TTL_S"),
        ({"CAPLINE_UNDECLARED_OUTPUT": "guess"}, "default, model_max, refuse"),
        ({"CAPLINE_HEADER_PREFIX": "X_Capline"}, "CAPLINE_HEADER_PREFIX"),
        ({"CAPLINE_NODE": "a/b"}, "CAPLINE_NODE"),
        ({"CAPLINE_ADMIN_TOKEN": "two words"}, "CAPLINE_ADMIN_TOKEN"),
        ({"CAPLINE_DATABASE_URL": "capline.db"}, "CAPLINE_DATABASE_URL"),
        ({"OPENAI_API_KEY": "k", "CAPLINE_OPENAI_BASE_URL": "ftp://x"}, "providers.openai.base_url"),
    ],
)
def test_what_cannot_be_used_is_named(environ: dict[str, str], words: str) -> None:
    with pytest.raises(SettingsError) as refused:
        Settings.load(environ)
    assert words in str(refused.value)
    assert "two words" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("drains = 5", "drains is not a setting; the nearest is drain_s"),
        ("port = 1.5", "port is a text or a whole number"),
        ("port = true", "port is a text or a whole number"),
        ("var_dir = 'x'", "var_dir is not a setting"),
        ("providers = 3", "[providers] is a table"),
        ("[providers]\nx = 3", "[providers.x] is a table"),
        ("[providers.x]\ndialect = 'openai'", "providers.x.base_url is missing"),
        ("[providers.x]\nbase_url = 'http://x'", "providers.x.dialect"),
        ("[providers.openai]\nkeys = []", "providers.openai.keys is not a setting; the nearest is api_keys"),
        ("[providers.openai]\napi_keys = 'sk'", "providers.openai.api_keys"),
        ("[providers.openai]\nbase_url = 'http://x/v1?a=b'", "query or fragment"),
        ("[providers.'a/b']\n", "letters, digits"),
        ("port = ", "capline.toml"),
    ],
)
def test_what_a_file_cannot_say_is_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(SettingsError) as refused:
        Settings.load({}, written(tmp_path, text))
    assert words in str(refused.value)


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"capline\.toml"):
        Settings.load({}, tmp_path / "capline.toml")


def test_variables_of_the_tests_and_the_console_are_no_settings() -> None:
    environ = {"CAPLINE_REQUIRE_ALL": "1", "CAPLINE_TEST_REDIS_URL": "x", "CAPLINE_CONSOLE_PORT": "1"}
    assert Settings.load(environ) == Settings.load({})


def test_no_secret_is_shown() -> None:
    settings = Settings.load(
        {
            "OPENAI_API_KEY": "sk-secret",
            "CAPLINE_ADMIN_TOKEN": "admin-secret",
            "CAPLINE_DATABASE_URL": "postgresql+psycopg://user:pass-secret@db/capline",
        }
    )
    shown = json.dumps(settings.effective())
    assert "secret" not in shown
    assert "secret" not in repr(settings)
    assert "postgresql+psycopg://user:***@db/capline" in shown
    assert set(settings.effective()) == {name for name in settings.__dataclass_fields__}
