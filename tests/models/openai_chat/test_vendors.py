"""The vendor profiles are consistent, and loading them is cheap."""

import re
import subprocess
import sys

import msgspec
import pytest

from vaka.models.openai_chat.vendors import ALIASES, COMPATIBLE, EFFORTS, PROFILES, VendorProfile, find_vendor

EVERY = [*PROFILES.values(), COMPATIBLE]


def test_every_vendor_is_found_by_its_name_and_others_are_not() -> None:
    for name, profile in PROFILES.items():
        assert profile.name == name
        assert find_vendor(name) is profile
        assert find_vendor(name.upper()) is profile
    assert find_vendor("glm") is PROFILES["zhipu"]
    assert find_vendor("openai-chat") == VendorProfile()
    assert find_vendor("no-such-vendor") is None
    assert find_vendor("") is None


def test_no_vendor_that_programs_may_name_disappears() -> None:
    assert {
        "openai-chat",
        "azure",
        "deepseek",
        "mistral",
        "groq",
        "openrouter",
        "together",
        "fireworks",
        "xai",
        "cerebras",
        "perplexity",
        "nvidia",
        "qwen",
        "moonshot",
        "zhipu",
        "zai",
        "minimax",
        "siliconflow",
        "ollama",
        "vllm",
        "lmstudio",
        "llamacpp",
        "github-models",
        "huggingface",
        "sambanova",
        "cohere",
    } <= PROFILES.keys()
    assert ALIASES.keys().isdisjoint(PROFILES)
    assert {*ALIASES.values()} <= PROFILES.keys()


@pytest.mark.parametrize("profile", EVERY, ids=lambda profile: profile.name)
def test_vendor_profiles_are_consistent(profile: VendorProfile) -> None:
    assert msgspec.convert(msgspec.to_builtins(profile), VendorProfile) == profile
    assert profile.key_env
    assert all(re.fullmatch("[A-Z][A-Z0-9_]+", variable) for variable in (profile.base_env, *profile.key_env))
    assert not profile.base_url.endswith("/")
    own_address = not profile.base_url and profile.name in {"azure", "compatible"}
    scheme = "http://localhost:" if profile.local else "https://"
    assert own_address or profile.base_url.startswith(scheme)
    places = [EFFORTS.index(effort) for effort in profile.efforts]
    assert places == sorted({*places})
    assert re.fullmatch(profile.call_id, "c00000000")  # what is made for an id that cannot be sent


def test_no_two_vendors_share_a_variable_for_their_address() -> None:
    addresses = [profile.base_env for profile in PROFILES.values()]
    assert len({*addresses}) == len(addresses)


def test_loading_the_vendors_imports_no_network_library() -> None:
    program = (
        "import sys, vaka.models.openai_chat.vendors; sys.exit('httpx2' in sys.modules or 'asyncio' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
