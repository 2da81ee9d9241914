"""Rollouts and what devices reported."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "rollouts",
        sa.Column("id", sa.Integer, nullable=False),
        *_texts("device_group", "family", "champion", "candidate", "stage", "status"),
        sa.Column("since", sa.DateTime, nullable=False),
        sa.Column("serial", sa.Integer, nullable=False),
        sa.Column("is_published", sa.Boolean, nullable=False),
        *_texts("salt", "plan", "probation"),
        sa.Column("policy", sa.Text, nullable=True),
        *_texts("reasons"),
        sa.PrimaryKeyConstraint("id", name="pk_rollouts"),
    )
    op.create_index("ix_rollouts_device_group", "rollouts", ["device_group"])
    op.create_table(
        "rollout_moves",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("rollout_id", sa.Integer, nullable=False),
        sa.Column("at", sa.DateTime, nullable=False),
        *_texts("stage", "status"),
        sa.Column("serial", sa.Integer, nullable=False),
        *_texts("moved_by", "reasons"),
        sa.PrimaryKeyConstraint("id", name="pk_rollout_moves"),
        sa.ForeignKeyConstraint(
            ["rollout_id"], ["rollouts.id"], name="fk_rollout_moves_rollout_id", ondelete="CASCADE"
        ),
    )
    op.create_index("ix_rollout_moves_rollout_id", "rollout_moves", ["rollout_id"])
    op.create_table(
        "device_reports",
        *_texts("device_group", "device", "state"),
        sa.Column("received_at", sa.DateTime, nullable=False),
        sa.Column("state_before", sa.Text, nullable=True),
        sa.PrimaryKeyConstraint("device_group", "device", name="pk_device_reports"),
    )


def downgrade() -> None:
    for table in ("device_reports", "rollout_moves", "rollouts"):
        op.drop_table(table)


def _texts(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text, nullable=False) for name in names]
