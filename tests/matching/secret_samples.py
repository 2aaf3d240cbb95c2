"""Samples of secrets, made from a seed: each is a text and the part of it that must not remain."""

import base64
import random
import string
from collections.abc import Iterator
from typing import NamedTuple

_ALPHABETS = {
    "hex": "0123456789abcdef",
    "HEX": "0123456789ABCDEF",
    "alnum": string.ascii_letters + string.digits,
    "low": string.ascii_lowercase + string.digits,
    "up": string.ascii_uppercase + string.digits,
    "b32": string.ascii_uppercase + "234567",
    "url": string.ascii_letters + string.digits + "_-",
    "num": string.digits,
    "b64": string.ascii_letters + string.digits + "+/",
    "az": string.ascii_letters,
}

TOKENS = """
1password-key|A3-{up6}-{up6}-{up5}-{up5}-{up5}-{up5}
1password-account|ops_eyJ{b64300}
adobe|p8e-{low32}
age|AGE-SECRET-KEY-1{b3258}
alibaba|LTAI{alnum20}
anthropic|sk-ant-api03-{url93}AA
anthropic-admin|sk-ant-admin01-{url93}AA
artifactory|AKCp{alnum69}
artifactory-reference|cmVmd{alnum59}
atlassian|ATATT3{url186}
authress|sc_{low10}.{low4}.acc_{low12}.{low40}
aws-id|AKIA{b3216}
aws-session-id|ASIA{b3216}
bedrock|ABSK{b64120}
bedrock-short|bedrock-api-key-YmVkcm9jay5hbWF6b25hd3MuY29t{b6440}
cerebras|csk-{low48}
clojars|CLOJARS_{low60}
databricks|dapi{hex32}
defined-networking|dnkey-{url26}-{url52}
digitalocean|doo_v1_{hex64}
digitalocean-personal|dop_v1_{hex64}
digitalocean-refresh|dor_v1_{hex64}
docker|dckr_pat_{url27}
doppler|dp.pt.{alnum43}
duffel|duffel_live_{url43}
dynatrace|dt0c01.{up24}.{up64}
easypost|EZAK{alnum54}
easypost-test|EZTK{alnum54}
facebook-page|EAAC{alnum120}
figma|figd_{url40}
flutterwave|FLWSECK_TEST-{hex32}-X
fly|fo1_{url43}
fly-machine|fm2_{b64120}
frameio|fio-u-{url64}
gcp|AIza{url35}
vaka-key|ak_{low8}_{url43}
vaka-ticket|vkt_{hex16}_{url43}
vaka-login|vks_{hex16}_{url43}
github|ghp_{alnum36}
github-oauth|gho_{alnum36}
github-user|ghu_{alnum36}
github-server|ghs_{alnum36}
github-refresh|ghr_{alnum36}
github-fine-grained|github_pat_{alnum22}_{alnum59}
gitlab|glpat-{url20}
gitlab-routable|glpat-{url27}.{low9}
gitlab-job|glcbt-{alnum3}_{url20}
gitlab-deploy|gldt-{url20}
gitlab-flag|glffct-{url20}
gitlab-feed|glft-{url20}
gitlab-mail|glimt-{url25}
gitlab-agent|glagent-{url50}
gitlab-oauth|gloas-{url64}
gitlab-trigger|glptt-{hex40}
gitlab-registration|GR1348941{url20}
gitlab-runner|glrt-{url20}
gitlab-scim|glsoat-{url20}
google-oauth|GOCSPX-{url28}
google-access|ya29.{url100}
google-refresh|1//0{url60}
grafana|eyJrIjoi{alnum80}
grafana-cloud|glc_{b6450}
grafana-service|glsa_{alnum32}_{hex8}
groq|gsk_{alnum52}
harness|pat.{alnum22}.{alnum24}.{alnum20}
heroku|HRKU-AA{url58}
huggingface|hf_{az34}
huggingface-organization|api_org_{az34}
infracost|ico-{alnum32}
intra42|s-s4t2ud-{hex64}
jwt|eyJhbGciOiJIUzI1NiJ9.eyJ{alnum40}.{url43}
jwt-base64|ZXlKaGJHY2lPaU{alnum60}
langsmith|lsv2_pt_{hex32}_{hex10}
linear|lin_api_{alnum40}
lob|live_{hex35}
lob-public|test_pub_{hex31}
mailgun|key-{hex32}
mapbox|sk.eyJ{alnum80}.{alnum22}
netlify|nfp_{alnum36}
new-relic|NRAK-{up27}
new-relic-browser|NRJS-{hex19}
new-relic-insert|NRII-{alnum32}
notion|ntn_{num11}{alnum35}
npm|npm_{alnum36}
nvidia|nvapi-{url64}
octopus|API-{up26}
openai|sk-{alnum20}T3BlbkFJ{alnum20}
openai-project|sk-proj-{url74}T3BlbkFJ{url74}
openrouter|sk-or-v1-{hex64}
openshift|sha256~{url43}
perplexity|pplx-{alnum48}
pinecone|pcsk_{alnum70}
plaid|access-production-{hex8}-{hex4}-{hex4}-{hex4}-{hex12}
planetscale|pscale_tkn_{url43}
planetscale-oauth|pscale_oauth_{url43}
planetscale-password|pscale_pw_{url43}
postman|PMAK-{hex24}-{hex34}
prefect|pnu_{alnum36}
pulumi|pul-{hex40}
pypi|pypi-AgEIcHlwaS5vcmc{url60}
readme|rdme_{low70}
replicate|r8_{alnum37}
rubygems|rubygems_{hex48}
scalingo|tk-us-{url48}
sendgrid|SG.{url22}.{url43}
sendinblue|xkeysib-{hex64}-{alnum16}
sentry|sntrys_eyJpYXQiO{b6480}_{b6443}
sentry-user|sntryu_{hex64}
settlemint|sm_pat_{alnum16}
shippo|shippo_live_{hex40}
shopify|shpat_{hex32}
shopify-shared|shpss_{hex32}
slack-app|xapp-1-{up11}-{num13}-{hex64}
slack-bot|xoxb-{num12}-{num12}-{alnum24}
slack-user|xoxp-{num12}-{num12}-{num12}-{hex32}
slack-refresh|xoxe-1-{up146}
slack-config|xoxe.xoxp-1-{up163}
slack-legacy|xoxa-2-{alnum40}
sonar|squ_{hex40}
sourcegraph|sgp_{hex16}_{hex40}
square|sq0atp-{url22}
square-access|EAAA{url60}
stripe|sk_live_{alnum24}
stripe-restricted|rk_test_{alnum24}
stripe-webhook|whsec_{alnum32}
supabase|sbp_{hex40}
tailscale|tskey-auth-{alnum12}-{alnum32}
tavily|tvly-{alnum32}
twilio|SK{hex32}
typeform|tfp_{url59}
vault|hvs.{url95}
vault-batch|hvb.{url140}
vault-old|s.{alnum24}
xai|xai-{alnum80}
yandex|AQVN{url36}
buildkite|bkua_{hex40}
e2b|e2b_{hex40}
anyscale|aph0_{alnum60}
honeycomb|hcaik_{low58}
semgrep|sgt_{hex64}
axiom|xaat-{hex8}-{hex4}-{hex4}-{hex4}-{hex12}
runpod|rpa_{up40}
deno|ddp_{alnum36}
datadog|ddpat_{alnum36}
browserbase|bb_live_{url27}
razorpay|rzp_live_{alnum14}
volcengine|AKLT{alnum43}
baidu|bce-v3/ALTAK-{alnum21}/{hex40}
alibaba-sts|STS.{alnum26}
snyk|snyk_uat.{hex8}.{url60}
django|pbkdf2_sha256$260000${alnum22}${b6443}=
shadow|$6$saltsalt${alnum86}
bcrypt|$2b$12${alnum53}
argon2|$argon2id$v=19$m=65536,t=3,p=4${alnum22}${alnum43}
"""
"""A name and a format: the whole sample is secret."""

IN_CONTEXT = """
adafruit|ADAFRUIT_IO_KEY = "|{low32}|"
adobe-client|adobe_client_secret: '|{hex32}|'
airtable|pat{alnum14}.|{hex64}|
algolia|algolia_api_key = "|{low32}|"
alibaba-secret|ALIBABA_SECRET_KEY=|{low30}|
asana|asana_client_secret = '|{low32}|'
atlassian-old|JIRA_API_TOKEN=|{low20}{hex4}|
aws-secret|aws_secret_access_key = |{b6440}|
aws-secret-after-id|AKIA{b3216} |{b6440}|
aws-session|AWS_SESSION_TOKEN=|{b64200}|
azure-client|client: abc8|Q~{url31}|
azure-storage|DefaultEndpointsProtocol=https;AccountName=x;AccountKey=|{b6486}==|;EndpointSuffix=core.windows.net
azure-bus|Endpoint=sb://x.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=|{b6443}=|
azure-sas|https://x.blob.core.windows.net/c?sv=2020-08-04&sp=r&sig=|{alnum43}%3D|
beamer|beamer_api_token="|b_{url44}|"
bitbucket|bitbucket_client_secret = "|{url64}|"
bittrex|bittrex_secret_key = |{low32}|
clickhouse|CLICKHOUSE_SECRET_KEY=|4b1d{alnum38}|
cloudflare|CLOUDFLARE_API_TOKEN=|{url40}|
cloudflare-global|cloudflare_api_key: |{hex37}|
cloudinary|CLOUDINARY_URL=cloudinary://{num15}:|{url27}|@demo
codecov|CODECOV_TOKEN: |{low32}|
cohere|CO_API_KEY="|{alnum40}|"
coinbase|coinbase_access_token = "|{low64}|"
confluent|confluent_secret_key = "|{low64}|"
contentful|contentful_delivery_token = "|{url43}|"
curl-header|curl -H "Authorization: Bearer |{alnum32}|" https://example.org
curl-token|curl --header 'X-Api-Key: |{alnum32}|' https://example.org
curl-user|curl -u admin:|Tr0ub4dor&3| https://example.org
datadog|DATADOG_API_KEY=|{low40}|
discord|MTk4NjIyNDgzNDcxOTI1MjQ4.Cl2FMQ.|{url27}|
discord-client|discord_client_secret = "|{url32}|"
docker-auth|{{"auths": {{"https://index.docker.io/v1/": {{"auth": "|{b6440}|"}}}}}}
droneci|DRONECI_TOKEN=|{low32}|
dropbox|dropbox_access_token = "|sl.{url135}|"
environment|export DB_PASSWORD=|correcthorse|
etsy|etsy_api_key: "|{low24}|"
facebook|{num15}%7C|{url30}|
facebook-secret|FACEBOOK_APP_SECRET=|{hex32}|
fastly|FASTLY_API_TOKEN = "|{url32}|"
finicity|finicity_client_secret = "|{low20}|"
finnhub|FINNHUB_TOKEN=|{low20}|
flickr|flickr_access_token = "|{low32}|"
freemius|'secret_key' => '|sk_{url29}|'
freshbooks|freshbooks_access_token = |{low64}|
gcp-key-id|"private_key_id": "|{hex40}|"
generic|my_service_auth = "|{alnum32}|"
gitlab-session|_gitlab_session=|{hex32}|
gitter|gitter_access_token: |{url40}|
gocardless|GOCARDLESS_TOKEN=|live_{url40}|
heroku|HEROKU_API_KEY=|{hex8}-{hex4}-{hex4}-{hex4}-{hex12}|
hubspot|hubspot_api_key = "|{HEX8}-{HEX4}-{HEX4}-{HEX4}-{HEX12}|"
intercom|intercom_api_token = '|{url60}|'
jfrog|artifactory_api_key = "|{low73}|"
json|{{"user": "x", "password": "|hunter2hunter|"}}
jwk|{{"kty": "EC", "crv": "P-256", "d": "|{url43}|"}}
kraken|kraken_secret_key = |{b6486}|
kubernetes|kind: Secret\\ndata:\\n  value: |{b6440}|
kucoin|KUCOIN_SECRET_KEY=|{hex8}-{hex4}-{hex4}-{hex4}-{hex12}|
launchdarkly|LAUNCHDARKLY_ACCESS_TOKEN=|{url40}|
linkedin|linkedin_client_secret: "|{alnum16}|"
looker|looker_client_secret = "|{low24}|"
mailchimp|mailchimp_api_key = "|{hex32}-us20|"
mailgun-signing|mailgun_signing_key = "|{hex32}-{hex8}-{hex8}|"
mattermost|mattermost_token: |{low26}|
maxmind|MAXMIND_LICENSE_KEY=|{alnum6}_{alnum29}_mmk|
meraki|meraki_api_key: "|{hex40}|"
messagebird|messagebird_api_token = |{low25}|
mongo|mongodb+srv://app:|Pa55word!x|@cluster0.example.net/db # not a secret
mysql|mysql -u root -p|Hunter2!| app
netlify|netlify_auth_token = "|{url43}|"
netrc|machine example.org login me password |Hunter2!|
npmrc|//npm.example.org/:_authToken=|{hex8}-{hex4}-{hex4}-{hex4}-{hex12}|
nuget|<add key="ClearTextPassword" value="|Hunter2Hunter!|" />
nytimes|nytimes_api_key = |{url32}|
oauth|client_secret=|{alnum24}|&grant_type=client_credentials
okta|OKTA_API_TOKEN=|00{url40}|
one-time|otpauth://totp/Example:me?secret=|{b3232}|&issuer=Example
option|deploy --token |{alnum24}| --force
pgpass|db.example.org:5432:app:me:|Hunter2!|
plaid|PLAID_SECRET_KEY = "|{low30}|"
postgres|postgres://me:|s3cr3t|@db/x # not a secret
privateai|private_ai_api_key = "|{low32}|"
putty|Private-Lines: 2\\n|{b6464}\\n{b6440}|
rapidapi|X-RapidAPI-Key: |{url50}|
redis|redis-cli -h cache -a |Hunter2!| ping
s3-signed|https://b.s3.amazonaws.com/k?X-Amz-Signature=|{hex64}|
sendbird|sendbird_access_token = "|{hex40}|"
sentry-dsn|https://|{hex32}|@o123.ingest.sentry.io/45
session-cookie|Cookie: theme=dark; sessionid=|{low32}|
sidekiq|https://{hex8}:|{hex8}|@gems.contribsys.com/
slack-webhook|https://hooks.slack.com/services/|T{up8}/B{up8}/{alnum24}|
snyk|SNYK_TOKEN=|{hex8}-{hex4}-{hex4}-{hex4}-{hex12}|
squarespace|squarespace_api_key = |{hex8}-{hex4}-{hex4}-{hex4}-{hex12}|
ssh-command|sshpass -p |Hunter2!| ssh me@example.org
sumologic|SUMO_ACCESS_KEY=|{alnum64}|
teams|https://x.webhook.office.com/webhookb2/|{hex8}-{hex4}-{hex4}-{hex4}-{hex12}@{hex8}-{hex4}-{hex4}-{hex4}-{hex12}/IncomingWebhook/{hex32}/{hex8}-{hex4}-{hex4}-{hex4}-{hex12}|
telegram|{num10}:|AA{url33}|
terraform|{alnum14}.atlasv1.|{url64}|
travis|travis_token: |{low22}|
twitch|twitch_client_secret = "|{low30}|"
twitter|twitter_api_secret = "|{alnum50}|"
twitter-bearer|twitter_bearer_token = "|AAAAAAAAAAAAAAAAAAAAAA{alnum80}|"
discord-webhook|https://discord.com/api/webhooks/|{num18}/{url68}|
feishu|https://open.feishu.cn/open-apis/bot/v2/hook/|{hex8}-{hex4}-{hex4}-{hex4}-{hex12}|
dingtalk|https://oapi.dingtalk.com/robot/send?access_token=|{hex64}|
wecom|https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=|{hex8}-{hex4}-{hex4}-{hex4}-{hex12}|
google-chat|https://chat.googleapis.com/v1/spaces/AAAA/messages?key=abc&token=|{url43}|
wandb|WANDB_API_KEY=|{hex40}|
xml|<password>|Hunter2!|</password>
yaml|password: |Hunter2!|
yaml-quoted|db_password: "|correct-horse|"
python|DATABASE_PASSWORD = '|correct-horse|'
toml|secret = "|{alnum16}|"
zendesk|zendesk_secret_key = "|{low40}|"
basic-header|Authorization: Basic |bWU6aHVudGVyMg==|
proxy|http://me:|hunter2|@proxy:3128 # not a secret
kubernetes-variable|- name: API_TOKEN\\n  value: |{alnum32}|
kubernetes-json|"name": "DB_PASSWORD", "value": "|Hunter2Hunter!|"
kubernetes-diff|+kind: Secret\\n+data:\\n+  value: |{b6440}|
query-key|https://maps.example.org/api?key=|{alnum39}|
query-signature|https://s.example.org/f?Expires=1&Signature=|{alnum40}|&Key-Pair-Id=x
aws-signature|Authorization: AWS4-HMAC-SHA256 Credential=x/y, SignedHeaders=host, Signature=|{hex64}|
sql|CREATE USER me WITH PASSWORD '|Hunter2Hunter!|';
php|define('DB_PASSWORD', '|Hunter2Hunter!|');
java|connection.setPassword("|Hunter2Hunter!|");
fish|set -x API_KEY |{alnum32}|
csh|setenv API_KEY |{alnum32}|
redis-settings|requirepass |Hunter2Hunter!|
header-token|Authorization: token |{hex40}|
url-parameter|https://api.example.org/v1?api_key=|{alnum32}|&q=x
"""
"""A name, the text before the secret, the secret, and the text after it."""

PEM = "-----BEGIN {0}-----\n{1}\n{2}\n{3}==\n-----END {0}-----"
PEM_KINDS = (
    "PRIVATE KEY",
    "RSA PRIVATE KEY",
    "EC PRIVATE KEY",
    "DSA PRIVATE KEY",
    "OPENSSH PRIVATE KEY",
    "ENCRYPTED PRIVATE KEY",
    "PGP PRIVATE KEY BLOCK",
)


class Sample(NamedTuple):
    """A text with a secret."""

    name: str
    before: str
    secret: str
    after: str

    @property
    def text(self) -> str:
        return self.before + self.secret + self.after


def _fill(template: str, random: random.Random) -> str:
    class Filler(dict[str, str]):
        def __missing__(self, key: str) -> str:
            name = key.rstrip(string.digits) if not key.startswith(("b64", "b32")) else key[:3]
            size = int(key[len(name) :])
            text = "".join(random.choices(_ALPHABETS[name], k=size))
            both = "A7" if name in ("up", "HEX", "b32") else "a7"  # a letter and a digit
            return text if size < 4 or name in ("az", "num") else text[:-3] + both + text[-1]

    pieces: list[str] = []
    for literal, field, _, _ in string.Formatter().parse(template):
        pieces += (literal, Filler()[field] if field else "")
    return "".join(pieces).replace("\\n", "\n")


def make_samples(seed: int = 12) -> Iterator[Sample]:
    """Yield one sample of every kind."""
    source = random.Random(seed)  # nosec B311  # samples, not keys
    for line in TOKENS.strip().splitlines():
        name, template = line.split("|")
        yield Sample(name, "", _fill(template, source), "")
    for line in IN_CONTEXT.strip().splitlines():
        name, before, secret, after = line.split("|")
        yield Sample(name, _fill(before, source), _fill(secret, source), _fill(after, source))
    for kind in PEM_KINDS:
        lines = [base64.b64encode(source.randbytes(48)).decode() for _ in range(3)]
        yield Sample(kind.lower(), "", PEM.format(kind, *lines), "")
