"""Every setting, from OUTBOX_ variables; with none set the installation serves its own machine."""

import sys
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote, urlsplit

from csp.constants import NONE, SELF

from outbox_admin.env import Environment
from outbox_admin.kept import kept_secret
from sends.rules.limits import Limits

BASE_DIR = Path(__file__).resolve().parent.parent
LOOPBACK = ["localhost", "127.0.0.1", "[::1]"]

env = Environment()

DATA_DIR = env.folder("OUTBOX_DATA_DIR", BASE_DIR / "var")
DEBUG = env.flag("OUTBOX_DEBUG", False)
SHOW_PARTS = DEBUG  # the page with every part the screens are made of

USUAL_PORT = 8025
PORT = env.number("PORT", USUAL_PORT, least=1, most=65534)
SANDBOX_PORT = env.number("SANDBOX_PORT", PORT + 1, least=1, most=65535)

# Where people and agents reach this installation. What differs between a trial on one machine
# and a server on the internet follows from it.
OUTBOX_URL = env.web_address("OUTBOX_URL", f"http://localhost:{PORT}")
HTTPS = OUTBOX_URL.startswith("https://")
HOST = urlsplit(OUTBOX_URL).hostname or ""
HOST = f"[{HOST}]" if ":" in HOST else HOST
IS_LOCAL = HOST in LOOPBACK

# The web

# Further names are for those who ask from inside: a load balancer, a container's health check.
ALLOWED_HOSTS = [*(LOOPBACK if IS_LOCAL else [HOST]), *env.words("OUTBOX_ALLOWED_HOSTS")]
CSRF_TRUSTED_ORIGINS = [OUTBOX_URL]
ROOT_URLCONF = "outbox_admin.urls"
WSGI_APPLICATION = "outbox_admin.wsgi.application"
WEB_WORKERS = env.number("OUTBOX_WEB_WORKERS", 2, least=1, most=64)
WEB_THREADS = env.number("OUTBOX_WEB_THREADS", 8, least=1, most=256)

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_htmx",
    "csp",
    "django_q",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.usersessions",
    "allauth.socialaccount",
    "sends",
]

MIDDLEWARE = [
    "sends.access_log.with_request_id",
    "django.middleware.security.SecurityMiddleware",
    "sends.headers.with_permissions_policy",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "sends.dashboard.access.kept_by_no_cache",
    "sends.dashboard.tenancy.in_named_tenant",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "sends.signin.sessions.listed",
    "sends.dashboard.zones.in_readers_zone",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "csp.middleware.CSPMiddleware",
    "sends.guard.LedgerGuard",
    "django_htmx.middleware.HtmxMiddleware",
    "sends.errors.wrong_method_in_words",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "sends.dashboard.shell.shell",
            ],
        },
    }
]

STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATIC_ROOT = DATA_DIR / "static"
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"
        if DEBUG
        else "whitenoise.storage.CompressedManifestStaticFilesStorage"
    },
}
WHITENOISE_MAX_AGE = 60  # of a file without a hash in its name; the others are kept for ever

# Who may do what

AUTH_USER_MODEL = "sends.Person"
AUTHENTICATION_BACKENDS = ["sends.signin.passwords.Passwords"]
SILENCED_SYSTEM_CHECKS = [
    "auth.W004",  # a person's address is unique whatever its case: more than the check can see
    "security.W005",  # whether HSTS binds subdomains and goes onto the browsers' list is for the
    "security.W021",  # owner of the domain to say, at the proxy
]
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "dashboard:start"
LOGOUT_REDIRECT_URL = "account_login"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
    )
]
PASSWORD_RESET_TIMEOUT = 24 * 60 * 60

# Signing in is django-allauth's: who is let in is decided in `sends.signin`.
KNOWN_FOR = timedelta(minutes=15)  # after showing who one is, before it is asked again
ACCOUNT_ADAPTER = "sends.signin.adapter.Accounts"
ACCOUNT_FORMS = {
    "login": "sends.signin.forms.SignIn",
    "reauthenticate": "sends.signin.forms.ShowWhoYouAre",
    "reset_password": "sends.signin.forms.AskForReset",
    "reset_password_from_key": "sends.signin.forms.Reset",
    "change_password": "sends.signin.forms.ChangePassword",
}
ACCOUNT_USER_MODEL_USERNAME_FIELD = None
ACCOUNT_LOGIN_METHODS = {"email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*"]
ACCOUNT_EMAIL_VERIFICATION = "none"  # an admin invites an address, and whoever reads it accepts
ACCOUNT_PASSWORD_RESET_TOKEN_GENERATOR = "django.contrib.auth.tokens.PasswordResetTokenGenerator"
ACCOUNT_SESSION_REMEMBER = True
ACCOUNT_REAUTHENTICATION_TIMEOUT = KNOWN_FOR.total_seconds()
# Many people may share one address; that somebody tries out passwords shows in the failures.
# Nobody's mail is flooded with links; each of the five serves whom it was sent to.
ACCOUNT_RATE_LIMITS = {
    "login": "60/m/ip",
    "login_failed": "20/m/ip,5/5m/key",
    "reset_password": "20/m/ip,5/h/key",
}
ALLAUTH_TRUSTED_PROXY_COUNT = env.number("OUTBOX_PROXIES", 1 if HTTPS else 0, least=0, most=9)
SOCIALACCOUNT_ADAPTER = "sends.signin.single_sign_on.SingleSignOns"
# A form's POST that leads to another host is what the content security policy refuses.
SOCIALACCOUNT_LOGIN_ON_GET = True
MFA_ADAPTER = "sends.signin.adapter.SecondFactors"
MFA_FORMS = {
    "authenticate": "sends.signin.forms.SecondFactor",
    "reauthenticate": "sends.signin.forms.ShowWhoYouAreByCode",
    "activate_totp": "sends.signin.forms.AddApp",
}
MFA_SUPPORTED_TYPES = ["totp", "webauthn", "recovery_codes"]
MFA_PASSKEY_LOGIN_ENABLED = True
MFA_RECOVERY_CODES_SHOW_ONCE = True
MFA_ALLOW_UNVERIFIED_EMAIL = True
MFA_RATE_LIMITS = {"webauthn_login": "60/m/ip"}  # two of them for each sign-in
MFA_TOTP_TOLERANCE = 1  # clocks of telephones differ
MFA_WEBAUTHN_ALLOW_INSECURE_ORIGIN = IS_LOCAL

# Whoever serves several machines must give them one key; one machine makes and keeps its own.
needs_key = not (IS_LOCAL or DEBUG)
SECRET_KEY = env.secret("OUTBOX_SECRET_KEY", None if needs_key else "", least=50)
# Earlier keys: what was signed with one of them still holds.
SECRET_KEY_FALLBACKS = [
    key.strip() for key in env.secret("OUTBOX_SECRET_KEY_FALLBACKS", "").split(",") if key.strip()
]

SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = HTTPS
# Browsers tell cookies apart by host, not by port: a second installation on this machine must not
# sign people out of the first.
beside = "" if PORT == USUAL_PORT else f"_{PORT}"
SESSION_COOKIE_NAME, CSRF_COOKIE_NAME = (
    ("__Host-outbox_session", "__Host-outbox_csrf")
    if HTTPS
    else (f"outbox_session{beside}", f"outbox_csrf{beside}")
)
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SIGNED_IN_FOR = env.duration("OUTBOX_SIGNED_IN_FOR", timedelta(days=7), least=timedelta(minutes=5))
SESSION_COOKIE_AGE = int(SIGNED_IN_FOR.total_seconds())
CSRF_COOKIE_HTTPONLY = True
CSRF_FAILURE_VIEW = "sends.errors.form_refused"
SECURE_SSL_REDIRECT = HTTPS
SECURE_REDIRECT_EXEMPT = ["^healthz$"]  # asked on the loopback, without TLS
# How long browsers then refuse plain http; a first installation may want to begin with 1h.
HSTS_FOR = env.duration("OUTBOX_HSTS_FOR", timedelta(days=365), least=timedelta(0))
SECURE_HSTS_SECONDS = int(HSTS_FOR.total_seconds()) if HTTPS else 0
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
if HTTPS:
    # `serve` speaks no TLS, so a proxy does; it must set this header itself, whatever the
    # caller sent.
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "object-src": [NONE],
        "frame-ancestors": [NONE],
        "base-uri": [NONE],
        "form-action": [SELF],
    }
}

# Mail to the people who sign in: invitations and links to a new password. Emails of agents never
# go this way.

MAIL = env.mail_server("OUTBOX_MAIL_URL", default_sender=f"outbox@{HOST}")
EMAIL_BACKEND = f"django.core.mail.backends.{'smtp' if MAIL else 'dummy'}.EmailBackend"
EMAIL_HOST, EMAIL_PORT = MAIL.host, MAIL.port
EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = MAIL.user, MAIL.password
EMAIL_USE_TLS, EMAIL_USE_SSL = MAIL.starts_tls, MAIL.is_tls
DEFAULT_FROM_EMAIL = MAIL.sender
EMAIL_TIMEOUT = 10

# The database, the cache, the queue

DATABASES = {
    "default": env.database(
        "OUTBOX_DATABASE_URL", f"sqlite:///{quote(str(DATA_DIR / 'outbox.sqlite3'))}"
    )
    # Connections stay: django-q2 looks five times a second, each time through this setting.
    | {"CONN_MAX_AGE": None, "CONN_HEALTH_CHECKS": True}
}
# NORMAL may forget the last commits when the power fails: an email already sent, sent again.
SQLITE_SYNCHRONOUS = env.choice("OUTBOX_SQLITE_SYNCHRONOUS", "FULL", ("FULL", "NORMAL"))
if "sqlite3" in DATABASES["default"]["ENGINE"]:
    # Without IMMEDIATE a transaction that reads before it writes fails at once where another
    # writes meanwhile; the long timeout is for SQLite's unfair waiting.
    DATABASES["default"]["OPTIONS"] = {
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": (
            "PRAGMA journal_mode=WAL;"
            f" PRAGMA synchronous={SQLITE_SYNCHRONOUS};"
            " PRAGMA foreign_keys=ON;"
            " PRAGMA secure_delete=ON"  # what retention and erasing delete is overwritten
        ),
    }
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# What is counted against rates is counted for all processes and machines together, so it is in the
# database. django-q2 writes its state twice a second: that never is, but other processes read it.
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.db.DatabaseCache",
        "LOCATION": "sends_cache",
        "OPTIONS": {"MAX_ENTRIES": 10_000},
    },
    "queue": {
        "BACKEND": "django.core.cache.backends.filebased.FileBasedCache",
        "LOCATION": DATA_DIR / "cache",
    },
}

# How much one email may hold.
LIMITS = Limits(
    recipients=env.number("OUTBOX_MAX_RECIPIENTS", Limits.recipients, least=1, most=1000),
    subject=env.number("OUTBOX_MAX_SUBJECT", Limits.subject, least=1, most=998),
    body=env.number("OUTBOX_MAX_BODY", Limits.body, least=1, most=100_000_000),
    headers=env.number("OUTBOX_MAX_HEADERS", Limits.headers, least=0, most=1000),
    header=env.number("OUTBOX_MAX_HEADER", Limits.header, least=1, most=998),
    metadata=env.number("OUTBOX_MAX_METADATA", Limits.metadata, least=2, most=1_000_000),
    attachments=env.number("OUTBOX_MAX_ATTACHMENTS", Limits.attachments, least=0, most=1000),
    message=env.number("OUTBOX_MAX_MESSAGE", Limits.message, least=10_000, most=200_000_000),
    request=env.number("OUTBOX_MAX_REQUEST", Limits.request, least=10_000, most=300_000_000),
)

# How often the agents' API may be asked: with one token, a minute and at once; and without one,
# from one address.
API_RATE = env.number("OUTBOX_API_RATE", 600, least=1, most=1_000_000)
API_BURST = env.number("OUTBOX_API_BURST", 600, least=1, most=1_000_000)
API_FAILURES = env.number("OUTBOX_API_FAILURES", 300, least=1, most=1_000_000)

WORKER_THREADS = env.number("OUTBOX_WORKER_THREADS", 32, least=1, most=512)
WORKER_DRAINS = env.number("OUTBOX_WORKER_DRAINS", 1, least=1, most=8)
# More processes than drains, so that every other task always finds a free one.
QUEUE_PROCESSES = WORKER_DRAINS + 2
Q_CLUSTER = {
    "name": "outbox",
    "broker_class": "sends.broker.LedgerORM",
    "orm": "default",
    "cache": "queue",
    "workers": QUEUE_PROCESSES,
    "queue_limit": QUEUE_PROCESSES + 1,
    "bulk": 1,
    "timeout": 90,
    "retry": 120,
    "max_attempts": 3,
    "ack_failures": True,
    "save_limit": -1,
    "catch_up": False,
    "recycle": 500,
    "max_rss": 300_000,
    "poll": 0.2,
    "log_level": "WARNING",
}

# Time, words, log

USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en"
USE_I18N = False


# For whoever reads along at a terminal, or for the programs that keep logs.
LOG_FORMAT = env.choice(
    "OUTBOX_LOG_FORMAT", "TEXT" if sys.stderr.isatty() else "JSON", ("TEXT", "JSON")
)

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"()": "sends.logs.Line", "as_json": LOG_FORMAT == "JSON"}},
    "handlers": {
        "stderr": {"class": "logging.StreamHandler", "formatter": "line"},
        "nowhere": {"class": "logging.NullHandler"},
    },
    "loggers": {
        # Its own lines tell of every beat; ours tell of every attempt.
        "django-q": {"level": "WARNING"},
        "django": {"level": "INFO"},  # without the handlers that it comes with
        # Our line tells of every request, and without its address.
        **{
            name: {"handlers": ["nowhere"], "propagate": False}
            for name in (
                *("django.request", "django.server"),
                *("django.security.csrf", "django.security.DisallowedHost"),
            )
        },
    },
    "root": {
        "handlers": ["stderr"],
        "level": env.choice("OUTBOX_LOG_LEVEL", "INFO", ("DEBUG", "INFO", "WARNING", "ERROR")),
    },
}

env.complain()
SECRET_KEY = SECRET_KEY or kept_secret(DATA_DIR, "secret-key")
