"""`manage.py submit`: what is taken, what is said, and how it ends."""

import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command

from sends.lifecycle import worker
from sends.models import Action, Agent, Sender, SendIntent
from sends.rules.eml import read_email
from sends.rules.keys import sha256
from sends.rules.proposals import parse
from tests.factories import make_account, make_agent, make_agent_at, make_sender, make_tenant
from tests.promises.stage import await_that
from tests.rules.test_eml import TAKEN
from tests.sending import make_agent_of, sandbox_with

CORPUS = Path(__file__).parent.parent / "corpus" / "eml"

pytestmark = pytest.mark.django_db


@pytest.fixture
def agent() -> Agent:
    account = make_account(make_tenant())
    return make_agent(make_sender(account, address="support@mail.example.com", name="Support"))


def submit(*words: object, stdin: bytes = b"") -> tuple[int, list[str], list[str]]:
    """How it ended, and the lines it wrote to standard output and standard error."""
    out, err = io.StringIO(), io.StringIO()
    before, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(stdin))
    try:
        call_command("submit", *map(str, words), stdout=out, stderr=err)
    except SystemExit as ended:
        return int(ended.code or 0), out.getvalue().splitlines(), err.getvalue().splitlines()
    finally:
        sys.stdin = before
    raise AssertionError("it ends with a code")


def line(key: str, **fields: Any) -> str:
    return json.dumps({"action_key": key, "to": "jo@example.org", "text": "Hi"} | fields) + "\n"


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(lines), encoding="utf-8")
    return path


# What is taken


def test_lines_are_proposed_and_a_second_time_changes_nothing(agent: Agent, tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", line("k1"), "\n", line("k2", subject="Hello"))
    assert submit(file) == (0, ["2 emails: 2 taken, 0 replayed, 0 refused."], [])
    assert submit(file) == (0, ["2 emails: 0 taken, 2 replayed, 0 refused."], [])
    assert [action.action_key for action in Action.objects.order_by("number")] == ["k1", "k2"]
    assert {intent.agent for intent in SendIntent.objects.all()} == {agent}


def test_each_refusal_is_one_line_with_its_place_and_its_reason(
    agent: Agent, tmp_path: Path
) -> None:
    file = write(
        tmp_path / "a.jsonl",
        line("k1"),
        line("k1", text="something else"),
        "{\n",
        line("k3", to="nobody", headers={"Bcc": "eve@example.net"}),
        line("k4"),
    )
    code, out, err = submit(file)
    assert code == 1
    assert out[0] == "5 emails: 2 taken, 0 replayed, 3 refused."
    assert [said.partition(" is ")[0] for said in err] == [
        err[0].partition(" is ")[0],
        f"{file}:3: not_json: The body",
        f"{file}:4: reserved_header /headers/Bcc: Bcc",
        f"{file}:4: address /to:",
    ]
    assert err[0].startswith(f"{file}:2: action_key_reuse: The action key k1 stands for message #")
    assert SendIntent.objects.count() == 2


def test_standard_input_is_json_lines(agent: Agent) -> None:
    code, _, err = submit("-", stdin=b"\xff\n" + line("k1").encode())
    assert (code, len(err)) == (1, 1)
    assert err[0].startswith("standard input:1: not_json: ")
    assert Action.objects.get().action_key == "k1"


def test_a_folder_of_emails_is_taken_but_for_what_no_proposal_can_say(agent: Agent) -> None:
    code, out, err = submit(CORPUS)
    taken, refused = 14, 28
    assert code == 1
    assert out[0] == f"{taken + refused} emails: {taken} taken, 0 replayed, {refused} refused."
    assert any(said.startswith("Left out, ") and "Dkim-Signature" in said for said in out)
    assert f"{CORPUS / 'signed.eml'}: not_carried: it is signed, and the signature" in "".join(err)

    code, out, again = submit(CORPUS)
    assert out[0] == f"{taken + refused} emails: 0 taken, {taken} replayed, {refused} refused."
    assert again == err


def test_an_email_is_the_same_message_alone_and_in_a_mailbox(agent: Agent, tmp_path: Path) -> None:
    raw = (CORPUS / "plain.eml").read_bytes()
    box = tmp_path / "jo.mbox"
    box.write_bytes(b"From jo@example.org Mon Nov 30 10:00:00 2026\r\n" + raw)
    assert submit(CORPUS / "plain.eml")[1][0] == "1 email: 1 taken, 0 replayed, 0 refused."
    assert submit(box)[1][0] == "1 email: 0 taken, 1 replayed, 0 refused."


def test_a_dry_run_says_the_same_and_takes_nothing(agent: Agent, tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", line("k1"), line("k2", to="nobody"), line("k3"))
    code, out, err = submit(file, "--dry-run")
    assert out[-1] == "This was a dry run; nothing was taken."
    assert not SendIntent.objects.exists()
    assert submit(file) == (code, out[:-1], err)
    assert SendIntent.objects.count() == 2


# Who proposes, and from which sender


def test_a_sender_that_is_none_of_ours_is_refused_with_those_there_are(
    agent: Agent, tmp_path: Path
) -> None:
    file = write(tmp_path / "a.eml", "From: eve@example.net\nTo: jo@example.org\n\nHi\n")
    _, out, err = submit(file)
    assert err == [
        f"{file}: unknown_sender /sender: is no sender here; there are: support@mail.example.com"
    ]
    assert "With --sender ADDRESS they are sent from a sender of yours." in out

    assert submit(file, "--sender", "Support@mail.example.com")[0] == 0
    assert SendIntent.objects.get().sender == agent.sender


def test_of_several_agents_one_must_be_named(agent: Agent, tmp_path: Path) -> None:
    other = make_agent_at()
    file = write(tmp_path / "a.jsonl", line("k1"))
    known = sorted(f"{a.tenant.slug}/{a.slug}" for a in (agent, other))
    for words in ((), ("--agent", "nobody"), ("--agent", f"{other.tenant.slug}/{agent.slug}")):
        with pytest.raises(CommandError, match=f"There are: {', '.join(known)}") as caught:
            submit(file, *words)
        assert caught.value.returncode == 2
    assert not SendIntent.objects.exists()

    assert submit(file, "--agent", other.slug)[0] == 0
    assert submit(file, "--agent", f"{agent.tenant.slug}/{agent.slug}")[0] == 0
    assert {intent.agent for intent in SendIntent.objects.all()} == {agent, other}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("gone.eml",), "There is no gone.eml"),
        (("--sender", "eve@example.net", "-"), "eve@example.net is no sender of "),
    ],
)
def test_a_wrong_command_line_begins_nothing(
    agent: Agent, words: tuple[str, ...], said: str
) -> None:
    with pytest.raises(CommandError, match=said) as caught:
        submit(*words)
    assert caught.value.returncode == 2


def test_what_comes_from_a_file_controls_no_terminal(agent: Agent, tmp_path: Path) -> None:
    file = write(
        tmp_path / "a\x1b[2J\udcff.eml", "From: \x1b]0;owned\x07@example.net\nTo: a\n\nHi\n"
    )
    _, _, err = submit(file)
    assert err
    assert all(letter.isprintable() for said in err for letter in said)


# What arrives


def test_what_emails_say_is_what_the_provider_gets() -> None:
    with sandbox_with("replay") as sandbox:
        tenant = make_tenant(approvals=0)
        account = make_agent_of(sandbox, tenant).sender.account  # type: ignore[union-attr]
        sender = make_sender(account, address="support@mail.example.com", name="Support")
        agent = make_agent(sender)
        assert submit(CORPUS, "--agent", agent.slug)[1][0].startswith("42 emails: 14 taken, ")
        assert worker.drain() == 14

        got = {message["tag"]: message["digest"] for message in sandbox.journal()}
    expected = {}
    for name in TAKEN.keys() - {"only-bcc"}:  # refused: the sandbox wants somebody in To
        document = read_email((CORPUS / f"{name}.eml").read_bytes()).document
        intent = SendIntent.objects.get(action__action_key=document["action_key"])
        expected[intent.pk.hex] = request_digest(document, intent, sender)
    assert got == expected


def request_digest(document: dict[str, Any], intent: SendIntent, sender: Sender) -> str:
    """SHA-256 of the one request that says what the document says (sends/sandbox/README.md)."""
    proposal = parse(document)  # which writes domains in ASCII
    boxes = {
        name: [_said(box.model_dump()) for box in getattr(proposal, name)]
        for name in ("to", "cc", "bcc", "reply_to")
    }
    thread = {
        "In-Reply-To": document.get("in_reply_to"),
        "References": " ".join(document.get("references", [])),
    }
    files = [
        {
            **{k: v for k, v in file.items() if k in ("filename", "content_type", "content_id")},
            "content": file["content_base64"],
            "disposition": "inline" if file.get("inline") else "attachment",
        }
        for file in document.get("attachments", [])
    ]
    body = {
        "from": {"address": sender.address, "name": sender.name},
        **boxes,
        "subject": document.get("subject", ""),
        "headers": document["headers"] | _said(thread),
        **{k: document[k] for k in ("text", "html") if k in document},
        **({"attachments": files} if files else {}),
        "message_id": intent.message_id,
        "tag": intent.pk.hex,
    }
    return sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode())


def _said(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}


# A process that ends in the middle


def start(files: Path, env: dict[str, str], database_url: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "manage.py", "submit", str(files)],
        env=env | {"OUTBOX_DATABASE_URL": database_url},
        cwd=settings.BASE_DIR,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_after_any_end_the_same_command_makes_the_set_whole(
    tmp_path: Path, process_env: dict[str, str], database_url: str, number: signal.Signals
) -> None:
    make_agent_at()
    fifo, keys = tmp_path / "a.jsonl", [f"k{number}" for number in range(30)]
    os.mkfifo(fifo)
    process = start(fifo, process_env, database_url)
    with fifo.open("w") as feed:
        feed.write("".join(line(key) for key in keys[:10]))
        feed.flush()
        await_that(lambda: Action.objects.count() == 10)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == (-signal.SIGKILL if number == signal.SIGKILL else 130)
    if number == signal.SIGINT:
        # The tenth is in the database a moment before it is counted.
        words = rf"Stopped after {re.escape(str(fifo))}:(9|10): \1 taken, 0 replayed, 0 refused\. "
        assert re.match(words, err)

    whole = write(tmp_path / "b.jsonl", *map(line, keys))
    assert submit(whole)[1] == ["30 emails: 20 taken, 10 replayed, 0 refused."]
    assert sorted(Action.objects.values_list("action_key", flat=True)) == sorted(keys)
