"""People, who sign in with their address, and their roles in tenants."""

from typing import Any, ClassVar

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.db import models
from django.db.models.functions import Lower

from sends.models.base import Row
from sends.models.tenants import Tenant


class People(BaseUserManager["Person"]):
    def create_user(self, email: str, password: str | None = None, **fields: Any) -> "Person":
        """A person who can sign in once a membership gives a role somewhere."""
        person = self.model(email=self.normalize_email(email).lower(), **fields)
        person.set_password(password)
        person.save(using=self._db)
        return person

    def get_by_natural_key(self, username: str | None) -> "Person":
        return self.get(email__iexact=username)


class Person(AbstractBaseUser, Row):
    """One human being. An agent is never one: `sends.models.agents`."""

    email = models.EmailField(max_length=254)
    is_active = models.BooleanField(default=True)
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
