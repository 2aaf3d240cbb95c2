"""Vendor profiles: addresses, keys and peculiarities of each OpenAI-compatible provider, and what each Claude model can do."""

import re
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

ThinkingMode: TypeAlias = Literal["", "budget", "adaptive"]
"""How a model is told to think: not at all, with a budget in tokens, or with an effort."""


class AnthropicCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a model takes and what it answers with an error."""

    default_max_tokens: int = 8192
    """The bound of an answer when nobody gave one; leaves room in the window of the model."""
    thinking_mode: ThinkingMode = "budget"
    thinks_by_default: bool = False
    """It thinks unless it is told not to."""
    thinking_switch: Literal["", "disabled", "between_tools"] = ""
    """What tells it not to; one that thinks and has no such word cannot be told."""
    takes_sampling: bool = True
    """It takes temperature, top_p and top_k."""
    takes_temperature_and_top_p: bool = True
    """It takes temperature and top_p together."""
    can_force_tool: bool = True
    """It can be forced to call a tool, when it does not think."""
    can_prefill: bool = True
    """A conversation may end with words of the model, to be continued."""
    has_output_format: bool = False
    """It takes the shape of its answer as a JSON Schema."""

    @property
    def always_thinks(self) -> bool:
        """Whether it thinks whatever it is told."""
        return self.thinks_by_default and not self.thinking_switch


_V3 = AnthropicCapabilities(default_max_tokens=4096, thinking_mode="")

_V35 = AnthropicCapabilities(default_max_tokens=8192, thinking_mode="")

_V37 = AnthropicCapabilities(default_max_tokens=32_000)

_V45 = AnthropicCapabilities(default_max_tokens=32_000, takes_temperature_and_top_p=False, has_output_format=True)

_V46 = AnthropicCapabilities(
    default_max_tokens=64_000,
    thinking_mode="adaptive",
    takes_temperature_and_top_p=False,
    can_prefill=False,
    has_output_format=True,
)

_V47 = AnthropicCapabilities(
    default_max_tokens=64_000, thinking_mode="adaptive", takes_sampling=False, can_prefill=False, has_output_format=True
)

_V5 = msgspec.structs.replace(_V47, thinks_by_default=True, thinking_switch="disabled")

_SONNET55 = msgspec.structs.replace(_V5, thinking_switch="between_tools", can_force_tool=False)

_ALWAYS_THINKING = msgspec.structs.replace(_V5, thinking_switch="", can_force_tool=False)

_CAPABILITIES: dict[str, tuple[tuple[tuple[int, int], AnthropicCapabilities], ...]] = {
    "opus": (
        ((3, 0), _V3),
        ((4, 0), _V37),
        ((4, 1), msgspec.structs.replace(_V37, takes_temperature_and_top_p=False)),
        ((4, 5), _V45),
        ((4, 6), _V46),
        ((4, 7), _V47),
        ((5, 0), _V5),
        ((5, 5), _ALWAYS_THINKING),
    ),
    "sonnet": (
        ((3, 0), _V3),
        ((3, 5), _V35),
        ((3, 7), _V37),
        ((4, 5), _V45),
        ((4, 6), _V46),
        ((5, 0), _V5),
        ((5, 5), _SONNET55),
    ),
    "haiku": (((3, 0), _V3), ((3, 5), _V35), ((4, 5), _V45), ((5, 5), _V5)),
    "fable": (((5, 0), _ALWAYS_THINKING),),
    "mythos": (((0, 0), _ALWAYS_THINKING),),
}

_UNKNOWN_MODEL = AnthropicCapabilities()

_NEWEST = (99, 0)

_FAMILY = r"(?P<family>opus|sonnet|haiku|fable|mythos)"

_VERSION = r"(?P<major>\d{1,2})(?:[-.](?P<minor>\d{1,2}))?(?!\d)"

_MODEL_NAMES = (
    re.compile(rf"claude-{_FAMILY}-{_VERSION}"),
    re.compile(rf"claude-{_VERSION}-{_FAMILY}"),
    re.compile(rf"claude-{_FAMILY}(?P<major>)(?P<minor>)"),
)


def capabilities_of(model: str) -> AnthropicCapabilities:
    """Return what is known of a model by its id, dated or not."""
    for pattern in _MODEL_NAMES:
        name = pattern.search(model)
        if name:
            version = (int(name["major"]), int(name["minor"] or 0)) if name["major"] else _NEWEST
            known = [facts for since, facts in _CAPABILITIES[name["family"]] if since <= version]
            return known[-1] if known else _UNKNOWN_MODEL
    return _UNKNOWN_MODEL


EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""Every word there is for how much to think, from the least to the most."""


class VendorProfile(msgspec.Struct, frozen=True, kw_only=True):
    """What a vendor of Chat Completions wants and can do. The defaults are OpenAI's own API."""

    name: str = "openai-chat"
    base_url: str = "https://api.openai.com/v1"
    """Empty where every customer has an address of their own."""
    base_env: str = "OPENAI_BASE_URL"
    """The variable that has another address."""
    key_env: tuple[str, ...] = ("OPENAI_API_KEY",)
    """The variables that may have the key; the first that is set counts."""
    query_env: Mapping[str, str] = {}
    """Parameters of the address and the variables they come from."""
    local: bool = False
    """A server of one's own, which may want no key."""
    key_header: str = ""
    """The header that has the key; without it the key is a bearer token."""
    deployments: bool = False
    """Addresses are Azure's: each model is a deployment with a path of its own, unless the address ends in ``/v1``."""

    system_role: Literal["system", "developer"] = "developer"
    max_tokens: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    usage: bool = True
    """``stream_options.include_usage`` is understood; other vendors count tokens unasked."""
    cost: bool = False
    """``usage.cost`` is what the call cost in US dollars."""
    done: bool = True
    """``[DONE]`` ends a stream; without it, a finish reason and the end of the connection do."""
    reasoning: Literal["reasoning_effort", "thinking", "reasoning", "enable_thinking", ""] = "reasoning_effort"
    """How thinking is asked for: an effort, ``thinking.type``, ``reasoning.effort``, a switch with a budget, or not."""
    efforts: tuple[str, ...] = EFFORTS
    """The words for efforts that are understood, the weakest first."""
    reasoning_back: Literal["", "reasoning_content", "reasoning", "reasoning_details", "thinking"] = ""
    """Where earlier thoughts are wanted back: a field of the message, or ``thinking`` parts of its content."""
    strict: bool = True
    """Schemas may say ``strict``."""
    output: Literal["json_schema", "json_object", "tool"] = "json_schema"
    """How a shape is asked for: as a schema, as JSON with the schema told in words, or as a tool to be called."""
    choice_none: bool = True
    required: str = "required"
    """The word for "call some tool"; empty where there is none."""
    choice_named: bool = True
    parallel: bool = True
    images: bool = True
    audio: bool = True
    documents: bool = True
    document_urls: bool = False
    stops: int = 4
    """How many stop texts are taken; 0 for any number."""
    seed: Literal["seed", "random_seed", ""] = "seed"
    top_k: bool = False
    penalties: bool = True
    user: Literal["user", ""] = "user"
    cache_key: bool = True
    """``prompt_cache_key`` names the session, so that its requests meet the same cache."""
    tiers: bool = True
    metadata: bool = True
    call_id: str = "[A-Za-z0-9_-]{1,64}"
    """What an id of a call must look like."""
    merge: bool = False
    """Messages of one role that follow each other are sent as one, for chat templates that want them to alternate."""
    bridge: bool = False
    """Results of tools must be answered before the user says more."""
    empty: Literal["null", "text", "omit"] = "null"
    """What stands for the text of an answer that has calls only."""
    headers: Mapping[str, str] = {}
    body: Mapping[str, Any] = {}
    """Fields that every request has."""


def find_vendor(name: str) -> VendorProfile | None:
    """Return the profile of that name, ``None`` if there is none."""
    name = name.lower()
    return PROFILES.get(ALIASES.get(name, name))


def _vendor_profile(name: str, base_url: str, *keys: str, **facts: Any) -> VendorProfile:
    """Return a vendor of which little is known beyond ``facts``."""
    base = name.upper().replace("-", "_")
    usual: dict[str, Any] = {
        "name": name, "base_url": base_url, "base_env": f"{base}_BASE_URL", "key_env": keys or (f"{base}_API_KEY",),
        "system_role": "system", "max_tokens": "max_tokens", "efforts": ("low", "medium", "high"), "strict": False,
        "audio": False, "documents": False, "user": "", "cache_key": False, "tiers": False, "metadata": False,
    }  # fmt: skip
    return VendorProfile(**{**usual, **facts})


COMPATIBLE = _vendor_profile(
    "compatible", "", "OPENAI_API_KEY", base_env="OPENAI_BASE_URL", stops=0, empty="text", merge=True, user="user"
)
"""A server at an address of one's own, of which nothing is known but that it speaks Chat Completions."""

_KNOWN_VENDORS = (
    VendorProfile(),
    _vendor_profile(
        "azure",
        "",
        "AZURE_OPENAI_API_KEY",
        base_env="AZURE_OPENAI_ENDPOINT",
        key_header="api-key",
        deployments=True,
        query_env={"api-version": "OPENAI_API_VERSION"},
        max_tokens="max_completion_tokens",
        efforts=EFFORTS,
        strict=True,
        audio=True,
        user="user",
    ),
    _vendor_profile(
        "deepseek",
        "https://api.deepseek.com",
        reasoning="thinking",
        efforts=("low", "high", "max"),
        reasoning_back="reasoning_content",
        output="json_object",
        images=False,
        parallel=False,
        stops=16,
        seed="",
    ),
    _vendor_profile(
        "mistral",
        "https://api.mistral.ai/v1",
        usage=False,
        efforts=("none", "high"),
        reasoning_back="thinking",
        strict=True,
        required="any",
        stops=0,
        seed="random_seed",
        call_id="[A-Za-z0-9]{9}",
        bridge=True,
        empty="text",
    ),
    _vendor_profile(
        "groq",
        "https://api.groq.com/openai/v1",
        max_tokens="max_completion_tokens",
        efforts=("none", "low", "medium", "high"),
        strict=True,
        user="user",
        tiers=True,
    ),
    _vendor_profile(
        "openrouter",
        "https://openrouter.ai/api/v1",
        cost=True,
        reasoning="reasoning",
        efforts=EFFORTS[:-1],
        reasoning_back="reasoning_details",
        strict=True,
        audio=True,
        documents=True,
        document_urls=True,
        top_k=True,
        user="user",
    ),
    _vendor_profile("together", "https://api.together.ai/v1", stops=0, top_k=True),
    _vendor_profile(
        "fireworks",
        "https://api.fireworks.ai/inference/v1",
        efforts=("none", "low", "medium", "high", "xhigh"),
        reasoning_back="reasoning_content",
        top_k=True,
        user="user",
    ),
    _vendor_profile(
        "xai",
        "https://api.x.ai/v1",
        max_tokens="max_completion_tokens",
        efforts=("low", "high"),
        user="user",
    ),
    _vendor_profile(
        "cerebras",
        "https://api.cerebras.ai/v1",
        max_tokens="max_completion_tokens",
        parallel=False,
        penalties=False,
        user="user",
    ),
    _vendor_profile(
        "perplexity",
        "https://api.perplexity.ai",
        usage=False,
        done=False,
        efforts=("minimal", "low", "medium", "high"),
        parallel=False,
        stops=0,
        seed="",
        top_k=True,
        merge=True,
    ),
    _vendor_profile("nvidia", "https://integrate.api.nvidia.com/v1", reasoning="", stops=0),
    _vendor_profile(
        "qwen",
        "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        "DASHSCOPE_API_KEY",
        base_env="DASHSCOPE_BASE_URL",
        reasoning="enable_thinking",
        output="json_object",
        required="",
        stops=0,
        top_k=True,
    ),
    _vendor_profile(
        "moonshot",
        "https://api.moonshot.ai/v1",
        max_tokens="max_completion_tokens",
        reasoning="thinking",
        efforts=(),
        reasoning_back="reasoning_content",
        output="json_object",
        required="",
        parallel=False,
        stops=5,
        seed="",
    ),
    *(
        _vendor_profile(
            name,
            base_url,
            *keys,
            usage=False,
            reasoning="thinking",
            efforts=(),
            reasoning_back="reasoning_content",
            output="json_object",
            choice_none=False,
            required="",
            choice_named=False,
            parallel=False,
            stops=1,
            seed="",
            penalties=False,
        )
        for name, base_url, *keys in (
            ("zhipu", "https://open.bigmodel.cn/api/paas/v4", "ZHIPUAI_API_KEY", "ZHIPU_API_KEY"),
            ("zai", "https://api.z.ai/api/paas/v4", "ZAI_API_KEY"),
        )
    ),
    _vendor_profile(
        "minimax",
        "https://api.minimax.io/v1",
        max_tokens="max_completion_tokens",
        reasoning="",
        reasoning_back="reasoning_details",
        parallel=False,
        seed="",
        penalties=False,
        body={"reasoning_split": True},  # or thoughts would stand in the text
    ),
    _vendor_profile(
        "siliconflow",
        "https://api.siliconflow.cn/v1",
        reasoning="enable_thinking",
        output="json_object",
        parallel=False,
        top_k=True,
    ),
    _vendor_profile(
        "ollama", "http://localhost:11434/v1", local=True, efforts=("none", "low", "medium", "high"), stops=0
    ),
    _vendor_profile("vllm", "http://localhost:8000/v1", local=True, stops=0, top_k=True, merge=True),
    _vendor_profile(
        "lmstudio", "http://localhost:1234/v1", local=True, choice_named=False, stops=0, top_k=True, merge=True
    ),
    _vendor_profile(
        "llamacpp",
        "http://localhost:8080/v1",
        local=True,
        reasoning="",
        choice_named=False,
        stops=0,
        top_k=True,
        merge=True,
    ),
    _vendor_profile("github-models", "https://models.github.ai/inference", "GITHUB_TOKEN"),
    _vendor_profile("huggingface", "https://router.huggingface.co/v1", "HF_TOKEN"),
    _vendor_profile("sambanova", "https://api.sambanova.ai/v1", top_k=True),
    _vendor_profile(
        "cohere",
        "https://api.cohere.ai/compatibility/v1",
        "CO_API_KEY",
        "COHERE_API_KEY",
        usage=False,
        efforts=("none", "high"),
        parallel=False,
        stops=5,
    ),
)

PROFILES: dict[str, VendorProfile] = {profile.name: profile for profile in _KNOWN_VENDORS}
"""Every vendor that is known, by the name that stands before the ``/`` of a model's."""

ALIASES = {"glm": "zhipu", "kimi": "moonshot", "dashscope": "qwen", "github": "github-models", "hf": "huggingface"}
