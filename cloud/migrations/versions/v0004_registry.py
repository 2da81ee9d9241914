"""Registered models and releases."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_SHA256 = sa.String(64)


def upgrade() -> None:
    op.create_table(
        "models",
        sa.Column("id", _SHA256, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("family", "name", "version", "path")),
        sa.Column("file_sha256", _SHA256, nullable=False),
        sa.Column("file_bytes", sa.BigInteger, nullable=False),
        sa.Column("parent_id", _SHA256, nullable=True),
        sa.Column("dataset", sa.Text, nullable=False),
        sa.Column("verdict", sa.Text, nullable=True),
        sa.Column("made_at", sa.DateTime, nullable=False),
        sa.Column("registered_at", sa.DateTime, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_models"),
        sa.UniqueConstraint("name", "version", name="uq_models_name_version"),
    )
    op.create_index("ix_models_family_registered_at", "models", ["family", "registered_at"])
    op.create_index("ix_models_parent_id", "models", ["parent_id"])
    op.create_table(
        "model_aliases",
        sa.Column("family", sa.Text, nullable=False),
        sa.Column("alias", sa.Text, nullable=False),
        sa.Column("model_id", _SHA256, nullable=False),
        sa.Column("since", sa.DateTime, nullable=False),
        sa.PrimaryKeyConstraint("family", "alias", name="pk_model_aliases"),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name="fk_model_aliases_model_id"),
    )
    op.create_index("ix_model_aliases_model_id", "model_aliases", ["model_id"])
    op.create_table(
        "model_alias_changes",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("family", sa.Text, nullable=False),
        sa.Column("alias", sa.Text, nullable=False),
        sa.Column("model_id", _SHA256, nullable=True),
        sa.Column("at", sa.DateTime, nullable=False),
        sa.Column("why", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_model_alias_changes"),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name="fk_model_alias_changes_model_id"),
    )
    op.create_index("ix_model_alias_changes_family_id", "model_alias_changes", ["family", "id"])
    op.create_index("ix_model_alias_changes_model_id", "model_alias_changes", ["model_id"])


def downgrade() -> None:
    for table in ("model_alias_changes", "model_aliases", "models"):
        op.drop_table(table)
