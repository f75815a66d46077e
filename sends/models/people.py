"""People, who sign in with their address, their roles in tenants, and how one gets a role."""

from datetime import datetime
from typing import Any, ClassVar

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.db import models
from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import Lower

from sends.models.base import Row
from sends.models.tenants import Tenant
from sends.rules.addresses import of_person


class People(BaseUserManager["Person"]):
    def create_user(self, email: str, password: str | None = None, **fields: Any) -> "Person":
        """A person who can sign in once a membership gives a role somewhere."""
        person = self.model(email=of_person(email), **fields)
        person.set_password(password)
        person.save(using=self._db)
        return person

    def get_by_natural_key(self, username: str | None) -> "Person":
        return self.get(email=of_person(username or ""))

    def at(self, address: str) -> "Person | None":
        """Whose address this is, whichever of its letters are written as capitals."""
        return self.filter(email=of_person(address)).first()


class Person(AbstractBaseUser, Row):
    """One human being. An agent is never one: `sends.models.agents`."""

    email = models.EmailField(max_length=254)  # as `of_person` writes it
    is_active = models.BooleanField(default=True)
    # May use a password where everybody else signs in through an identity provider.
    break_glass = models.BooleanField(default=False)
    time_zone = models.CharField(max_length=63, blank=True)
    theme = models.CharField(max_length=5, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = People()

    USERNAME_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []

    class Meta:
        constraints = [models.UniqueConstraint(Lower("email"), name="person_email")]

    def __str__(self) -> str:
        return self.email

    def may_use_password(self) -> bool:
        """Whether one lets this person in, who may have none; a passkey counts as a password."""
        return self.break_glass or not IdentityProvider.objects.filter(is_only_way=True).exists()


class Role(models.IntegerChoices):
    """Each role includes those before it."""

    VIEWER = 1, "Viewer"
    APPROVER = 2, "Approver"
    OPERATOR = 3, "Operator"
    ADMIN = 4, "Admin"


class Membership(Row):
    """A person's role in one tenant."""

    tenant = models.ForeignKey(Tenant, models.PROTECT, related_name="memberships")
    person = models.ForeignKey(Person, models.PROTECT, related_name="memberships")
    role = models.PositiveSmallIntegerField(choices=Role.choices)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant", "person"], name="one_membership")]

    def may(self, role: Role) -> bool:
        """Whether this person has `role` or one that includes it."""
        return self.role >= role


class Invitations(models.QuerySet["Invitation"]):
    def pending(self, now: datetime) -> "Invitations":
        """Neither used, taken back nor too old; each says whether it still `holds`.

        It does as long as whoever made it is admin there.
        """
        maker = Membership.objects.filter(
            tenant=OuterRef("tenant"),
            person=OuterRef("invited_by"),
            person__is_active=True,
            role=Role.ADMIN,
        )
        found = self.filter(accepted_at=None, revoked_at=None, expires_at__gt=now)
        return found.annotate(holds=Exists(maker))


class Invitation(Row):
    """A role that waits for whoever reads an address. Only the SHA-256 of its token is kept."""

    tenant = models.ForeignKey(Tenant, models.PROTECT, related_name="invitations")
    email = models.EmailField(max_length=254)  # as that of a person
    role = models.PositiveSmallIntegerField(choices=Role.choices)
    digest = models.CharField(max_length=64, unique=True)
    invited_by = models.ForeignKey(Person, models.PROTECT, related_name="+")
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    accepted_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)

    objects = Invitations.as_manager()

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(accepted_at=None) | Q(revoked_at=None), name="invitation_ends_once"
            )
        ]
        indexes = [models.Index(fields=["tenant", "email"], name="invitation_email")]


class IdentityProvider(Row):
    """Where people sign in elsewhere, by OpenID Connect."""

    slug = models.SlugField(max_length=63, unique=True)
    name = models.CharField(max_length=120)
    issuer = models.CharField(max_length=500)
    client_id = models.CharField(max_length=255)
    client_secret = models.CharField(max_length=500)  # a reference: env:NAME or file:PATH
    email_domains = models.JSONField(default=list)
    claim = models.CharField(max_length=120, default="groups")  # what names roles
    # Whether who has an account already is known by the verified address alone.
    matches_address = models.BooleanField(default=False)
    is_only_way = models.BooleanField(default=False)  # passwords no longer let people in

    def __str__(self) -> str:
        return self.name


class ClaimedRole(Row):
    """The role that one value of an identity provider's claim gives in a tenant."""

    provider = models.ForeignKey(IdentityProvider, models.PROTECT, related_name="roles")
    tenant = models.ForeignKey(Tenant, models.PROTECT, related_name="claimed_roles")
    value = models.CharField(max_length=255)
    role = models.PositiveSmallIntegerField(choices=Role.choices)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["provider", "tenant", "value"], name="claimed_once")
        ]
