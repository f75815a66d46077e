"""The ledger: one file per table, with its constraints, indexes and named questions."""

from sends.models.accounts import Account, Sender
from sends.models.actions import Action
from sends.models.agents import Agent, Scope, Token
from sends.models.anomalies import Anomaly, AnomalyKind
from sends.models.approvals import ActionResult, Approval, ReasonCode, Verdict
from sends.models.attachments import AttachmentContent, AttachmentUse
from sends.models.attempts import Attempt
from sends.models.audit import AuditCheckpoint, AuditEntry
from sends.models.base import database_now, first_id, new_id
from sends.models.deliveries import Delivery, RecipientKind
from sends.models.events import EventState, MatchedBy, ProviderEvent
from sends.models.evidence import Direction, Evidence, EvidenceKind
from sends.models.installations import Beat, Installation, Program, Restore, RestoreKind
from sends.models.intents import SendIntent
from sends.models.payloads import Payload
from sends.models.people import (
    ClaimedRole,
    IdentityProvider,
    Invitation,
    Membership,
    Person,
    Role,
)
from sends.models.runs import Run
from sends.models.suppressions import Suppression, SuppressionCause
from sends.models.switches import Cause, Switch, SwitchKind
from sends.models.tenants import Policy, PolicyRule, Tenant

__all__ = [
    "Account",
    "Action",
    "ActionResult",
    "Agent",
    "Anomaly",
    "AnomalyKind",
    "Approval",
    "AttachmentContent",
    "AttachmentUse",
    "Attempt",
    "AuditCheckpoint",
    "AuditEntry",
    "Beat",
    "Cause",
    "ClaimedRole",
    "Delivery",
    "Direction",
    "EventState",
    "Evidence",
    "EvidenceKind",
    "IdentityProvider",
    "Installation",
    "Invitation",
    "MatchedBy",
    "Membership",
    "Payload",
    "Person",
    "Policy",
    "PolicyRule",
    "Program",
    "ProviderEvent",
    "ReasonCode",
    "RecipientKind",
    "Restore",
    "RestoreKind",
    "Role",
    "Run",
    "Scope",
    "SendIntent",
    "Sender",
    "Suppression",
    "SuppressionCause",
    "Switch",
    "SwitchKind",
    "Tenant",
    "Token",
    "Verdict",
    "database_now",
    "first_id",
    "new_id",
]
