"""The formats of secrets, as data: tokens with a fixed prefix, and values that follow a context such as ``password =``.

``vaka.matching.secrets`` turns them into expressions.
"""

from collections.abc import Callable
from typing import NamedTuple

from vaka.matching.secret_values import (
    entropy,
    has_digit,
    is_bare_password,
    is_credentials,
    is_env_password,
    is_header_value,
    is_key,
    is_mixed,
    is_password,
    is_uncommon,
    is_url_password,
)

MAX_CONTEXT = 160
"""Characters before a value on which its recognition may depend."""

ALNUM, HEX, WORD, BASE64 = "A-Za-z0-9", "a-f0-9", "A-Za-z0-9_", "A-Za-z0-9+/="
URL_SAFE, DOTTED = r"A-Za-z0-9_\-", r"A-Za-z0-9_.=\-"


class Chars(NamedTuple):
    """``least`` to ``most`` characters of a class; more of them after that many are not a secret of this kind."""

    chars: str
    least: int
    most: int


class Words(NamedTuple):
    """One of several literal texts."""

    words: tuple[str, ...]


class SecretRule(NamedTuple):
    """A kind of secret: what stands before it, what it consists of, and a check that no expression can do."""

    name: str
    parts: tuple[Chars | Words, ...]
    context: str = ""
    """An expression of at most ``MAX_CONTEXT`` characters directly before the value; empty: the edge of a word."""
    keywords: tuple[str, ...] = ()
    """Lower case; every text with a match has one of them. Empty: the words of the first part."""
    after: str = ""
    """An expression that must follow the value."""
    is_secret: Callable[[str], bool] | None = None


def _token(
    prefixes: str, chars: str, least: int, most: int = 4096, is_secret: Callable[[str], bool] | None = None
) -> SecretRule:
    words = tuple(prefixes.split())
    return SecretRule(words[0], (Words(words), Chars(chars, least, most)), is_secret=is_secret)


TOKENS: tuple[SecretRule, ...] = (
    # model providers
    _token(
        "sk- gsk_ xai- hf_ csk- nvapi- pplx- r8_ fw_ tvly- lsv2_pt_ lsv2_sk_ pcsk_ sk_ pa- api_org_ jina_ tgp_v1_",
        URL_SAFE,
        24,
        255,
        is_mixed,
    ),
    _token("hf_ api_org_", "A-Za-z", 34, 34),
    _token("fc-", HEX, 32, 32, is_mixed),
    _token(
        "bkua_ e2b_ aph0_ hcaik_ hcxik_ sgt_ xaat- rpa_ ddp_ ddpat_ bb_live_",
        URL_SAFE,
        24,
        255,
        is_mixed,
    ),
    SecretRule(
        "credential of a vaka server",
        (Words(("ak_", "vkt_", "vkl_", "vks_")), Chars("a-z0-9", 8, 16), Words(("_",)), Chars(URL_SAFE, 43, 43)),
    ),
    # code hosts and registries
    _token("ghp_ gho_ ghu_ ghs_ ghr_", ALNUM, 36, 255),
    _token("github_pat_", WORD, 40, 255),
    _token(
        "glpat- glptt- gldt- glrt- glrtr- glcbt- glft- glimt- glagent- gloas- glsoat- glffct- glwt-", URL_SAFE, 20, 320
    ),
    SecretRule(
        "routable GitLab token",
        (Words(("glpat-", "glrt-")), Chars(URL_SAFE, 27, 300), Words((".",)), Chars("a-z0-9", 9, 9)),
    ),
    _token("GR1348941", URL_SAFE, 20, 64),
    _token("npm_ pypi- rubygems_ pnu_ dckr_pat_ dckr_oat_", URL_SAFE, 27, 1024, is_mixed),
    _token("ATATT3 ATCTT3 ATBB ATSTT3", f"{URL_SAFE}=", 20, 255),
    _token("AKCp cmVmd", ALNUM, 56, 80, is_mixed),
    _token("CLOJARS_ clojars_", ALNUM, 60, 60),
    _token("oy2", "a-z0-9", 43, 43, is_mixed),
    _token("sgp_ sgp_local_ slk_", f"{HEX}_", 40, 80),
    _token("sqp_ squ_ sqa_", HEX, 40, 40),
    _token("API-", "A-Z0-9", 26, 32),
    _token("secret_", ALNUM, 43, 43, is_mixed),
    _token(
        "figd_ figu_ figo_ figor_ lin_api_ lin_oauth_ ntn_ PMAK- PMAT- rdme_ phc_ phx_", URL_SAFE, 32, 255, is_mixed
    ),
    # clouds and hosting
    _token(
        "AKIA ASIA ABIA ACCA AIDA AROA AGPA", "A-Z0-9", 16, 16, lambda value: has_digit(value) or entropy(value) >= 3
    ),
    _token("A3T", "A-Z0-9", 17, 17, is_mixed),
    _token("ABSK", BASE64, 60, 400),
    _token("bedrock-api-key-", BASE64, 20, 2000),
    _token("AIza AQVN", URL_SAFE, 35, 39),
    _token("GOCSPX-", URL_SAFE, 20, 64),
    _token("ya29.", DOTTED, 20, 1024),
    _token("1//0", URL_SAFE, 30, 255),
    _token("LTAI", ALNUM, 12, 30, is_mixed),
    _token("AKID AKLT", ALNUM, 32, 64, is_mixed),
    _token("bce-v3/ALTAK-", f"{ALNUM}/", 40, 80),
    _token("STS.", ALNUM, 20, 40, is_mixed),
    _token("snyk_uat.", DOTTED, 40, 120, is_mixed),
    _token("dop_v1_ doo_v1_ dor_v1_", HEX, 64, 64),
    _token("HRKU-", URL_SAFE, 36, 80),
    _token("fo1_ fm1a_ fm1r_ fm2_", f"{BASE64}_,-", 40, 2000),
    _token("nfp_ nfc_ nfu_ rnd_ sbp_ sb_secret_ vcp_ vci_ vercel_", ALNUM, 24, 64, is_mixed),
    _token("pscale_tkn_ pscale_oauth_ pscale_pw_", f"{DOTTED}", 32, 64),
    _token("tskey-", URL_SAFE, 20, 128),
    _token("dapi", HEX, 32, 34, is_mixed),
    _token("hvs. hvb. hvr.", URL_SAFE, 24, 320),
    _token("s.", ALNUM, 24, 24, is_mixed),
    _token("pul-", HEX, 40, 40),
    _token("dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit.", f"{URL_SAFE}.", 40, 80),
    _token("ops_", BASE64, 100, 4000, is_mixed),
    _token("tk-us-", URL_SAFE, 48, 48),
    _token("v1.0-", f"{HEX}-", 150, 180),
    _token("AGE-SECRET-KEY- AGE-PLUGIN-", "A-Z0-9-", 50, 128),
    _token("pat. sat.", f"{URL_SAFE}.", 60, 90, is_mixed),
    _token("sha256~", URL_SAFE, 43, 43),
    _token("ico-", ALNUM, 32, 32, is_mixed),
    _token("ocid1.", f"{DOTTED}", 60, 200, is_mixed),
    # messages, payment, shops
    _token(
        "xoxb- xoxp- xoxa- xoxr- xoxs- xoxo- xoxe- xoxe.xoxb- xoxe.xoxp- xapp- xoxd- xoxc-",
        f"{ALNUM}%-",
        16,
        512,
        has_digit,
    ),
    _token("sk_live_ rk_live_ sk_test_ rk_test_ sk_prod_ rk_prod_ whsec_ pk_live_", BASE64, 10, 255, has_digit),
    _token("rzp_live_ rzp_test_", ALNUM, 14, 14, is_mixed),
    _token("SG.", f"{URL_SAFE}.", 32, 100, is_mixed),
    _token("xkeysib- xsmtpsib-", f"{ALNUM}-", 60, 100),
    _token("key- pubkey-", HEX, 32, 32, is_mixed),
    _token("SK", "a-fA-F0-9", 32, 32, is_mixed),
    _token("shpat_ shpca_ shppa_ shpss_ shptka_ shpua_ shpit_", "a-fA-F0-9", 32, 64),
    _token("sq0atp- sq0csp- sq0idp- EAAA", URL_SAFE, 22, 100, is_mixed),
    _token("EAA", ALNUM, 60, 400, is_mixed),
    _token("access-sandbox- access-development- access-production-", f"{HEX}-", 32, 40),
    _token("access_token$production$", f"{HEX}$", 32, 80),
    _token("shippo_live_ shippo_test_ duffel_test_ duffel_live_", f"{URL_SAFE}=", 31, 64, is_mixed),
    _token("live_ test_ live_pub_ test_pub_", HEX, 31, 40),
    _token("EZAK EZTK", ALNUM, 54, 54),
    _token("FLWSECK_TEST- FLWPUBK_TEST- FLWSECK- FLWPUBK-", f"{ALNUM}-", 12, 48, is_mixed),
    _token("sm_aat_ sm_pat_ sm_sat_", ALNUM, 16, 16, is_mixed),
    _token("s-s4t2ud- s-s4t2af-", HEX, 64, 64),
    _token("fio-u-", f"{URL_SAFE}=", 64, 64),
    # operations
    _token("glsa_ glc_ eyJrIjoi", f"{BASE64}_", 32, 400, is_mixed),
    _token("dt0c01. dt0s16.", f"{ALNUM}.", 80, 120),
    _token("sntrys_ sntryu_", f"{BASE64}_", 40, 500),
    _token("NRAK- NRJS- NRII- NRRA- NRIQ-", f"{ALNUM}-", 19, 44, is_mixed),
    _token("p8e-", ALNUM, 32, 32, is_mixed),
    _token("dnkey-", f"{URL_SAFE}=", 60, 90),
    _token("sdk- mob-", f"{HEX}-", 36, 36, is_mixed),
    _token("CFPAT- pat-na1- pat-eu1-", URL_SAFE, 36, 64, is_mixed),
    _token("tfp_", DOTTED, 40, 64),
    _token("A3-", "A-Z0-9-", 30, 38, is_mixed),
    _token("b_", f"{URL_SAFE}=", 44, 44, is_mixed),
    _token("sl. sl.u.", f"{URL_SAFE}=", 100, 2000),
    _token("sk. pk. tk.", f"{URL_SAFE}.", 60, 255, lambda value: value[3:6] == "eyJ"),
    _token("xprv zprv yprv tprv", ALNUM, 100, 120),
    _token("ngrok_ cr_", ALNUM, 40, 60, is_mixed),
    _token(
        "$1$ $2a$ $2b$ $2x$ $2y$ $5$ $6$ $7$ $y$ $apr1$ $argon2i$ $argon2id$ $argon2d$ $scrypt$ "
        "pbkdf2_sha256$ pbkdf2_sha512$",
        f"./$=,{ALNUM}+",
        22,
        400,
    ),
    SecretRule(
        "authress",
        (
            Words(("sc_", "ext_", "scauth_", "authress_")),
            Chars("a-z0-9", 5, 30),
            Words((".",)),
            Chars("a-z0-9", 4, 6),
            Words((".acc_", ".acc-")),
            Chars("a-z0-9-", 10, 32),
            Words((".",)),
            Chars("a-z0-9+/_=-", 30, 120),
        ),
    ),
    SecretRule("jwt", (
        Words(("eyJ",)), Chars(URL_SAFE, 10, 2000), Words((".eyJ",)), Chars(URL_SAFE, 8, 3000), Words((".",)),
        Chars(f"{URL_SAFE}=", 8, 1500),
    )),
    SecretRule("jwe", (
        Words(("eyJ",)), Chars(URL_SAFE, 10, 2000), Words((".",)), Chars(URL_SAFE, 0, 1000), Words((".",)),
        Chars(URL_SAFE, 8, 64), Words((".",)), Chars(URL_SAFE, 8, 4000), Words((".",)), Chars(URL_SAFE, 16, 64),
    )),
    SecretRule(
        "base64 of a jwt", (Words(("ZXlKaGJHY2lPaU", "ZXlKMGVYQWlPaU", "ZXlKcmFXUWlPaU")), Chars(BASE64, 40, 4000))
    ),
)  # fmt: skip
"""Tokens that are recognizable by their first characters, at the edge of a word."""

_PRIVATE_NAMES = r"(?:pass(?:word|wd|phrase|code)?s?|pwd|client[_-]?secret|secret|credentials?|creds?)"
_KEY_NAMES = r"(?:[a-z0-9][_.\- ]?key|token|secret|auth|cred)"
_PLAIN_NAME_END = r"[A-Za-z0-9_\-]{0,24}[\"'\])]{0,2}[ \t]{0,3}"
_NAME_END = r"[A-Za-z0-9_.\-]{0,24}[\"'\])]{0,2}[ \t]{0,3}"
_BETWEEN = r"(?::=|=>|==?|:|>|\"? value=)[ \t]{0,3}"
_OPEN_QUOTE = r"[bru]?[\"'`]{1,3}"
_QUOTED_VALUE = r"!#-&(-_a-~"  # no white space, quotes or backquotes
_BARE_VALUE = r"!#-&(-;=-_a-~"  # nor <


def _ignore_case(expression: str) -> str:
    return f"(?i:{expression})"


CONTEXTUAL: tuple[SecretRule, ...] = (
    SecretRule(
        "password in quotes",
        (Chars(_QUOTED_VALUE, 4, 200),),
        _ignore_case(_PRIVATE_NAMES + _PLAIN_NAME_END) + _BETWEEN + _OPEN_QUOTE,
        ("pass", "pwd", "secret", "cred"),
        r"(?=[\"'`]|\Z)",
        is_password,
    ),
    SecretRule(
        "password in a file of settings",
        (Chars(_BARE_VALUE, 6, 200),),
        _ignore_case(_PRIVATE_NAMES + _PLAIN_NAME_END) + _BETWEEN,
        ("pass", "pwd", "secret", "cred"),
        is_secret=is_bare_password,
    ),
    SecretRule(
        "password without spaces",
        (Chars(r"!#-&*-+\-.-;=?-_a-~", 6, 200),),
        _ignore_case(_PRIVATE_NAMES) + "=",
        ("pass", "pwd", "secret", "cred"),
        r"(?=[\s&;]|\Z)",
        is_env_password,
    ),
    SecretRule(
        "environment variable",
        (Chars(_QUOTED_VALUE, 6, 400),),
        r"(?:PASS(?:WORD|WD|PHRASE)?|PWD|SECRET|TOKEN|CREDENTIALS?|API_?KEY|(?:PRIVATE|SECRET|ACCESS|AUTH)_KEY)(?:_[A-Z0-9]{1,16})?=",
        ("pass", "pwd", "secret", "token", "cred", "key"),
        is_secret=is_env_password,
    ),
    SecretRule(
        "key by its name",
        (Chars(r"A-Za-z0-9_.+/=~:%-", 10, 2000),),
        _ignore_case(_KEY_NAMES + _NAME_END) + _BETWEEN + f"(?:{_OPEN_QUOTE})?(?:(?i:bearer|basic|token|apikey) )?",
        ("key", "token", "secret", "auth", "cred"),
        is_secret=is_key,
    ),
    SecretRule(
        "password in a URL",
        (Chars(r"!#-&(-.0-;=?A-~", 3, 200),),
        r"://[^\s/:@'\"<>]{0,100}:",
        ("://",),
        "(?=@)",
        is_url_password,
    ),
    SecretRule("token in a URL", (Chars(ALNUM + "_-", 20, 200),), r"://", ("://",), "(?=@)", is_mixed),
    SecretRule(
        "bearer token",
        (Chars(r"A-Za-z0-9._~+/=:-", 16, 4000),),
        r"\b(?:[Bb]earer|BEARER)[ \t]{1,3}",
        ("bearer",),
        is_secret=is_header_value,
    ),
    SecretRule(
        "basic credentials",
        (Chars(BASE64, 8, 1000),),
        r"\b(?:[Bb]asic|BASIC)[ \t]{1,3}",
        ("basic",),
        is_secret=is_credentials,
    ),
    SecretRule(
        "authorization header",
        (Chars(r"A-Za-z0-9._~+/=:%-", 8, 4000),),
        _ignore_case(
            r"authorization[\"']?[ \t]{0,2}[:=][ \t]{0,2}[\"']?(?:[a-z][a-z0-9-]{1,20} )?(?:[a-z]{1,16}=[\"']?)?"
        ),
        ("authorization",),
        is_secret=is_header_value,
    ),
    SecretRule(
        "cookie",
        (Chars(r"A-Za-z0-9._~+/=:%|!-", 16, 4000),),
        _ignore_case(r"(?:cookie: ?(?:[^\n]{0,80}; ?)?|session=|sess(?:ion)?id=)(?:[a-z0-9_.-]{1,40}=)?"),
        ("cookie", "session=", "sessionid=", "sessid="),
        is_secret=is_mixed,
    ),
    SecretRule(
        "option of a command",
        (Chars(_QUOTED_VALUE, 4, 200),),
        r"\bcurl\b[^\n]{0,60}? (?:-u|--user|--proxy-user|-U)[ =]?[\"']?[A-Za-z0-9_.@-]{0,40}:",
        ("curl",),
        is_secret=is_uncommon,
    ),
    SecretRule(
        "password on a command line",
        (Chars(_QUOTED_VALUE, 4, 200),),
        r"(?:\bsshpass -p ?|\bmysql[a-z]{0,5} [^\n]{0,60}?-p|\bredis-cli [^\n]{0,60}?(?:-a|--pass) "
        r"|docker login [^\n]{0,60}?-p )[\"']?",
        ("sshpass", "mysql", "redis-cli", "docker login"),
        is_secret=is_uncommon,
    ),
    SecretRule(
        "option with a password",
        (Chars(_QUOTED_VALUE, 6, 400),),
        r"--[a-z-]{0,20}(?:password|passphrase|token|secret|api-?key|pwd|pass)[ =][\"']?",
        ("--",),
        is_secret=is_bare_password,
    ),
    SecretRule(
        "netrc",
        (Chars(r"!-~", 3, 200),),
        r"\blogin\s{1,4}\S{1,80}\s{1,4}password\s{1,4}",
        ("login",),
        is_secret=is_uncommon,
    ),
    SecretRule(
        "pgpass",
        (Chars(r"!-9;-~", 4, 200),),
        r":5432:[A-Za-z0-9_*-]{1,40}:[A-Za-z0-9_*-]{1,40}:",
        (":5432:",),
        is_secret=is_uncommon,
    ),
    SecretRule(
        "secret access key after its id",
        (Chars("A-Za-z0-9/+", 40, 40),),
        r"AKIA[A-Z0-9]{16}[^A-Za-z0-9/+]{1,24}",
        ("akia",),
        "(?![A-Za-z0-9/+])",
        is_mixed,
    ),
    SecretRule(
        "storage key",
        (Chars(f"{BASE64}%", 20, 400),),
        r"(?:AccountKey|SharedAccessKey|SharedAccessSignature|[?&]sig|X-(?:Amz|Goog)-Signature|X-Amz-Security-Token)=",
        ("key=", "token=", "sig=", "signature="),
    ),
    SecretRule(
        "signature", (Chars(f"{BASE64}%_-", 32, 400),), r"[ ,?&]Signature=", ("signature=",), is_secret=is_mixed
    ),
    SecretRule(
        "key in a query",
        (Chars(f"{URL_SAFE}.%", 20, 400),),
        r"[?&]key=",
        ("key=",),
        is_secret=is_key,
    ),
    SecretRule(
        "name and value",
        (Chars(_QUOTED_VALUE, 6, 2000),),
        _ignore_case(
            r"name[\"']?: {0,2}[\"']?[a-z0-9_.-]{0,40}(?:pass|secret|token|api_?key|cred)[a-z0-9_]{0,16}[\"']?"
            r",?\s{1,24}[\"']?value[\"']?: {0,2}[\"']?"
        ),
        ("value:", 'value":'),
        is_secret=is_bare_password,
    ),
    SecretRule(
        "password in a statement",
        (Chars(_QUOTED_VALUE, 4, 200),),
        r"\b(?:PASSWORD|password) {1,3}'",
        ("password '",),
        "(?=')",
        is_password,
    ),
    SecretRule(
        "password in a call",
        (Chars(_QUOTED_VALUE, 4, 200),),
        r"(?:\b[Ss]et[Pp]ass(?:word)?\("
        r"|\bdefine\([\"'][A-Z0-9_]{0,40}(?:PASS|PASSWORD|SECRET|KEY|TOKEN|SALT)[\"'], {0,2})[\"']",
        ("setpass", "define("),
        r"(?=[\"'])",
        is_password,
    ),
    SecretRule(
        "variable of another shell",
        (Chars(_QUOTED_VALUE, 6, 400),),
        r"\bset(?:env| -[a-zA-Z]{1,4}) [A-Z0-9_]{0,40}(?:PASS(?:WORD)?|SECRET|TOKEN|KEY)[A-Z0-9_]{0,16} [\"']?",
        ("setenv", "set -"),
        is_secret=is_bare_password,
    ),
    SecretRule(
        "password of a service",
        (Chars(_QUOTED_VALUE, 4, 200),),
        r"\b(?:requirepass|masterauth) [\"']?",
        ("requirepass", "masterauth"),
        is_secret=is_uncommon,
    ),
    SecretRule("airtable token", (Chars(HEX, 64, 64),), r"(?<![A-Za-z0-9])pat[A-Za-z0-9]{14}\.", ("pat",)),
    SecretRule(
        "discord token",
        (Chars(URL_SAFE, 25, 40),),
        r"(?<![A-Za-z0-9_-])[MNO][TDzj][A-Za-z0-9_-]{20,26}\.[A-Za-z0-9_-]{6,7}\.",
        (".",),
    ),
    SecretRule(
        "azure client secret", (Words(("Q~",)), Chars("A-Za-z0-9_~.-", 31, 34)), r"[A-Za-z0-9_~.]{3}[0-9]", ("q~",)
    ),
    SecretRule("terraform token", (Chars(f"{URL_SAFE}=", 60, 70),), r"[A-Za-z0-9]{14}\.atlasv1\.", ("atlasv1",)),
    SecretRule(
        "telegram bot token",
        (Words(("AA",)), Chars(URL_SAFE, 33, 33)),
        r"(?<![0-9A-Za-z])(?:bot)?[0-9]{6,12}:",
        (":aa",),
        f"(?![{URL_SAFE}])",
    ),
    SecretRule(
        "facebook token",
        (Chars(URL_SAFE, 27, 40),),
        r"(?<![0-9])[0-9]{15,16}(?:\||%7C)",
        ("|", "%7c"),
        is_secret=is_mixed,
    ),
    SecretRule(
        "private exponent of a JWK",
        (Chars(URL_SAFE, 40, 1024),),
        r"[\"'](?:d|p|q|dp|dq|qi|k)[\"'][ ]{0,2}:[ ]{0,2}[\"']",
        ("kty",),
    ),
    SecretRule("one-time password", (Chars("A-Z2-7", 16, 128),), r"otpauth://[^\s\"']{0,120}secret=", ("otpauth",)),
    SecretRule(
        "kubernetes secret",
        (Chars(BASE64, 8, 4000),),
        r"kind: ?[\"']?Secret\b[^#]{0,100}?\bdata:[\s0-9+>|]{1,20}[A-Za-z0-9_.-]{1,40}: ?[\"']?",
        ("kind:",),
    ),
    SecretRule(
        "PuTTY key", (Chars(f"{BASE64}\\s", 40, 8000),), r"Private-Lines: [0-9]{1,3}\s{1,2}", ("private-lines",)
    ),
    SecretRule(
        "directory password",
        (Chars(BASE64, 24, 120),),
        r"\{(?:S?SHA(?:256|512)?|S?MD5|CRYPT)\}",
        ("sha}", "sha256}", "sha512}", "md5}", "crypt}"),
    ),
    SecretRule(
        "webhook",
        (Chars(f"{ALNUM}_/@.-", 16, 300),),
        r"(?:hooks\.slack\.com/(?:services|workflows|triggers)|discord(?:app)?\.com/api/(?:v[0-9]{1,2}/)?webhooks|[a-z0-9.-]{1,60}\.?office\.com/webhook(?:b2)?"
        r"|hooks\.zapier\.com/hooks/catch|open\.(?:feishu\.cn|larksuite\.com)/open-apis/bot/v2/hook|maker\.ifttt\.com/trigger/[\w-]{1,40}(?:/json)?/with/key"
        r"|hook\.[a-z0-9.]{0,10}(?:make|integromat)\.com|api\.telegram\.org/bot[0-9]{6,12}:|events\.pagerduty\.com/integration)/?",
        ("hook", "//"),
        is_secret=has_digit,
    ),
    SecretRule(
        "webhook with a key",
        (Chars(f"{URL_SAFE}%", 16, 200),),
        r"(?:oapi\.dingtalk\.com/robot/send\?access_token|qyapi\.weixin\.qq\.com/cgi-bin/webhook/send\?key|chat\.googleapis\.com/v1/spaces/[^\s\"']{1,120}[?&](?:key|token))=",
        ("//", "hook"),
    ),
)
"""Values that are recognizable by what stands before them."""

_KEY_KINDS = r"(?:[A-Z0-9]{1,12} ){0,3}"
PEM_BEGIN = rf"-----BEGIN {_KEY_KINDS}(?:PRIVATE KEY(?: BLOCK)?|Static key V1)-----"
PEM_END = rf"-----END {_KEY_KINDS}(?:PRIVATE KEY(?: BLOCK)?|Static key V1)-----"
PEM_BODY = r"[A-Za-z0-9+/=\s:,.()@<>-]"
MAX_PEM = 16_000
